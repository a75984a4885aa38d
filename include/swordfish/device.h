// GPUs: which ones are present and usable, their memory and streams, and packed weights in their memory.
//
// Every call makes its device current for the calling thread and restores the previous one. Driver and runtime errors become
// Status. A build without CUDA, or a machine without a driver or a GPU, has these calls too: they say what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/gemm.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

// What plans depend on, and what `swordfish devices` shows.
struct GpuInfo {
  int index = 0;
  std::string name;
  int arch = 0;  // compute capability: 10 · major + minor
  int sms = 0;
  std::int64_t memory = 0, l2 = 0;           // bytes
  std::int64_t smem_block = 0, smem_sm = 0;  // bytes of shared memory: at most per CTA, and per SM
  bool reads_host_memory = false;            // kernels may use any host pointer (shared page tables)
};
struct Gpus {
  std::vector<GpuInfo> found;
  int driver = 0, runtime = 0;    // CUDA versions of the driver and of this build: 1000 · major + 10 · minor; 0: none
  std::string_view machine_code;  // architectures that this build has kernels for: "90a"; empty in a build without CUDA
  std::string none;               // a sentence that says why none were found
};
// Looked up at the first call, then the same for the whole process. No GPU gets a context by it. Thread-safe.
const Gpus& gpus();
// Empty, or a sentence that says why this build cannot run kernels on the GPU gpus().found[index]. The first call for a GPU makes a
// context on it (some hundred MiB of its memory) and looks for this build's machine code there. Thread-safe.
const std::string& why_unusable(int index);
// A device that kernels can run on, or a sentence that says why not. The pointer is valid for the whole process.
Result<const GpuInfo*> usable_gpu(Device device);
// "sm_90:132": a GPU of that compute capability and number of SMs, for planning without one (Problem::described).
Result<GpuInfo> describe_gpu(std::string_view text);

// Owned GPU memory, 256-byte aligned, not initialised. Freed by the destructor, which waits for the device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(Device device, std::size_t size);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  Device device() const { return device_; }
  // Gives the memory up to the caller; and takes ownership of memory from release() or cudaMalloc, whose size() is then 0.
  void* release();
  static DeviceBuffer adopt(Device device, void* data);

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
  Device device_;
};

// Owned page-locked host memory: a device copies from it at full speed while the caller goes on.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> allocate(Device device, std::size_t size);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// An owned stream that does not wait for the default stream.
class Stream {
 public:
  Stream() = default;  // the device's default stream
  static Result<Stream> create(Device device);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  void* get() const { return stream_; }  // cudaStream_t
  // Gives the stream up to the caller; and takes ownership of one.
  void* release();
  static Stream adopt(Device device, void* stream);

 private:
  void* stream_ = nullptr;
  Device device_;
};

// Copies between host and device memory, either way, in order with the stream. Returns when the copy is done.
Status copy(Device device, void* to, const void* from, std::size_t size, void* stream = nullptr);
// The same, but may return before the copy is done where the host memory is page-locked: leave both ends alone until the stream
// has passed.
Status copy_async(Device device, void* to, const void* from, std::size_t size, void* stream);
// Sets bytes of device memory, in order with the stream. Does not wait.
Status fill(Device device, void* to, int byte, std::size_t size, void* stream = nullptr);
Status synchronize(Device device, void* stream = nullptr);

// A packed weight in device memory: one run of bytes, in the order of the packed file, each plane at a multiple of 256 bytes. The
// bytes hold no pointers.
class DeviceWeight {
 public:
  static constexpr std::size_t alignment = 256;

  DeviceWeight() = default;
  // Bytes that a weight of this shape takes. Of the view's plane pointers it matters only which are null.
  static std::size_t bytes(const PackedView& weight);
  // Copies a weight into memory of its own, or into `memory` (256-byte aligned, at least bytes() long), which must outlive the
  // DeviceWeight. Returns when the copy is done; the host weight is no longer needed then.
  static Result<DeviceWeight> upload(const PackedWeight& weight, Device device, void* stream = nullptr);
  static Result<DeviceWeight> upload(const PackedWeight& weight, Device device, void* memory, std::size_t size,
                                     void* stream = nullptr);
  // A weight whose bytes lie in `memory` already, as an upload of the weight that `like` views wrote them, or will be written there
  // in the same order. Does not own `memory`. Device::Kind::cpu: the same in host memory, for tests.
  static Result<DeviceWeight> at(const PackedView& like, Device device, void* memory, std::size_t size);

  const PackedView& view() const { return view_; }  // planes in device memory, parts in host memory
  Device device() const { return device_; }
  void* memory() const { return memory_; }

 private:
  PackedView view_;
  std::vector<PackedPart> parts_;
  DeviceBuffer own_;
  void* memory_ = nullptr;
  Device device_;
};

}  // namespace swordfish
