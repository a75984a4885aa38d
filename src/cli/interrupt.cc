// The SIGINT handler behind FirstInterrupt.
#include "cli/interrupt.h"

#include <atomic>

namespace swordfish::cli {
namespace {

std::atomic<bool> interrupted{false};
void interrupt(int) { interrupted = true; }

}  // namespace

FirstInterrupt::FirstInterrupt() {
  interrupted = false;
  struct sigaction ours = {};
  ours.sa_handler = interrupt;
  ours.sa_flags = SA_RESETHAND;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGINT, &ours, &before_);
}
FirstInterrupt::~FirstInterrupt() { sigaction(SIGINT, &before_, nullptr); }
bool FirstInterrupt::happened() { return interrupted; }

}  // namespace swordfish::cli
