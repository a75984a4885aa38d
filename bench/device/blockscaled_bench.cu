// Checks and times the kernels of src/kernels/cuda/blockscaled on a GPU: every byte against the scalar definitions, then the share
// of the copy rate that they reach. usage: blockscaled_bench [RESULTS.json]
//
//   g++ -std=c++20 -O2 -DFMT_HEADER_ONLY -Iinclude -Isrc -c src/quant/quantize_activation.cc src/base/dtype.cc src/base/buffer.cc
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -Iinclude -Isrc
//        bench/device/blockscaled_bench.cu quantize_activation.o dtype.o buffer.o -o blockscaled_bench
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/blockscaled/quantize.cuh"
#include "kernels/cuda/blockscaled/swizzle.cuh"
#include "pack/sm1xx.h"
#include "quant/numeric.h"
#include "quant/quantize_activation.h"

namespace {

using namespace swordfish;
using ptx::Half;

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t e_ = (call);                                                      \
    if (e_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

template <class T>
T* device(std::size_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T)));
  CHECK(cudaMemset(p, 0xff, count * sizeof(T)));
  return static_cast<T*>(p);
}
template <class T>
T* device(const std::vector<T>& values) {
  T* p = device<T>(values.size());
  CHECK(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <class T>
std::vector<T> host(const T* p, std::size_t count) {
  std::vector<T> values(count);
  CHECK(cudaMemcpy(values.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

void launch_swizzle(int unit, const cuda::SwizzleArgs& a) {
  CHECK(ptx::launch(unit == 4 ? cuda::swizzle_scales<4> : cuda::swizzle_scales<1>, cuda::swizzle_shape(a.n, a.s), nullptr, a));
}
template <Half type, int block>
void launch_quantize(bool vector, const cuda::QuantizeArgs& a) {
  CHECK(ptx::launch(vector ? cuda::quantize_fp4<type, block, true> : cuda::quantize_fp4<type, block, false>,
                    cuda::quantize_shape(a.m, a.k, block), nullptr, a));
}
constexpr std::uint32_t kAmaxCtas = 1056;  // 8 a multiprocessor of an H200
template <Half type>
void launch_amax(bool vector, const cuda::AmaxArgs& a) {
  ptx::LaunchShape shape;
  shape.grid_x = kAmaxCtas;
  shape.threads = cuda::kAmaxThreads;
  shape.dynamic_smem = 64;
  CHECK(ptx::launch(vector ? cuda::activation_amax<type, true> : cuda::activation_amax<type, false>, shape, nullptr, a));
}

// The first row at `lead` bytes from a multiple of 16.
bool check_swizzle(int unit, std::int64_t n, std::int64_t s, std::int64_t stride, std::uint32_t lead = 0) {
  std::mt19937_64 random(static_cast<std::uint64_t>(n * 1000 + s));
  std::vector<std::uint8_t> from(lead + static_cast<std::size_t>((n - 1) * stride + s));
  for (auto& b : from) b = static_cast<std::uint8_t>(random());
  const std::int64_t atoms = sm1xx::k_atoms(s), bytes = (n + 127) / 128 * atoms * sm1xx::atom_bytes;
  std::vector<std::uint8_t> want(static_cast<std::size_t>(bytes), 0);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < s; ++c)
      want[static_cast<std::size_t>(sm1xx::scale_offset(i, c, atoms))] = from[static_cast<std::size_t>(lead + i * stride + c)];
  std::uint8_t* const source = device(from);
  const cuda::SwizzleArgs a{source + lead, stride, n, s, device<std::uint8_t>(want.size()), lead};
  launch_swizzle(unit, a);
  const bool equal = host(a.to, want.size()) == want;
  std::printf("check swizzle unit %d n %lld s %lld lead %u: %s\n", unit, (long long)n, (long long)s, lead,
              equal ? "equal" : "DIFFERS");
  CHECK(cudaFree(source));
  CHECK(cudaFree(a.to));
  return equal;
}

template <Half type, int block>
bool check_quantize(bool vector, std::int64_t m, std::int64_t k, std::int64_t ldx, float given) {
  std::mt19937_64 random(static_cast<std::uint64_t>(m * 7 + k));
  std::vector<std::uint16_t> x(static_cast<std::size_t>(m * ldx));
  if (given < 0) {  // every bit pattern, NaN and infinity where they fall
    for (auto& h : x) h = static_cast<std::uint16_t>(random());
    given = -given;
  } else {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = normal(random) * std::ldexp(1.0f, static_cast<int>(i / 16 * 2654435761u >> 8 & 15) - 8);
      x[i] = type == Half::bf16 ? f32_to_bf16(v) : f32_to_f16(v);
      if (random() % 1000 == 0) x[i] = type == Half::bf16 ? 0x7f80 : 0x7e00;
    }
  }
  const DType dtype = type == Half::bf16 ? DType::bf16 : DType::f16;
  const std::int64_t blocks = (k + block - 1) / block, atoms = sm1xx::k_atoms(blocks),
                     bytes = (m + 127) / 128 * atoms * sm1xx::atom_bytes;
  const std::int64_t row_bytes = (k + 1) / 2;
  float global = given;
  float* g = device<float>(3);
  const std::uint16_t* dx = device(x);
  bool equal = true;
  if (block == 32) {
    global = 1;
  } else if (given == 0) {
    global = activation_global(dtype, x.data(), m, k, ldx);
    std::uint32_t* counter = device(std::vector<std::uint32_t>{0});
    const cuda::AmaxArgs a{dx, m, k, ldx, device<std::uint32_t>(kAmaxCtas), counter, g};
    for (int repeat = 0; repeat < 2; ++repeat) {  // the counter returns to zero by itself
      launch_amax<type>(vector, a);
      const ActivationScale scale = activation_scale(global);
      equal = equal && host(g, 3) == std::vector<float>{scale.global, scale.inv, scale.c} && host(counter, 1)[0] == 0;
    }
  } else {
    const ActivationScale scale = activation_scale(global);
    CHECK(cudaMemcpy(g, &scale, sizeof scale, cudaMemcpyHostToDevice));
  }
  const cuda::QuantizeArgs a{dx,
                             m,
                             k,
                             ldx,
                             g,
                             device<std::uint8_t>(static_cast<std::size_t>(m * row_bytes)),
                             device<std::uint8_t>(static_cast<std::size_t>(bytes))};
  launch_quantize<type, block>(vector, a);
  const auto want =
      block == 16 ? quantize_activations(dtype, x.data(), m, k, ldx, global) : quantize_activations_mx(dtype, x.data(), m, k, ldx);
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(bytes), 0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t b = 0; b < blocks; ++b)
      scales[static_cast<std::size_t>(sm1xx::scale_offset(i, b, atoms))] = want->scales.template as<std::uint8_t>()[i * blocks + b];
  const auto codes = host(a.codes, want->codes.size());
  equal = equal && host(a.scales, scales.size()) == scales && std::memcmp(codes.data(), want->codes.data(), codes.size()) == 0;
  std::printf("check quantize %s %s %s m %lld k %lld ldx %lld global %g%s: %s\n", block == 16 ? "nvfp4" : "mxfp4",
              type == Half::bf16 ? "bf16" : "f16", vector ? "vector" : "elements", (long long)m, (long long)k, (long long)ldx,
              global, given == 0 ? " (computed)" : "", equal ? "equal" : "DIFFERS");
  return equal;
}

// Median seconds of one call, over 7 runs of `calls`.
template <class F>
double time(F f, int calls) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  for (int i = 0; i < 3; ++i) f();
  std::vector<float> runs;
  for (int r = 0; r < 7; ++r) {
    CHECK(cudaEventRecord(start));
    for (int i = 0; i < calls; ++i) f();
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    runs.push_back(ms / static_cast<float>(calls));
  }
  std::sort(runs.begin(), runs.end());
  return runs[runs.size() / 2] * 1e-3;
}

// GB/s, reads and writes counted, of a device copy that moves `bytes` in all.
double copy_rate(std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
  return static_cast<double>(bytes) / 1e9 /
         time([&] { CHECK(cudaMemcpyAsync(to, from, bytes / 2, cudaMemcpyDeviceToDevice)); }, 20);
}

// Rows of the measurement, printed as they come and kept for a file.
class Results {
 public:
  void add(const char* what, std::int64_t rows, std::int64_t columns, std::size_t bytes, double seconds, double copy) {
    const double rate = static_cast<double>(bytes) / 1e9 / seconds;
    std::printf("%s %lld x %lld: %.2f us, %.0f GB/s, copy %.0f, share %.3f\n", what, (long long)rows, (long long)columns,
                seconds * 1e6, rate, copy, rate / copy);
    char row[256];
    std::snprintf(
        row, sizeof row,
        R"(%s{"kernel": "%s", "rows": %lld, "columns": %lld, "us": %.3f, "gb_s": %.1f, "copy_gb_s": %.1f, "share": %.4f})",
        rows_.empty() ? "" : ",\n    ", what, (long long)rows, (long long)columns, seconds * 1e6, rate, copy, rate / copy);
    rows_ += row;
  }
  bool write(const char* path, bool equal) const {
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    std::FILE* file = std::fopen(path, "w");
    if (!file) return false;
    std::fprintf(file, "{\n  \"device\": \"%s\",\n  \"bit_equal\": %s,\n  \"rows\": [\n    %s\n  ]\n}\n", p.name,
                 equal ? "true" : "false", rows_.c_str());
    return std::fclose(file) == 0;
  }

 private:
  std::string rows_;
};

}  // namespace

