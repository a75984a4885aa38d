// Fiber: switching stacks, and the pool of stacks.
#include "emulator/fiber.h"

#include <new>

#include <sys/mman.h>

#include "sanitizer.h"
#if SWORDFISH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace swordfish::emu {
namespace {

constexpr std::size_t kPage = 4096;
// A kernel's frame takes about 1 KB optimised, some 4 KB sanitized; 64 KB leave room for deep helpers. Only touched pages cost.
constexpr std::size_t kStackBytes = 64 * 1024;

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
#if SWORDFISH_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack.base, stack.size);  // a fiber's outermost frames never return, and leave their red zones
#endif
  free_.push_back(stack);
}

void Fiber::start(Stack stack, std::size_t shift, Entry entry, void* argument) {
  stack_ = stack;
  entry_ = entry;
  argument_ = argument;
  context_ = boost::context::detail::make_fcontext(stack.base + stack.size - shift, stack.size - shift, &Fiber::enter);
}

// The sanitizer must not instrument these three: it would put their variables into the fake stack that a last switch destroys.
#define SF_EMU_SWITCHES [[gnu::no_sanitize_address]]

// *this runs from here on; the code that ran before is now saved: remember where.
SF_EMU_SWITCHES void Fiber::arrived(boost::context::detail::transfer_t from) {
  auto* before = static_cast<Fiber*>(from.data);
  before->context_ = from.fctx;
#if SWORDFISH_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
  if (before->stack_.base == nullptr) before->stack_ = {static_cast<std::byte*>(const_cast<void*>(bottom)), size};
#endif
}

SF_EMU_SWITCHES void Fiber::enter(boost::context::detail::transfer_t from) {
  Fiber* self = static_cast<Fiber*>(from.data)->next_;
  self->arrived(from);
  self->entry_(self->argument_);
}

SF_EMU_SWITCHES void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool last) {
  next_ = &next;
#if SWORDFISH_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, next.stack_.base, next.stack_.size);
#endif
  arrived(boost::context::detail::jump_fcontext(next.context_, this));
}

}  // namespace swordfish::emu
