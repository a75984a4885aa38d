// What the library and the benches need of GPUs beyond the public header: pointer checks, calls timed in CUDA graphs, the peer
// cuBLAS, and the sensors. Implemented in device/cuda, and in device/none for builds without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "swordfish/device.h"

namespace swordfish {

struct NamedPointer {
  const char* what;
  const void* pointer;
};
// Ok when kernels on `device` may use each pointer; null ones are not looked at. Safe while a stream is being captured.
Status check_on_device(Device device, std::initializer_list<NamedPointer> pointers);

// Ok when none of the pointers is memory of a GPU; asks only where GPUs have been looked for in this process.
Status check_on_host(std::initializer_list<NamedPointer> pointers);

// Where the bytes of a host weight go in the memory of its DeviceWeight.
struct PlaneCopy {
  const std::byte* from = nullptr;
  std::size_t offset = 0, size = 0;
};
Result<std::vector<PlaneCopy>> plane_copies(const PackedWeight& weight);

// A host copy of a weight; its name is empty.
Result<PackedWeight> download(const DeviceWeight& weight);
// To host memory; `device` may be the CPU.
Status copy_back(Device device, void* to, const void* from, std::size_t size);

// Makes a device current for the calling thread, and the one that was current again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  Status status() const;

 private:
  [[maybe_unused]] int before_ = 0;  // a build without CUDA has no use for them
  [[maybe_unused]] bool changed_ = false;
  [[maybe_unused]] int error_ = 0;
};

// While it lives, the calling thread may allocate and wait although one of its streams is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  [[maybe_unused]] int mode_ = 0;
};

// One call of what is timed: launches its `call`-th turn on a stream.
using Launch = std::function<Status(std::size_t call, void* stream)>;
struct Timed {
  std::size_t calls = 0;                // of one graph
  std::size_t replays = 0;              // of it
  double median = 0, p05 = 0, p95 = 0;  // seconds a call
};
// Captures `calls` calls of each launch into a CUDA graph, then replays the graphs in turn, each replay between two events, for
// `seconds` in all and at least 20 rounds. `busy`, if set, is called once while the GPU works.
Result<std::vector<Timed>> time_graphs(Device device, std::size_t calls, std::span<const Launch> launches, double seconds,
                                       const std::function<void()>& busy = {});

// cuBLAS, opened at run time (libcublas.so.13 or .12).
class Cublas {
 public:
  static Result<Cublas> open(Device device);
  Cublas(Cublas&&) noexcept;
  Cublas& operator=(Cublas&&) noexcept;
  ~Cublas();
  // y[m,n] = x[m,k] · w[n,k]ᵀ, all of one 16-bit type and row-major without gaps; fp32 sums.
  Status multiply(DType type, const void* x, const void* w, void* y, std::int64_t m, std::int64_t n, std::int64_t k, void* stream);

 private:
  struct Impl;
  explicit Cublas(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Sensors by NVML, opened at run time; zero where it does not answer.
struct Sensors {
  int sm_mhz = 0, memory_mhz = 0, max_sm_mhz = 0;
  double watts = 0, limit_watts = 0;
  int celsius = 0;
  std::string driver;  // "580.159.04"
};
Sensors read_sensors(Device device);

}  // namespace swordfish
