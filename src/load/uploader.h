// Uploader: where a load to a GPU puts what it has packed.
//
//   worker: chunk(), packs into it, upload() ──> copies in flight ──> runs of 256 MiB on the GPU, filled side by side
//
// Each worker has two chunks of page-locked memory and takes them in turn: it packs into one while the other's copies run. What
// does not fit a chunk is copied from where it lies, which waits. Host memory beside the chunks is bounded by admit().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "io/file.h"
#include "load/load_device.h"
#include "swordfish/load.h"
#include "swordfish/pack.h"

namespace swordfish {

class Uploader {
 public:
  static constexpr std::uint64_t run_bytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t admitted_bytes = std::uint64_t{64} << 20;  // in work at once, or one unit that is larger

  // `device` outlives it and has two lanes for each worker. `expected`: bytes that will be put there, about.
  static Result<std::unique_ptr<Uploader>> make(LoadDevice& device, unsigned workers, std::uint64_t chunk_bytes,
                                                std::uint64_t expected);

  // Counts a unit's host memory while it lives; the constructor waits until there is room for it.
  class Admission {
   public:
    Admission(Uploader& uploader, std::uint64_t unit_bytes);
    ~Admission();
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

   private:
    Uploader& uploader_;
    std::uint64_t bytes_;
  };

  // The worker's other chunk, once what was copied from it has arrived.
  Result<std::span<std::byte>> chunk(unsigned worker);
  // Starts copying a weight, which may be destroyed at once; its planes lie in that chunk or outside all chunks.
  Result<DeviceWeight> upload(unsigned worker, const PackedWeight& weight);
  // Copies a part of a file through chunks; `seen`, if set, is called with the bytes on their way.
  Result<const std::byte*> upload(unsigned worker, const io::File& file, std::uint64_t offset, std::uint64_t size,
                                  const std::function<void(std::span<const std::byte>)>& seen = {});
  // Gives back what is on the device: the load begins anew.
  Status forget();
  // Puts the biases there too, waits for every copy, and hands the memory over to the model.
  Status finish(LoadedModel& model);

 private:
  struct Worker {
    std::span<std::byte> chunks[2];
    unsigned turn = 0;
    std::span<std::byte> left;  // of the current chunk, for parts of files
    double seconds = 0;
  };
  struct Run {
    std::byte* next = nullptr;
    std::uint64_t left = 0;
  };
  Uploader(LoadDevice& device, std::uint64_t chunk_bytes, std::uint64_t expected)
      : device_(device), chunk_bytes_(chunk_bytes), expected_(expected) {}
  unsigned lane(unsigned worker) const { return 2 * worker + workers_[worker].turn; }
  Result<std::byte*> reserve(std::uint64_t size);
  Status copy(unsigned worker, std::byte* to, const std::byte* from, std::size_t size);
  Status wait();

  LoadDevice& device_;
  const std::uint64_t chunk_bytes_;
  std::vector<Worker> workers_;

  std::mutex mutex_;
  std::condition_variable room_;
  std::uint64_t admitted_ = 0;
  std::vector<Run> runs_;
  std::uint64_t expected_, allocated_ = 0;
};

}  // namespace swordfish
