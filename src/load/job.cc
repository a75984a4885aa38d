// Workers that take units in order, and a calling thread that reports progress and cancels.
#include "load/job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "io/read_scope.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(100);

class Runner {
 public:
  Runner(const LoadJob& job, const LoadOptions& options, io::StagedReader* reader)  // null: nothing is read ahead
      : job_(job), options_(options), reader_(reader) {
    for (std::size_t unit = 0; unit < job.units.size(); ++unit) total_ += bytes_of(unit);
  }

  Status run(int threads) {
    running_ = threads;
    for (int i = 0; i < threads; ++i) {
      try {
        workers_.emplace_back([this, i] { work(static_cast<unsigned>(i)); });
      } catch (const std::system_error&) {  // the system has no more threads
        const std::lock_guard lock(mutex_);
        running_ -= threads - i;
        break;
      }
    }
    if (workers_.empty()) {
      running_ = 1;
      work(0);
    }
    watch();
    for (std::thread& worker : workers_) worker.join();
    return first_;
  }

 private:
  void work(unsigned number) {
    LoadWorker worker;
    worker.number = number;
    while (true) {
      const std::size_t unit = failed_ ? job_.units.size() : next_.fetch_add(1);
      if (unit >= job_.units.size()) break;
      const Status status = one(unit, worker);
      if (status.ok()) {
        packed_ += bytes_of(unit);
        continue;
      }
      const std::lock_guard lock(mutex_);
      // The units before this one have all been taken and go on to their end: of several failures the first is reported, whatever
      // the timing.
      if (first_.ok() || (!cancelled_ && unit < first_unit_)) {
        first_ = status;
        first_unit_ = unit;
      }
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  std::uint64_t bytes_of(std::size_t unit) const {
    std::uint64_t sum = 0;
    for (const io::StagedRange& r : job_.units[unit].ranges) sum += r.size;
    return sum;
  }

  Status one(std::size_t unit, LoadWorker& worker) {
    if (options_.raw) {
      Status status = reader_->discard_unit(unit);
      read_ += bytes_of(unit);
      return status;
    }
    bool open = true;
    const auto all_read = [&] {
      if (!open) return;
      open = false;
      if (reader_ != nullptr) reader_->end_unit(unit);
      read_ += bytes_of(unit);
    };
    Status status;
    try {
      std::optional<io::ReadScope> scope;
      if (reader_ != nullptr) scope.emplace(*reader_, job_.files.numbers);
      status = job_.process(unit, all_read, worker);
    } catch (const std::bad_alloc&) {
      status = Status(Code::out_of_memory, "out of memory while loading");
    } catch (const std::exception& e) {
      status = Status(Code::internal, e.what());
    }
    all_read();
    return status;
  }

  void watch() {
    const Clock::time_point start = Clock::now();
    std::unique_lock lock(mutex_);
    while (true) {
      const bool ended = ended_.wait_for(lock, kTick, [&] { return running_ == 0; });
      if (options_.progress != nullptr && !cancelled_) {
        lock.unlock();
        const LoadProgress now{total_, read_, packed_, std::chrono::duration<double>(Clock::now() - start).count()};
        const bool on = options_.progress(now, options_.user);
        lock.lock();
        if (!on && !ended) {
          cancelled_ = true;
          if (first_.ok()) first_ = {Code::cancelled, "loading was cancelled"};
          failed_ = true;
          if (reader_ != nullptr) reader_->cancel();
        }
      }
      if (ended) return;
    }
  }

  const LoadJob& job_;
  const LoadOptions& options_;
  io::StagedReader* const reader_;
  std::uint64_t total_ = 0;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
  bool cancelled_ = false;
  std::atomic<bool> failed_{false};
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> read_{0}, packed_{0};
  Status first_;
  std::size_t first_unit_ = 0;
};

}  // namespace

std::size_t JobFiles::add(const std::string& path) {
  const auto [found, is_new] = numbers.emplace(path, paths.size());
  if (is_new) paths.push_back(path);
  return found->second;
}

void SharedSeconds::add(double seconds) {
  const std::lock_guard lock(mutex_);
  sum_ += seconds;
}
double SharedSeconds::sum() const {
  const std::lock_guard lock(mutex_);
  return sum_;
}

namespace {

int threads_for(const LoadJob& job, const LoadOptions& options) {
  return static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(most_workers(options)), std::max<std::size_t>(job.units.size(), 1)));
}

}  // namespace

int most_workers(const LoadOptions& options) { return options.threads > 0 ? options.threads : usable_cores(); }

Status run_job(const LoadJob& job, const LoadOptions& options, LoadReport& report, const JobHooks& hooks) {
  std::vector<std::shared_ptr<const io::File>> files;
  for (const std::string& path : job.files.paths) {
    SF_ASSIGN(auto file, io::File::open(path));
    files.push_back(std::move(file));
  }
  io::StagingOptions staging;
  staging.ring_bytes = options.ring_bytes;
  staging.depth = options.depth;
  staging.direct = options.direct;
  staging.uring = options.uring;
  staging.describe = job.describe;
  staging.wrap_engine = hooks.wrap_engine;
  SF_ASSIGN(const std::unique_ptr<io::StagedReader> reader,
            io::StagedReader::start(std::move(files), job.units, job.skipped, staging));
  report.threads = threads_for(job, options);
  Status status = Runner(job, options, reader.get()).run(report.threads);
  const io::StagingStats stats = reader->stats();
  report.engine = stats.engine;
  report.source_bytes = stats.needed_bytes;
  report.disk_bytes = stats.disk_bytes;
  report.cached_bytes = stats.cache_bytes;
  report.past_ring_bytes = stats.past_ring_bytes;
  report.unplanned_bytes = stats.unplanned_bytes;
  report.disk_seconds = stats.disk_seconds;
  report.full_seconds = stats.full_seconds;
  report.wait_seconds = stats.wait_seconds;
  report.copy_seconds = stats.copy_seconds;
  return status;
}

Status run_unstaged_job(const LoadJob& job, const LoadOptions& options) {
  return Runner(job, options, nullptr).run(threads_for(job, options));
}

}  // namespace swordfish
