// LoadJob: what a load does unit by unit, and run_job(), which reads ahead for it and runs it on threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffer_slab.h"
#include "io/staging.h"
#include "load/load_device.h"
#include "swordfish/buffer.h"
#include "swordfish/load.h"
#include "swordfish/status.h"

namespace swordfish {

// Files by path, in the order of their numbers.
struct JobFiles {
  std::vector<std::string> paths;
  std::map<std::string, std::size_t> numbers;
  std::size_t add(const std::string& path);  // its number; the same path has one
};

// What belongs to one worker thread.
struct LoadWorker {
  unsigned number = 0;
  BufferSlab slab;  // where results in host memory go
  Buffer scratch;   // for what a unit needs meanwhile, so that it lies in pages and caches that are warm; not touched before
};

struct LoadJob {
  JobFiles files;
  std::vector<io::StagedUnit> units;
  std::vector<io::StagedRange> skipped;
  std::function<std::string(std::size_t file, std::uint64_t offset)> describe;  // "tensor 'x'" for a byte, in messages
  // Reads (through File, which is served from the ring) and packs one unit; calls `all_read` when it needs no more bytes.
  // Thread-safe.
  std::function<Status(std::size_t unit, const std::function<void()>& all_read, LoadWorker& worker)> process;
};

struct JobHooks {                // of tests
  const char* cufile = nullptr;  // in place of NVIDIA's cuFile; where it is null and there is a device in place of a GPU, none
  std::function<std::unique_ptr<io::ReadEngine>(std::unique_ptr<io::ReadEngine>)> wrap_engine;
  LoadDevice* device = nullptr;  // in place of a GPU
};

// Of all workers' scratch memory together, and of one.
inline constexpr std::size_t scratch_bytes = std::size_t{64} << 20, most_scratch = std::size_t{8} << 20;

// Threads that a load has at most.
int most_workers(const LoadOptions& options);

// Fills the report's bytes and times of reading.
Status run_job(const LoadJob& job, const LoadOptions& options, LoadReport& report, const JobHooks& hooks = {});

// The same for units that process() reads in another way: nothing is read ahead or counted.
Status run_unstaged_job(const LoadJob& job, const LoadOptions& options);

// Adds the seconds of its scope to a sum that several threads share.
class SharedSeconds {
 public:
  void add(double seconds);
  double sum() const;

 private:
  mutable std::mutex mutex_;
  double sum_ = 0;
};

}  // namespace swordfish
