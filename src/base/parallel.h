// ThreadPool: runs the tasks 0..n-1 of one call on a fixed set of threads, the calling thread among them.
//
// A call allocates nothing. Calls from several threads take the pool in turn; a call from inside a task of any pool runs on the
// thread that makes it, so nesting cannot deadlock. Tasks are taken one by one from a counter: make them large enough to be worth
// ~1 µs.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace swordfish {

// Cores that this process may use (its affinity mask, not the machine's count); at least 1.
int usable_cores();

class ThreadPool {
 public:
  // threads: 0 takes usable_cores(); 1 means the calling thread alone. When the system refuses a thread, the pool is smaller.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, worker) for every task in [0,n) and returns when all have ended; worker is in [0, threads()) and no two tasks of
  // one call run with the same worker at once, so it may index scratch. When a task throws, tasks not yet begun are dropped and
  // the first exception is rethrown here.
  template <class F>
  void parallel_for(std::int64_t n, F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run(
        n, [](void* f, std::int64_t task, int worker) { (*static_cast<Fn*>(f))(task, worker); },
        const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

 private:
  using Call = void (*)(void*, std::int64_t, int);
  void run(std::int64_t n, Call call, void* fn);
  void work(int worker);
  void take_tasks(int worker);

  std::vector<std::thread> workers_;
  std::mutex turn_;  // held by the call that has the pool

  std::mutex mutex_;  // guards the fields below, but next_, which tasks are taken from
  std::condition_variable start_, done_;
  std::uint64_t generation_ = 0;  // counts calls: a worker joins each once
  int busy_ = 0;                  // workers that have not finished this generation
  bool stop_ = false;
  std::exception_ptr error_;

  Call call_ = nullptr;
  void* fn_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
};

// Calls fn(i) for each i in [0, count), `step` of them in a row a task, on all cores where there is more than one task.
template <class F>
void parallel_each(std::size_t count, std::size_t step, F&& fn) {
  const std::size_t tasks = (count + step - 1) / step;
  ThreadPool pool(static_cast<int>(std::clamp<std::size_t>(tasks, 1, static_cast<std::size_t>(usable_cores()))));
  pool.parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task, int) {
    const std::size_t begin = static_cast<std::size_t>(task) * step;
    for (std::size_t i = begin; i < std::min(count, begin + step); ++i) fn(i);
  });
}

}  // namespace swordfish
