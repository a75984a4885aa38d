// Fiber: switching stacks, and the pool of stacks.
#include "emulator/fiber.h"

#include <new>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SF_EMU_ASAN 1
#else
#define SF_EMU_ASAN 0
#endif

namespace swordfish::emu {
namespace {

constexpr std::size_t kPage = 4096;
// A kernel's frame takes about 1 KB optimised, some 4 KB sanitized; 64 KB leave room for deep helpers. Only touched pages cost.
constexpr std::size_t kStackBytes = 64 * 1024;

// What a switch hands to the code that it continues.
struct Handover {
  Fiber* from;
  Fiber* to;
};

}  // namespace

StackPool& StackPool::mine() {
  static thread_local StackPool pool;
  return pool;
}

StackPool::~StackPool() {
  for (const Stack& s : free_) munmap(s.base - kPage, s.size + kPage);
}

Stack StackPool::take() {
  if (!free_.empty()) {
    const Stack s = free_.back();
    free_.pop_back();
    return s;
  }
  void* p =
      mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (mprotect(p, kPage, PROT_NONE) != 0) {
    munmap(p, kPage + kStackBytes);
    throw std::bad_alloc();
  }
  return {static_cast<std::byte*>(p) + kPage, kStackBytes};
}

void StackPool::give(Stack stack) {
#if SF_EMU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack.base, stack.size);  // a dropped fiber leaves its frames' red zones behind
#endif
  free_.push_back(stack);
}

void Fiber::start(Stack stack, std::size_t shift, Entry entry, void* argument) {
  stack_ = stack;
  entry_ = entry;
  argument_ = argument;
  context_ = boost::context::detail::make_fcontext(stack.base + stack.size - shift, stack.size - shift, &Fiber::enter);
}

// The code that ran before is now saved: remember where.
void Fiber::arrived(boost::context::detail::transfer_t from, [[maybe_unused]] void* fake_stack) {
  auto* handover = static_cast<Handover*>(from.data);
  handover->from->context_ = from.fctx;
#if SF_EMU_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (handover->from->stack_.base == nullptr) {
    handover->from->stack_ = {static_cast<std::byte*>(const_cast<void*>(bottom)), size};
  }
#endif
}

void Fiber::enter(boost::context::detail::transfer_t from) {
  Fiber* self = static_cast<Handover*>(from.data)->to;
  arrived(from, nullptr);
  self->entry_(self->argument_);
}

void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool last) {
  Handover handover{this, &next};
#if SF_EMU_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack, next.stack_.base, next.stack_.size);
  arrived(boost::context::detail::jump_fcontext(next.context_, &handover), fake_stack);
#else
  arrived(boost::context::detail::jump_fcontext(next.context_, &handover), nullptr);
#endif
}

}  // namespace swordfish::emu
