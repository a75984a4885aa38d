// Fiber: one CUDA thread's stack and saved registers (Boost.Context's fcontext), with the sanitizer told of every switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

namespace swordfish::emu {

// A stack with an inaccessible page below it.
struct Stack {
  std::byte* base = nullptr;  // lowest usable byte
  std::size_t size = 0;
};

// Stacks are kept for the next launch; one pool per thread of the operating system.
class StackPool {
 public:
  static StackPool& mine();
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  Stack take();  // throws std::bad_alloc
  void give(Stack stack);

 private:
  std::vector<Stack> free_;
};

class Fiber {
 public:
  using Entry = void (*)(void* argument);
  // Prepares a run of entry(argument), which must end with a switch away for good. `shift` bytes at the top stay unused, so that
  // the stacks of a warp do not all fall into the same cache sets.
  void start(Stack stack, std::size_t shift, Entry entry, void* argument);
  // Saves the running code in *this and continues `next`. `last`: nothing will continue *this again.
  void switch_to(Fiber& next, bool last = false);
  const Stack& stack() const { return stack_; }

 private:
  static void enter(boost::context::detail::transfer_t from);
  void arrived(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t context_ = nullptr;
  Stack stack_;  // of the operating system's thread: known after its first switch under a sanitizer
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  Fiber* next_ = nullptr;  // whom it has switched to
  // Where the sanitizer puts its frames, to find uses after a return; kept here while others run.
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace swordfish::emu
