// What benches measure on a GPU: calls timed in CUDA graphs, cuBLAS as a peer, clocks and power. Implemented in device/cuda, and in
// device/none for builds without CUDA.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "swordfish/device.h"

namespace swordfish {

// The value at quantile q in [0, 1] of sorted, non-empty times.
inline double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

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
