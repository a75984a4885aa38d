// The pread engine: threads that take reads from a queue.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "io/read_engine.h"

namespace swordfish::io {
namespace {

class PreadEngine final : public ReadEngine {
 public:
  explicit PreadEngine(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::exception&) {  // no thread, or no memory for one; the first must be had
        if (threads_.empty()) throw;
        break;
      }
    }
  }
  ~PreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  PreadEngine(const PreadEngine&) = delete;
  PreadEngine& operator=(const PreadEngine&) = delete;

  std::string_view name() const override { return "pread"; }

  Status submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(request);
    }
    work_.notify_one();
    return {};
  }

  Status wait(std::vector<ReadCompletion>& done) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return !done_.empty(); });
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
    return {};
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const ReadRequest request = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const ssize_t got = ::pread(request.fd, request.to, request.size, static_cast<off_t>(request.offset));
      const std::int64_t result = got < 0 ? -errno : got;
      lock.lock();
      done_.push_back({request.tag, result});
      ended_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, ended_;
  std::deque<ReadRequest> queue_;
  std::vector<ReadCompletion> done_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace

std::unique_ptr<ReadEngine> make_pread_engine(unsigned threads) { return std::make_unique<PreadEngine>(threads); }

}  // namespace swordfish::io
