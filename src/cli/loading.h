// The commands about loading: load, and synth, which writes something to load.
#pragma once

#include <csignal>

#include "cli/common.h"

namespace swordfish::cli {

void add_load(CLI::App& app, int& exit);
void add_synth(CLI::App& app, int& exit);

// While it lives, the first Ctrl-C only sets a flag, so that the work can end in order; the second ends the program.
class FirstInterrupt {
 public:
  FirstInterrupt();
  ~FirstInterrupt();
  FirstInterrupt(const FirstInterrupt&) = delete;
  FirstInterrupt& operator=(const FirstInterrupt&) = delete;
  static bool happened();

 private:
  struct sigaction before_ = {};
};

}  // namespace swordfish::cli