int main(int argc, char** argv) {
  bool good = true;
  for (const int unit : {4, 1}) {
    good &= check_swizzle(unit, 128, 128, 128) && check_swizzle(unit, 1000, 256, 256) && check_swizzle(unit, 333, 276, 288);
    good &= check_swizzle(unit, 2880, 180, 180, 4) && check_swizzle(unit, 129, 91, 92, 12);
    good &= check_swizzle(unit, 257, 1796, 1796) && check_swizzle(unit, 640, 260, 264, 8);
    if (unit < 4) good &= check_swizzle(unit, 2880, 90, 90, 3) && check_swizzle(unit, 1, 1, 1, 15);
    if (unit < 4) good &= check_swizzle(unit, 300, 513, 515, 1) && check_swizzle(unit, 3, 2, 7);
  }
  for (const float given : {0.0f, 0.01f, -0.01f, -0x1p-90f, -0x1p117f}) {
    for (const bool vector : {true, false}) {
      good &= check_quantize<Half::bf16, 16>(vector, 300, 4096, 4096, given);
      good &= check_quantize<Half::f16, 16>(vector, 8, 7168, 7200, given);
      good &= check_quantize<Half::bf16, 16>(vector, 129, 80, 88, given);
    }
    good &= check_quantize<Half::bf16, 16>(false, 5, 1003, 1005, given);
  }
  for (const float values : {0.01f, -0.01f}) {  // MXFP4 has no global: normal values, and every bit pattern
    for (const bool vector : {true, false}) {
      good &= check_quantize<Half::bf16, 32>(vector, 300, 4096, 4096, values);
      good &= check_quantize<Half::f16, 32>(vector, 8, 7168, 7200, values);
    }
    good &= check_quantize<Half::bf16, 32>(false, 5, 1003, 1005, values);
  }
  std::printf("checks: %s\n", good ? "all equal" : "FAILED");

  Results results;
  const std::size_t half = std::size_t{1} << 30;
  std::uint8_t *from = device<std::uint8_t>(half), *to = device<std::uint8_t>(half);
  for (const std::int64_t s : {128, 256, 448, 896, 60, 180, 184, 308, 1796, 90, 45, 451}) {
    const std::int64_t n = (256 << 20) / s / 128 * 128;
    const auto bytes = static_cast<std::size_t>(n * (s + 4 * sm1xx::k_atoms(s)));
    const int unit = s % 4 == 0 ? 4 : 1;
    const double seconds = time([&] { launch_swizzle(unit, {from, s, n, s, to}); }, 20);
    results.add("swizzle", n, s, bytes, seconds, copy_rate(from, to, bytes));
  }

  const std::int64_t most = std::int64_t{16384} * 16384;
  std::uint16_t* x[2];  // as bf16, as f16
  for (int type = 0; type < 2; ++type) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(most));
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float v = i < (1u << 20) ? normal(random) : 0;
      values[i] = i >= (1u << 20) ? values[i - (1u << 20)] : type == 0 ? f32_to_bf16(v) : f32_to_f16(v);
    }
    x[type] = device(values);
  }
  const ActivationScale scale = activation_scale(5.0f / 2688);
  float* global = device(std::vector<float>{scale.global, scale.inv, scale.c});
  cuda::AmaxArgs amax{x[0], 0, 0, 0, device<std::uint32_t>(kAmaxCtas), device(std::vector<std::uint32_t>{0}), device<float>(3)};
  struct Shape {
    std::int64_t m, k;
  };
  for (const Shape shape : {Shape{16384, 16384}, Shape{16384, 8192}, Shape{32768, 4096}, Shape{16384, 7168}, Shape{1024, 8192},
                            Shape{128, 8192}, Shape{8, 8192}}) {
    const std::int64_t m = shape.m, k = shape.k;
    const auto bytes = static_cast<std::size_t>(m * k * 2 + m * k / 2 + (m + 127) / 128 * 128 * k / 16);
    const auto mx_bytes = bytes - static_cast<std::size_t>((m + 127) / 128 * 128 * k / 32);
    const double copy = copy_rate(from, to, bytes);
    const cuda::QuantizeArgs a{x[0], m, k, k, global, from, to}, f16{x[1], m, k, k, global, from, to};
    results.add("nvfp4 bf16", m, k, bytes, time([&] { launch_quantize<Half::bf16, 16>(true, a); }, 20), copy);
    results.add("nvfp4 f16", m, k, bytes, time([&] { launch_quantize<Half::f16, 16>(true, f16); }, 20), copy);
    results.add("mxfp4 bf16", m, k, mx_bytes, time([&] { launch_quantize<Half::bf16, 32>(true, a); }, 20), copy);
    amax.m = m, amax.k = k, amax.ldx = k;
    results.add("amax bf16", m, k, static_cast<std::size_t>(m * k * 2), time([&] { launch_amax<Half::bf16>(true, amax); }, 20),
                copy);
  }
  CHECK(cudaDeviceSynchronize());
  if (argc > 1 && !results.write(argv[1], good)) return 1;
  return good ? 0 : 1;
}
