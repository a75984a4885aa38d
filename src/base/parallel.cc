// ThreadPool: one generation counter wakes the workers, one task counter feeds them.
#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace swordfish {
namespace {

thread_local bool in_task = false;  // this thread is running a task of some pool

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more than CPU_SETSIZE cores
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cores();
  workers_.reserve(static_cast<std::size_t>(threads) - 1);
  for (int i = 1; i < threads; ++i) {
    try {
      workers_.emplace_back([this, i] { work(i); });
    } catch (const std::exception&) {  // no thread or no memory for one
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t n, Call call, void* fn) {
  if (n <= 0) return;
  if (n == 1 || workers_.empty() || in_task) {
    for (std::int64_t task = 0; task < n; ++task) call(fn, task, 0);
    return;
  }
  const std::lock_guard turn(turn_);
  {
    const std::lock_guard lock(mutex_);
    call_ = call;
    fn_ = fn;
    count_ = n;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    error_ = nullptr;
    ++generation_;
  }
  start_.notify_all();
  take_tasks(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    take_tasks(worker);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::take_tasks(int worker) {
  in_task = true;
  try {
    for (std::int64_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(fn_, task, worker);
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  in_task = false;
}

}  // namespace swordfish
