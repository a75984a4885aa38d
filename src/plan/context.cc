// Context: the thread pool of its calls.
#include "base/parallel.h"
#include "kernels/kernel.h"

namespace swordfish {

struct Context::Impl {
  explicit Impl(int threads) : pool(threads) {}
  ThreadPool pool;
};

Context::Context(int threads) : impl_(std::make_unique<Impl>(threads)) {}
Context::~Context() = default;
int Context::threads() const { return impl_->pool.threads(); }

ThreadPool& pool(Context& context) { return context.impl().pool; }

}  // namespace swordfish
