// The table of temporary names and the signal handler that empties it.
#include "io/temporary_names.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

namespace swordfish::io {
namespace {

// A handler may only call async-signal-safe functions, so the names lie in fixed slots.
constexpr std::size_t kSlots = 32;
constexpr std::size_t kNameBytes = 4096;
struct Slot {
  std::atomic<bool> used{false};
  std::array<char, kNameBytes> name{};
};
std::array<Slot, kSlots> slots;
std::mutex slots_mutex;  // of the threads that remember and forget; the handler takes no lock

void remove_and_die(int signal_number) {
  // Other threads go on writing: a file that appeared behind this loop keeps its folder from being removed, so it is tried again.
  bool again = true;
  for (int round = 0; again && round < 8; ++round) {
    again = false;
    for (const Slot& slot : slots)
      if (slot.used.load(std::memory_order_acquire)) unlink(slot.name.data());
    for (const Slot& slot : slots)
      if (slot.used.load(std::memory_order_acquire) && rmdir(slot.name.data()) != 0 && errno == ENOTEMPTY) again = true;
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

// Only signals that would kill the process anyway are taken; a caller's own handler stays.
void install_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction old {};
      if (sigaction(number, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) continue;
      struct sigaction ours {};
      ours.sa_handler = remove_and_die;
      sigemptyset(&ours.sa_mask);
      sigaction(number, &ours, nullptr);
    }
  });
}

}  // namespace

void remember_temporary(const std::string& path) {
  if (path.size() >= kNameBytes) return;
  const std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.used.load(std::memory_order_relaxed)) continue;
    std::memcpy(slot.name.data(), path.c_str(), path.size() + 1);
    slot.used.store(true, std::memory_order_release);
    install_handlers();
    return;
  }
}

void forget_temporary(const std::string& path) {
  const std::lock_guard lock(slots_mutex);
  for (Slot& slot : slots)
    if (slot.used.load(std::memory_order_relaxed) && path == slot.name.data()) slot.used.store(false, std::memory_order_release);
}

}  // namespace swordfish::io
