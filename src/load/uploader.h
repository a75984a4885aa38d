// Uploader: where a load to a GPU puts what it has packed.
//
//   worker: chunk(), packs into it, upload() ──> copies in flight ──> runs of 256 MiB on the GPU, filled side by side
//
// Each worker has two chunks of page-locked memory and takes them in turn: it packs into one while the other's copies run. What
// does not fit a chunk is copied from where it lies, which waits. Host memory beside the chunks is bounded by Admission.
//
// A GPU takes 0.3 to 0.5 s to be ready (driver, context, page-locking): that is done on a thread, while headers and the first
// pieces are read, and waited for where the device is first needed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/file.h"
#include "load/load_device.h"
#include "swordfish/load.h"
#include "swordfish/pack.h"

namespace swordfish {

class Uploader {
 public:
  static constexpr std::uint64_t run_bytes = std::uint64_t{256} << 20;
  using MakeDevice = std::function<Result<LoadDevice*>()>;
  // In work at once beside scratch, or one unit that is larger.
  static constexpr std::uint64_t admitted_bytes = std::uint64_t{64} << 20;

  // `make` is called on a thread; what it gives outlives the uploader and has two lanes for each worker.
  Uploader(MakeDevice make, unsigned workers, std::uint64_t chunk_bytes);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  // Bytes that will be put there, about. Before anything is.
  void expect(std::uint64_t bytes) { expected_ = bytes; }
  // An error if the device could not be made ready; ok if it is, or may still be.
  Status problem() const;

  // Counts a unit's host memory while it lives: `beside`, and what is packed if it does not fit a chunk. The constructor waits
  // until there is room for it.
  class Admission {
   public:
    Admission(Uploader& uploader, std::uint64_t packed, std::uint64_t beside);
    ~Admission();
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

   private:
    Uploader& uploader_;
    std::uint64_t bytes_;
  };

  // The worker's other chunk, once what was copied from it has arrived.
  Result<std::span<std::byte>> chunk(unsigned worker);
  // A place on the device.
  Result<std::byte*> reserve(std::uint64_t size);
  // Starts copying a weight, which may be destroyed at once; its planes lie in that chunk or outside all chunks. `place`: null, or
  // where it goes.
  Result<DeviceWeight> upload(unsigned worker, const PackedWeight& weight, std::byte* place = nullptr);
  // Copies a part of a file there through chunks; `seen`, if set, is called with the bytes on their way.
  using Seen = std::function<void(std::span<const std::byte>)>;
  Status upload(unsigned worker, const io::File& file, std::uint64_t offset, std::uint64_t size, std::byte* to,
                const Seen& seen = {});
  // Copies from the device; returns when it is here.
  Status fetch(unsigned worker, std::byte* to, const std::byte* from, std::size_t size);
  // All memory taken on the device so far, and the device.
  std::vector<std::span<std::byte>> memory();
  Result<Device> device();
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
  Status make_ready(const MakeDevice& make);
  Status ready();  // waits until it is
  unsigned lane(unsigned worker) const { return 2 * worker + workers_[worker].turn; }
  Status copy(unsigned worker, std::byte* to, const std::byte* from, std::size_t size);
  Status wait();

  const std::uint64_t chunk_bytes_;
  LoadDevice* device_ = nullptr;  // as the next two: the thread's until it is ready
  std::vector<Worker> workers_;
  double ready_seconds_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable readiness_, room_;
  bool ready_ = false;
  Status problem_;
  std::uint64_t admitted_ = 0;
  std::vector<Run> runs_;                     // with room left
  std::vector<std::span<std::byte>> memory_;  // all of them, whole
  std::uint64_t expected_ = 0, allocated_ = 0;
  std::thread thread_;
};

}  // namespace swordfish
