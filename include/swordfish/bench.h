// Timing of planned kernels on this machine, next to the best that the machine itself can do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "swordfish/gemm.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

// A weight of the given shape with random codes and plausible scales, for timing. group_size 0: channelwise. Throws std::bad_alloc.
Result<PackedWeight> random_weight(CodeType code, std::int64_t n, std::int64_t k, std::int64_t group_size);

// The best of several passes, with all threads of a context at once.
struct MachineRates {
  int threads = 0;
  std::string_view vectors;          // the Highway target in use: "AVX2"
  double read_bytes_per_second = 0;  // reading an array much larger than the caches
  double fma_per_second = 0;         // fp32 multiply-adds (one per lane) of a loop that touches registers only
};
MachineRates measure_machine(Context& context);

struct BenchOptions {
  std::vector<std::int64_t> ms{1};
  DType x_type = DType::bf16;
  DType y_type = DType::bf16;
  std::string_view kernel;       // empty: as planned
  double seconds = 0.5;          // time spent on each M, but at least 10 runs (on a GPU: 20 replays of at least 32 calls)
  std::uint64_t cold_bytes = 0;  // copies of the weight take turns, so that at least this much is read between two uses of one;
                                 // 0: four times the largest cache (on a GPU at least 250 MB)
  Device device;
  // On a GPU: with programmatic dependent launch, without, or both (one point each); and cuBLAS on the dequantized weight as well.
  bool dependent = true, independent = false, cublas = false;
};

struct BenchPoint {
  std::int64_t m = 0, n = 0, k = 0;
  std::string_view kernel;
  int threads = 0;
  std::int64_t runs = 0;
  double median = 0, p05 = 0, p95 = 0;  // seconds per call
  std::uint64_t weight_bytes = 0;       // codes, planes and maps that a call reads
  bool dependent = false;               // on a GPU: programmatic dependent launch
  double cublas = 0;                    // median seconds per call of cuBLAS in the same run; 0: not timed
  // Up to 64 columns and 16 rows of y against fp64: the relative Frobenius error, and whether each element is within its bound.
  double relative_error = 0;
  bool bound_ok = false;
  int sm_mhz = 0;  // clock and power of the GPU while it worked; 0: not known
  double watts = 0;
  double bytes_per_second() const { return static_cast<double>(weight_bytes) / median; }
  double fma_per_second() const { return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / median; }
};
// One point for each M (on a GPU, for each way of launching), with random x and a cold weight. On a GPU the calls are captured in
// CUDA graphs that are replayed in turn and timed by events. Throws std::bad_alloc.
Result<std::vector<BenchPoint>> bench(Context& context, const PackedWeight& weight, const BenchOptions& options);

}  // namespace swordfish
