// FirstInterrupt: lets a long command end in order at the first Ctrl-C.
#pragma once

#include <csignal>

namespace swordfish::cli {

// While it lives, the first SIGINT only sets a flag, which the work polls; the second ends the program.
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
