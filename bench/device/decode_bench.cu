// Times and checks the decode kernels on a GPU: random packed weights made on the device, every output compared with an fp64
// product of the same bytes, calls in CUDA graphs over rotated weight copies; one JSON object a line. bench/device/build.sh builds
// it.
//
//   decode_bench [--plan] [--check [--quick|--tiny]] [--time] [--shapes a,b] [--ms 1,8,16] [--only substring] [--seconds limit]
//                --out file.json
//   with --plan --time also: [--sms 24] plans for so many SMs, in a green context that has no more
//                            [--form decode] [--whole 0|1] whether columns are split
//
// One file of 1,000 lines: weights, checks and timings share their types, and one call on a GPU machine needs all three.
//
// --plan goes through plan_decode and launch_decode, as the library does: with --check over formats, shapes and M, with --time over
// the eight Llama layers. Otherwise single kernels run, those that the file named by the macro VARIANTS lists.
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/decode.h"
#include "pack/mma64.h"

namespace {

using namespace swordfish;
using namespace swordfish::mma;
using ptx::Half;

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t e_ = (call);                                                      \
    if (e_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

// A call of the driver, whose library this program does not link.
#define DRIVER(name, ...)                                                                               \
  do {                                                                                                  \
    void* f_ = nullptr;                                                                                 \
    cudaDriverEntryPointQueryResult found_;                                                             \
    CHECK(cudaGetDriverEntryPointByVersion(#name, &f_, CUDART_VERSION, cudaEnableDefault, &found_));    \
    const CUresult r_ = f_ ? reinterpret_cast<decltype(&name)>(f_)(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND; \
    if (r_ != CUDA_SUCCESS) {                                                                           \
      std::printf("%s:%d %s: error %d\n", __FILE__, __LINE__, #name, static_cast<int>(r_));             \
      std::exit(1);                                                                                     \
    }                                                                                                   \
  } while (0)

__global__ void see_sm(int* seen) {
  int id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  seen[id] = 1;
  const long long start = clock64();
  while (clock64() - start < 20000) {
  }
}
// A stream whose kernels run on so many SMs, those of a green context; 0: on all. Checks it by a graph.
cudaStream_t stream_on(int sms) {
  cudaStream_t stream;
  if (sms == 0) {
    CHECK(cudaStreamCreate(&stream));
    return stream;
  }
  CHECK(cudaFree(nullptr));
  CUdevResource all, part;
  CUdevResourceDesc desc;
  CUgreenCtx context;
  unsigned groups = 1;
  DRIVER(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
  DRIVER(cuDevSmResourceSplitByCount, &part, &groups, &all, nullptr, 0, static_cast<unsigned>(sms));
  DRIVER(cuDevResourceGenerateDesc, &desc, &part, 1);
  DRIVER(cuGreenCtxCreate, &context, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
  DRIVER(cuGreenCtxStreamCreate, &stream, context, CU_STREAM_NON_BLOCKING, 0);
  int* seen;
  CHECK(cudaMalloc(&seen, 1024 * sizeof(int)));
  CHECK(cudaMemset(seen, 0, 1024 * sizeof(int)));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  see_sm<<<2000, 1024, 0, stream>>>(seen);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<int> host(1024);
  CHECK(cudaMemcpy(host.data(), seen, host.size() * sizeof(int), cudaMemcpyDeviceToHost));
  const auto count = std::count(host.begin(), host.end(), 1);
  std::printf("a green context of %d SMs\n", static_cast<int>(count));
  if (count != sms) std::exit(1);
  return stream;
}

__device__ std::uint32_t mix(std::uint64_t v) {
  v ^= v >> 33;
  v *= 0xff51afd7ed558ccdull;
  v ^= v >> 33;
  v *= 0xc4ceb9fe1a85ec53ull;
  v ^= v >> 33;
  return static_cast<std::uint32_t>(v);
}
__global__ void fill_words(std::uint32_t* p, std::int64_t n, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * blockDim.x)
    p[i] = mix(i + seed * 0x9e3779b97f4a7c15ull);
}
__device__ float plane_float(PlaneType type, const void* p, std::int64_t i) {
  switch (type) {
    case PlaneType::f32: return static_cast<const float*>(p)[i];
    case PlaneType::bf16: return __uint_as_float(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(p)[i]) << 16);
    case PlaneType::f16: return ptx::to_f32<Half::f16>(static_cast<const std::uint16_t*>(p)[i], 0);
    case PlaneType::i16: return static_cast<const std::int16_t*>(p)[i];
    default: break;
  }
  const int b = static_cast<const std::uint8_t*>(p)[i];
  if (type == PlaneType::u8) return b;
  if (type == PlaneType::e8m0) return exp2f(b - 127.0f);
  const float m = b & 7;
  const int e = b >> 3 & 15;
  const float v = e ? exp2f(e - 7.0f) * (1 + m / 8) : m / 512;
  return b & 128 ? -v : v;
}
// Random positive scales (0.5 … 1.5, or the type's own small range), zeros 0..15 (int8: 0..255), offsets −1 … 1.
__global__ void fill_plane(PlaneType type, void* p, std::int64_t n, std::uint64_t seed, int kind, int zero_range,
                           int e8m0_from = 118) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * blockDim.x) {
    const std::uint32_t r = mix(i + seed * 0x9e3779b97f4a7c15ull);
    float f = 0.5f + (r >> 8) * 0x1p-24f;
    if (kind == 1) f = r % zero_range;
    if (kind == 2) f = 2 * f - 2;
    switch (type) {
      case PlaneType::f32: static_cast<float*>(p)[i] = f; break;
      case PlaneType::bf16: static_cast<std::uint16_t*>(p)[i] = ptx::cvt_x2<Half::bf16>(f, f); break;
      case PlaneType::f16: static_cast<std::uint16_t*>(p)[i] = ptx::cvt_x2<Half::f16>(f, f); break;
      case PlaneType::i16: static_cast<std::int16_t*>(p)[i] = f; break;
      case PlaneType::u8: static_cast<std::uint8_t*>(p)[i] = f; break;
      case PlaneType::e8m0: static_cast<std::uint8_t*>(p)[i] = e8m0_from + r % 9; break;
      case PlaneType::e4m3: static_cast<std::uint8_t*>(p)[i] = r % 0x7f; break;
    }
  }
}
__device__ float normal(std::uint32_t a, std::uint32_t b) {
  return sqrtf(-2 * logf((a + 1.0f) * 0x1p-32f)) * cospif(2 * b * 0x1p-32f);
}
// mode 0: N(0,1); 1: mean 100; 2: one channel of 1000 σ; 3: small integers; 4: one-hot.
__global__ void fill_x(std::uint16_t* p, int m, int k, int packed_k, std::int64_t ld, int mode, bool bf16, std::uint64_t seed) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i >= m * ld) return;
  const int c = static_cast<int>(i % ld);
  float f = normal(mix(2 * i + seed), mix(2 * i + 1 + seed));
  if (mode == 1) f += 100;
  if (mode == 2 && c == k / 3) f *= 1000;
  if (mode == 3) f = static_cast<int>(mix(i + seed) % 5) - 2;
  if (mode == 4) f = c == static_cast<int>(mix(i / ld + seed) % k);
  if (c >= k) f = 0;                                  // as the prep kernel leaves it
  if (c >= packed_k) f = __int_as_float(0x7fc00000);  // the gap between rows must never be read
  p[i] = bf16 ? ptx::cvt_x2<Half::bf16>(f, f) : ptx::cvt_x2<Half::f16>(f, f);
}

struct Reference {
  double* exact;    // [m, n]
  double* rounded;  // weights rounded to bf16 first (dequantize + GEMM)
};
// One warp an output column, fp64.
__global__ void reference(DecodeArgs a, Weights weights, bool bf16, int slices, int k_total, Reference out, int n_total) {
  const int n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n >= n_total) return;
  int p = 0;
  while (p + 1 < a.parts && a.part[p + 1].n0 <= n) ++p;
  const int row = n - a.part[p].n0, nb = a.part[p].block0 + row / 64, ni = row % 64;
  const int bits = weights == Weights::int8 ? 8 : 4, bk = 16 * slices;
  for (int m0 = 0; m0 < a.m; m0 += 8) {
    double sum[8] = {}, sum16[8] = {};
    for (int k = lane; k < k_total; k += 32) {
      const auto* block =
          reinterpret_cast<const std::uint8_t*>(a.codes) + (static_cast<std::int64_t>(nb) * a.k_blocks + k / bk) * 2048;
      const int q = mma64::code_at(block, bits, ni, k % bk);
      int r = a.row_of_slice ? a.row_of_slice[k / 16] : a.group_shift < 31 ? (k / 16) >> a.group_shift : 0;
      r = min(r, a.rows - 1);
      const std::int64_t at = (static_cast<std::int64_t>(nb) * a.rows + r) * 64 + ni;
      const double s = plane_float(a.scale_type, a.scales, at);
      double w;
      if (bits == 8 || weights == Weights::int4) {
        const double z = a.extra_kind == Extra::zeros ? plane_float(a.extra_type, a.extra, at) : a.zero;
        w = s * (q - z);
        if (a.extra_kind == Extra::offsets) w += plane_float(a.extra_type, a.extra, at);
      } else {
        const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        w = s * (q & 8 ? -e2m1[q & 7] : e2m1[q & 7]);
      }
      const float wf = static_cast<float>(w);
      const double w16 = bf16 ? ptx::to_f32<Half::bf16>(ptx::cvt_x2<Half::bf16>(wf, wf), 0)
                              : ptx::to_f32<Half::f16>(ptx::cvt_x2<Half::f16>(wf, wf), 0);
      for (int m = m0; m < min(m0 + 8, a.m); ++m) {
        const std::uint32_t xb = a.x[m * a.ldx + k];
        const double x = bf16 ? ptx::to_f32<Half::bf16>(xb, 0) : ptx::to_f32<Half::f16>(xb, 0);
        sum[m - m0] += x * w;
        sum16[m - m0] += x * w16;
      }
    }
    for (int m = m0; m < min(m0 + 8, a.m); ++m) {
      double v = sum[m - m0], v16 = sum16[m - m0];
      for (int o = 16; o; o /= 2) {
        v += __shfl_xor_sync(~0u, v, o);
        v16 += __shfl_xor_sync(~0u, v16, o);
      }
      const double b = a.bias ? a.bias[n] : 0;
      if (lane == 0) {
        out.exact[static_cast<std::int64_t>(m) * n_total + n] = a.part[p].alpha * v + b;
        out.rounded[static_cast<std::int64_t>(m) * n_total + n] = a.part[p].alpha * v16 + b;
      }
    }
  }
}

using Kernel = void (*)(DecodeArgs);
struct Variant {
  const char* name;
  Kernel kernel;
  Weights weights;
  Half half;
  int m8;
  Flush flush;
  int warps, stages, units, warp_bytes[3][4];  // by scale_shift and extra_shift + 1
};
template <Weights w, Half h, int m8, Flush f, int warps, int stages, int units>
Variant variant(const char* name) {
  using Shape = DecodeShape<w, m8, f, units>;
  Variant v{name, decode_kernel<w, h, m8, f, warps, stages, 1, units>, w, h, m8, f, warps, stages, units, {}};
  for (int s = 0; s < 3; ++s)
    for (int e = -1; e < 3; ++e) v.warp_bytes[s][e + 1] = stages * slot_bytes<Shape>(s, e) + Shape::converted_bytes;
  return v;
}

struct Layer {
  const char* name;
  int n, k;
};
const Layer layers[] = {{"l8_qkv", 6144, 4096},   {"l8_o", 4096, 4096},  {"l8_gate_up", 28672, 4096},  {"l8_down", 4096, 14336},
                        {"l70_qkv", 10240, 8192}, {"l70_o", 8192, 8192}, {"l70_gate_up", 57344, 8192}, {"l70_down", 8192, 28672}};

template <class T>
T* device(std::size_t count) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, std::max<std::size_t>(count * sizeof(T), 256)));
  return static_cast<T*>(p);
}
int shift_of(PlaneType t) {
  return t == PlaneType::f32 ? 2 : t == PlaneType::f16 || t == PlaneType::bf16 || t == PlaneType::i16 ? 1 : 0;
}

// One problem with its planes; `copies` weights lie behind each other.
struct Case {
  int n = 0, k = 0, group = 128, copies = 1;  // group 0: one row; −1: a random row of each slice
  PlaneType scale_type = PlaneType::bf16, extra_type = PlaneType::u8;
  Extra extra = Extra::none;
  bool bias = false;
  int split_part = 0;  // rows of a first part; 0: one part
};
struct Problem {
  DecodeArgs args{};
  std::int64_t code_bytes = 0, scale_bytes = 0, extra_bytes = 0;  // of a copy
  int n = 0;
  std::vector<void*> owned;
  ~Problem() {
    for (void* p : owned) cudaFree(p);
  }
};

void make(Problem& out, const Variant& v, const Case& c, std::uint64_t seed) {
  const int slices = v.weights == Weights::int8 ? 2 : 4;
  DecodeArgs& a = out.args;
  out.n = c.n;
  a.k_blocks = (c.k + 16 * slices - 1) / (16 * slices);
  a.steps = (a.k_blocks + v.units - 1) / v.units;
  const int total_slices = a.k_blocks * slices;
  if (c.split_part) {
    const int b0 = (c.split_part + 63) / 64;
    a.parts = 2;
    a.part[0] = {0, 0, c.split_part, v.half == Half::f16 ? 0x1.8p-11f : 0.75f};
    a.part[1] = {b0, c.split_part, c.n - c.split_part, v.half == Half::f16 ? 0x1.8p-10f : 1.5f};
    a.columns = b0 + (c.n - c.split_part + 63) / 64;
  } else {
    a.parts = 1;
    a.part[0] = {0, 0, c.n, v.half == Half::f16 ? 0x1p-10f : 1.0f};
    a.columns = (c.n + 63) / 64;
  }
  a.cluster = 1;
  a.grain = 1;
  a.group_shift = 31;
  a.rows = 1;
  if (c.group > 0) {
    a.group_shift = 0;
    while (16 << a.group_shift < c.group) ++a.group_shift;
    a.rows = (c.k + c.group - 1) / c.group;
  } else if (c.group < 0) {
    // −1: any order; else runs of a group's slices, as activation order packs them.
    const int run = c.group == -1 ? 0 : -c.group / 16;
    a.rows = run ? (total_slices + run - 1) / run : 5;
    std::vector<std::int32_t> rows(total_slices);
    for (int i = 0; i < total_slices; ++i) rows[i] = run ? i / run : (i * 7 + i / 3) % 5;
    auto* d = device<std::int32_t>(total_slices);
    CHECK(cudaMemcpy(d, rows.data(), 4 * rows.size(), cudaMemcpyHostToDevice));
    a.row_of_slice = d;
    out.owned.push_back(d);
  }
  const std::int64_t elements = std::int64_t{a.columns} * a.rows * 64;
  out.code_bytes = std::int64_t{a.columns} * a.k_blocks * 2048;
  out.scale_bytes = elements << shift_of(c.scale_type);
  out.extra_bytes = c.extra == Extra::none ? 0 : elements << shift_of(c.extra_type);
  auto* codes = device<std::uint32_t>(out.code_bytes / 4 * c.copies);
  fill_words<<<4096, 256>>>(codes, out.code_bytes / 4 * c.copies, seed);
  auto* scales = device<std::byte>(out.scale_bytes * c.copies);
  fill_plane<<<2048, 256>>>(c.scale_type, scales, elements * c.copies, seed + 1, 0, 1);
  out.owned.push_back(codes);
  out.owned.push_back(scales);
  a.codes = reinterpret_cast<const std::byte*>(codes);
  a.scales = scales;
  a.scale_type = c.scale_type;
  a.extra_kind = c.extra;
  a.extra_type = c.extra_type;
  if (c.extra != Extra::none) {
    auto* extra = device<std::byte>(out.extra_bytes * c.copies);
    fill_plane<<<2048, 256>>>(c.extra_type, extra, elements * c.copies, seed + 2, c.extra == Extra::zeros ? 1 : 2,
                              v.weights == Weights::int8 ? 256 : 16);
    out.owned.push_back(extra);
    a.extra = extra;
  }
  const bool int4 = v.weights == Weights::int4, int8 = v.weights == Weights::int8;
  const bool has_offset = c.extra == Extra::offsets;
  a.zero = has_offset ? 0.0f : int4 ? 8.0f : int8 ? 128.0f : 0.0f;
  if (c.bias) {
    auto* bias = device<float>(c.n);
    fill_plane<<<64, 256>>>(PlaneType::f32, bias, c.n, seed + 3, 0, 1);
    out.owned.push_back(bias);
    a.bias = bias;
  }
}

std::uint32_t smem_bytes(const Variant& v, const DecodeArgs& a) {
  const int extra = a.extra_kind == Extra::none ? -1 : shift_of(a.extra_type);
  return v.warps * v.warp_bytes[shift_of(a.scale_type)][extra + 1];
}

// The smallest cluster that shares whole columns; 0: none.
int cluster_of(const DecodeArgs& a, int ctas) {
  const std::int64_t steps = std::int64_t{a.columns} * a.steps;
  if (steps % ctas) return 0;
  for (int s : {2, 4, 8})
    if (ctas % s == 0 && a.columns % (ctas / s) == 0) return s;
  return 0;
}

// ctas < 0: clusters, as large as columns need.
void launch(const Variant& v, DecodeArgs a, int ctas, bool pdl, cudaStream_t stream) {
  ptx::LaunchShape shape;
  if (ctas < 0) {
    ctas = -ctas;
    a.cluster = cluster_of(a, ctas);
    shape.cluster_x = a.cluster;
    shape.dynamic_smem += (a.cluster - 1) * v.m8 * 2048;
  }
  const int steps = a.columns * a.steps;
  a.units_each = steps / ctas;
  a.units_more = steps % ctas;
  shape.grid_x = ctas;
  shape.threads = 32 * v.warps;
  shape.dynamic_smem = smem_bytes(v, a);
  shape.dependent = pdl;
  CHECK(ptx::launch(v.kernel, shape, stream, a));
}

float* pieces;
std::uint32_t* flags;
std::uint16_t* x_buffer;
std::byte* y_buffer;
double *ref_exact, *ref_rounded;

struct Errors {
  double kernel = 0, dequantized = 0, output = 0;  // relative Frobenius: ours, bf16 weights then one rounding, one rounding only
  bool bits_equal = true, nan = false;
};
double to_double(int y_type, const void* p, std::int64_t i) {
  if (y_type == 2) return static_cast<const float*>(p)[i];
  const std::uint16_t h = static_cast<const std::uint16_t*>(p)[i];
  if (y_type == 1) {
    const std::uint32_t u = std::uint32_t{h} << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
  const int e = h >> 10 & 31, m = h & 1023;
  const double v = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024.0 + m, e - 25) : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}
double round_to(int y_type, double v) {
  if (y_type == 2 || v == 0) return static_cast<float>(v);
  int e;
  std::frexp(v, &e);
  const int bits = y_type == 1 ? 8 : 11;
  if (y_type == 0) e = std::max(e, -13);
  return std::ldexp(std::nearbyint(std::ldexp(v, bits - e)), e - bits);
}

Errors compare(const Variant& v, const DecodeArgs& a, int n, int k) {
  const int warps = 8;
  reference<<<(n + warps - 1) / warps, 32 * warps>>>(a, v.weights, v.half == Half::bf16, v.weights == Weights::int8 ? 2 : 4, k,
                                                     {ref_exact, ref_rounded}, n);
  const std::int64_t count = std::int64_t{a.m} * n;
  std::vector<double> exact(count), rounded(count);
  std::vector<std::byte> y(a.m * a.ldy * (a.y_type == 2 ? 4 : 2));
  CHECK(cudaMemcpy(exact.data(), ref_exact, 8 * count, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(rounded.data(), ref_rounded, 8 * count, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(y.data(), y_buffer, y.size(), cudaMemcpyDeviceToHost));
  double e0 = 0, e1 = 0, e2 = 0, norm = 0;
  Errors out;
  for (int m = 0; m < a.m; ++m)
    for (int i = 0; i < n; ++i) {
      const double r = exact[std::int64_t{m} * n + i], got = to_double(a.y_type, y.data(), m * a.ldy + i);
      if (!(got == got)) out.nan = true;
      const double once = round_to(a.y_type, r), deq = round_to(a.y_type, rounded[std::int64_t{m} * n + i]);
      if (got != once) out.bits_equal = false;
      norm += r * r;
      e0 += (got - r) * (got - r);
      e1 += (deq - r) * (deq - r);
      e2 += (once - r) * (once - r);
    }
  out.kernel = std::sqrt(e0 / norm);
  out.dequantized = std::sqrt(e1 / norm);
  out.output = std::sqrt(e2 / norm);
  return out;
}

std::FILE* out_file;
double seconds() {
  static const auto t0 = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count();
}

std::vector<Variant> variants();

int failures = 0;
void check(const Variant& v, const Case& c, int m, int ctas, int mode, int y_type, bool pdl, const char* what) {
  Problem p;
  make(p, v, c, 1234 + m);
  DecodeArgs& a = p.args;
  a.m = m;
  a.x = x_buffer;
  const int packed_k = a.k_blocks * (v.weights == Weights::int8 ? 32 : 64);
  a.ldx = packed_k + 8;
  a.ldy = c.n + 2;
  a.y = y_buffer;
  a.y_type = y_type;
  a.y_pairs = c.split_part % 2 == 0;
  a.pieces = pieces;
  a.flags = flags;
  fill_x<<<(m * a.ldx + 255) / 256, 256>>>(x_buffer, m, c.k, packed_k, a.ldx, mode, v.half == Half::bf16, 99 + m + mode);
  CHECK(cudaMemset(y_buffer, 0xff, m * a.ldy * 4));
  ctas = static_cast<int>(std::min<std::int64_t>(ctas, std::int64_t{a.columns} * a.steps));
  if (ctas < 0 && !cluster_of(a, -ctas)) return;
  if (smem_bytes(v, a) > 232448) return;
  launch(v, a, ctas, pdl, nullptr);
  CHECK(cudaDeviceSynchronize());
  const Errors e = compare(v, a, c.n, c.k);
  std::vector<std::byte> y0(m * a.ldy * (y_type == 2 ? 4 : 2)), y1 = y0;
  CHECK(cudaMemcpy(y0.data(), y_buffer, y0.size(), cudaMemcpyDeviceToHost));
  bool same = true;
  for (int i = 0; i < 10; ++i) {
    launch(v, a, ctas, pdl, nullptr);
    CHECK(cudaMemcpy(y1.data(), y_buffer, y1.size(), cudaMemcpyDeviceToHost));
    same = same && y0 == y1;
  }
  const bool exact = mode >= 3;
  const bool ok = !e.nan && same && (exact && y_type != 2 ? e.bits_equal : e.kernel <= 1.1 * e.output + 2e-6);
  if (!ok) ++failures;
  if (!ok || std::getenv("VERBOSE"))
    std::printf("%s %s %s n=%d k=%d g=%d m=%d ctas=%d x=%d y=%d err %.6f dequantized %.6f output %.6f bits %d same %d nan %d\n",
                ok ? "ok  " : "FAIL", v.name, what, c.n, c.k, c.group, m, ctas, mode, y_type, e.kernel, e.dequantized, e.output,
                e.bits_equal, same, e.nan);
}

void check_all(const char* only) {
  int count = 0;
  for (const Variant& v : variants()) {
    if (only && !std::strstr(v.name, only)) continue;
    std::vector<Case> cases;
    const auto add = [&](int n, int k, int group, PlaneType s, Extra e = Extra::none, PlaneType et = PlaneType::u8,
                         bool bias = false, int split = 0) {
      Case c;
      c.n = n, c.k = k, c.group = group, c.scale_type = s, c.extra = e, c.extra_type = et, c.bias = bias, c.split_part = split;
      cases.push_back(c);
    };
    if (v.weights == Weights::fp4_e4m3) {
      add(512, 1024, 16, PlaneType::e4m3);
      add(200, 1000, 16, PlaneType::e4m3, Extra::none, PlaneType::u8, true, 72);
      add(384, 512, 64, PlaneType::e4m3);
    } else if (v.weights == Weights::fp4) {
      add(512, 1024, 32, PlaneType::e8m0);
      add(200, 1000, 32, PlaneType::e8m0, Extra::none, PlaneType::u8, true, 72);
      if (v.flush == Flush::slices) add(384, 512, -1, PlaneType::f32);
    } else if (v.flush == Flush::pairs) {
      add(256, 1024, 32, PlaneType::f16, Extra::offsets, PlaneType::f16);
      add(256, 992, 32, PlaneType::f16, Extra::zeros, PlaneType::u8);
      add(256, 1008, 32, PlaneType::f32);
    } else if (v.flush == Flush::slices) {
      for (int g : {16, 32, -1}) add(256, 1008, g, PlaneType::f16, Extra::offsets, PlaneType::f16);
      for (int g : {16, 32, -1}) add(256, 1008, g, PlaneType::bf16, Extra::zeros, PlaneType::i16);
      for (int g : {16, 32, -1}) add(256, 1008, g, PlaneType::bf16);
    } else {
      for (int g : {128, 64, 0}) add(512, 1024, g, PlaneType::bf16);
      add(200, 1000, 128, PlaneType::f16, Extra::none, PlaneType::u8, true, 72);
      add(200, 1001, 256, PlaneType::f32, Extra::none, PlaneType::u8, true, 71);
      for (int g : {128, 64, 0}) add(512, 1024, g, PlaneType::bf16, Extra::zeros);
      add(200, 1000, 128, PlaneType::f16, Extra::zeros, PlaneType::u8, true, 72);
      add(200, 1000, 256, PlaneType::f32, Extra::offsets, PlaneType::f32, true, 72);
      add(4096, 4096, 128, PlaneType::bf16);
    }
    for (const Case& c : cases)
      for (int m : v.m8 == 1 ? std::vector<int>{1, 3, 8} : std::vector<int>{1, 8 * v.m8 - 7, 8 * v.m8})
        for (int ctas : {1, 5, 37, 128, 132, -2, -16, -128}) {
          const int y_type = v.half == Half::bf16 ? 1 : 0;
          check(v, c, m, ctas, 0, y_type, ctas & 1, "gaussian");
          ++count;
          if (ctas == 37 || ctas == -16) {
            check(v, c, m, ctas, 0, 2, true, "f32");
            check(v, c, m, ctas, 1, y_type, true, "mean");
            check(v, c, m, ctas, 2, y_type, true, "channel");
            if (!c.bias && c.extra != Extra::offsets) check(v, c, m, ctas, 4, y_type, true, "onehot");
          }
        }
  }
  std::printf("checked %d cases in %.1f s, %d failures\n", count, seconds(), failures);
}

void time_all(const std::string& shapes, const std::vector<int>& ms, const char* only, double limit) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaEvent_t t0, t1;
  CHECK(cudaEventCreate(&t0));
  CHECK(cudaEventCreate(&t1));
  for (const Layer& layer : layers) {
    if (!shapes.empty() && ("," + shapes + ",").find(std::string(",") + layer.name + ",") == std::string::npos) continue;
    for (const Variant& v : variants()) {
      if (only && !std::strstr(v.name, only)) continue;
      Case c;
      c.n = layer.n;
      c.k = layer.k;
      if (v.weights == Weights::fp4_e4m3) c.group = 16, c.scale_type = PlaneType::e4m3;
      if (v.weights == Weights::fp4_e8m0) c.group = 32, c.scale_type = PlaneType::e8m0;
      if (v.weights == Weights::fp4) c.group = 32, c.scale_type = PlaneType::e8m0;
      if (std::strstr(v.name, "zeros")) c.extra = Extra::zeros;
      if (std::strstr(v.name, "act")) c.group = -128;
      if (std::strstr(v.name, "g32")) c.group = 32;
      if (v.half == Half::f16 && v.weights != Weights::fp4_e4m3 && v.weights != Weights::fp4) c.scale_type = PlaneType::f16;
      const double bytes = double{1} * c.n * c.k * (v.weights == Weights::int8 ? 1 : 0.5);
      c.copies = static_cast<int>(std::ceil(250e6 / bytes)) + 1;
      Problem p;
      make(p, v, c, 7);
      for (int m : ms) {
        if (m > 8 * v.m8 || (m <= 8 && v.m8 > 1)) continue;
        DecodeArgs& a = p.args;
        a.m = m;
        a.x = x_buffer;
        a.ldx = c.k;
        a.y = y_buffer;
        a.ldy = c.n;
        a.y_type = v.half == Half::bf16;
        a.y_pairs = 1;
        a.pieces = pieces;
        a.flags = flags;
        fill_x<<<(m * a.ldx + 255) / 256, 256>>>(x_buffer, m, c.k, c.k, a.ldx, 0, v.half == Half::bf16, 5);
        std::vector<int> grids;
        if (v.warps == 8 && v.m8 <= 2) {
          grids = {256};
          if (c.n < 10000) grids = {-256};
          if (c.n == 28672) grids = {256, 224};
          if (c.n == 6144) grids = {-256, 192};
        } else {
          grids = {128};
          if (c.n == 4096) grids = {-128};
          if (c.n == 6144) grids = {96};
        }
        for (int ctas : grids)
          if (ctas > 0 || cluster_of(a, -ctas))
            for (int pdl = 1; pdl >= 0; --pdl) {
              if (seconds() > limit) {
                std::printf("time limit\n");
                return;
              }
              CHECK(cudaMemset(y_buffer, 0xff, std::size_t{2} * m * c.n));
              launch(v, a, ctas, pdl, nullptr);
              CHECK(cudaDeviceSynchronize());
              Errors e;
              const bool checked = pdl && layer.n < 12000;
              if (checked) e = compare(v, a, c.n, c.k);
              const int calls = std::max(32, c.copies);
              cudaGraph_t graph;
              cudaGraphExec_t exec;
              CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
              for (int i = 0; i < calls; ++i) {
                DecodeArgs b = a;
                b.codes += p.code_bytes * (i % c.copies);
                b.scales += p.scale_bytes * (i % c.copies);
                if (b.extra) b.extra += p.extra_bytes * (i % c.copies);
                launch(v, b, ctas, pdl, stream);
              }
              CHECK(cudaStreamEndCapture(stream, &graph));
              CHECK(cudaGraphInstantiate(&exec, graph, 0));
              CHECK(cudaGraphLaunch(exec, stream));
              CHECK(cudaStreamSynchronize(stream));
              usleep(1000);
              std::vector<float> us;
              const int replays = layer.n > 20000 ? 15 : 25;
              for (int i = 0; i < replays; ++i) {
                CHECK(cudaEventRecord(t0, stream));
                CHECK(cudaGraphLaunch(exec, stream));
                CHECK(cudaEventRecord(t1, stream));
                CHECK(cudaStreamSynchronize(stream));
                float ms_taken;
                CHECK(cudaEventElapsedTime(&ms_taken, t0, t1));
                us.push_back(1000 * ms_taken / calls);
              }
              std::sort(us.begin(), us.end());
              CHECK(cudaGraphExecDestroy(exec));
              CHECK(cudaGraphDestroy(graph));
              const double median = us[us.size() / 2];
              std::fprintf(
                  out_file,
                  "{\"layer\":\"%s\",\"n\":%d,\"k\":%d,\"m\":%d,\"kernel\":\"%s\",\"group\":%d,\"ctas\":%d,\"pdl\":%d,\"us\":%.2f,"
                  "\"us_p05\":%.2f,\"us_p95\":%.2f,\"rel_err\":%.6f,\"dequantized_err\":%.6f}\n",
                  layer.name, c.n, c.k, m, v.name, c.group, ctas, pdl, median, us[us.size() / 20], us[us.size() * 19 / 20],
                  e.kernel, e.dequantized);
              std::printf("%-11s m=%-2d %-14s ctas %3d pdl %d  %6.2f us (%.2f..%.2f)", layer.name, m, v.name, ctas, pdl, median,
                          us.front(), us[us.size() * 19 / 20]);
              if (checked) std::printf("  err %.5f", e.kernel);
              std::printf("\n");
            }
      }
    }
    std::fflush(stdout);
    std::fflush(out_file);
  }
}

std::vector<Variant> variants() {
  return {
#ifdef VARIANTS
#include VARIANTS
#endif
  };
}

// --- through plan and launch
// ------------------------------------------------------------------------------------------------------
DType dtype_of(PlaneType t) {
  constexpr DType types[] = {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e8m0, DType::u8, DType::i16};
  return types[static_cast<int>(t)];
}
Gpu gpu_of(int sms) {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  return {sms ? sms : prop.multiProcessorCount, 10 * prop.major + prop.minor,
          static_cast<std::int64_t>(prop.sharedMemPerBlockOptin), static_cast<std::int64_t>(prop.sharedMemPerMultiprocessor)};
}
struct Packed {
  PackedView view;
  std::vector<PackedPart> parts;
};
Packed packed(const Problem& p, const Case& c, Weights weights) {
  const DecodeArgs& a = p.args;
  Packed out;
  PackedView& v = out.view;
  v.code = weights == Weights::int8 ? CodeType::int8 : weights == Weights::int4 ? CodeType::int4 : CodeType::fp4;
  v.n = c.n, v.k = c.k, v.n_blocks = a.columns, v.k_blocks = a.k_blocks, v.rows = a.rows;
  v.group_size = c.group > 0 && a.rows > 1 ? c.group : v.packed_k();
  v.zero = static_cast<int>(a.zero);
  v.scale_type = dtype_of(c.scale_type);
  v.codes = a.codes, v.scales = a.scales;
  if (c.extra == Extra::zeros) v.zeros = a.extra, v.zero_type = dtype_of(c.extra_type);
  if (c.extra == Extra::offsets) v.offsets = a.extra, v.offset_type = dtype_of(c.extra_type);
  v.row_of_slice = a.row_of_slice;
  for (int i = 0; i < a.parts; ++i) {
    PackedPart part;
    part.block0 = a.part[i].block0, part.n0 = a.part[i].n0, part.n = a.part[i].n, part.global.value = a.part[i].alpha;
    out.parts.push_back(part);
  }
  return out;
}

constexpr int kMostRows = 256;
std::byte* workspace;
constexpr std::size_t workspace_size = std::size_t{64} << 20;

void check_plan(const Case& c, Weights weights, Half half, int m, int sms, int misalign, int y_type, bool gathered) {
  Variant v{"plan", nullptr, weights, half, 1, Flush::units, 16, 3, 1, {}};
  Problem p;
  make(p, v, c, 77 + m + sms);
  DecodeArgs& a = p.args;
  Packed w = packed(p, c, weights);
  w.view.parts = w.parts.data();
  w.view.n_parts = static_cast<std::int64_t>(w.parts.size());
  const int packed_k = static_cast<int>(w.view.packed_k());
  const std::int64_t ldx = c.k + misalign;
  fill_x<<<(m * ldx + 255) / 256, 256>>>(x_buffer + misalign, m, c.k, c.k, ldx, 0, half == Half::bf16, 9 + m);
  std::vector<std::uint16_t> raw(m * ldx), x(m * packed_k, 0);
  CHECK(cudaMemcpy(raw.data(), x_buffer + misalign, 2 * raw.size(), cudaMemcpyDeviceToHost));
  std::vector<std::int32_t> gather(packed_k, -1);
  for (int k = 0; k < c.k; ++k) gather[k] = gathered ? static_cast<int>((std::int64_t{k} * 7919 + 13) % c.k) : k;
  for (int i = 0; i < m; ++i)
    for (int k = 0; k < packed_k; ++k)
      if (gather[k] >= 0) x[i * packed_k + k] = raw[i * ldx + gather[k]];
  auto* x_packed = device<std::uint16_t>(x.size());
  CHECK(cudaMemcpy(x_packed, x.data(), 2 * x.size(), cudaMemcpyHostToDevice));
  p.owned.push_back(x_packed);
  if (gathered) {
    auto* g = device<std::int32_t>(packed_k);
    CHECK(cudaMemcpy(g, gather.data(), 4 * gather.size(), cudaMemcpyHostToDevice));
    p.owned.push_back(g);
    w.view.gather = g;
  }
  const DType x_type = half == Half::bf16 ? DType::bf16 : DType::f16;
  const Gpu gpu = gpu_of(sms);
  const std::string why = decode_refuses(w.view, x_type, gpu);
  const DecodePlan plan = plan_decode(w.view, m, x_type, gpu);
  DecodeCall call;
  call.x = x_buffer + misalign, call.ldx = ldx, call.m = m;
  call.y = y_buffer, call.ldy = c.n + misalign;
  call.y_type = y_type == 2 ? DType::f32 : y_type == 1 ? DType::bf16 : DType::f16;
  call.bias = a.bias, call.workspace = workspace, call.workspace_size = workspace_size;
  CHECK(cudaMemset(workspace, 0xff, workspace_size));
  CHECK(cudaMemset(y_buffer, 0xff, m * call.ldy * 4));
  Status s = init_decode_workspace(plan, workspace, nullptr);
  for (int i = 0; i < 3 && s.ok(); ++i) s = launch_decode(w.view, plan, call);
  CHECK(cudaDeviceSynchronize());
  a.x = x_packed, a.ldx = packed_k, a.ldy = call.ldy, a.m = m, a.y_type = y_type;
  v.half = half;
  const Errors e = compare(v, a, c.n, packed_k);
  const bool ok = why.empty() && s.ok() && !e.nan && e.kernel <= 1.1 * (plan.m16 ? e.dequantized : e.output) + 2e-6;
  if (!ok) ++failures;
  if (!ok || std::getenv("VERBOSE"))
    std::printf(
        "%s weights %d flush %d m8 %d m16 %d warps %d ctas %d cluster %d n=%d k=%d g=%d m=%d sms=%d err %.6f output %.6f nan %d %s "
        "%s\n",
        ok ? "ok  " : "FAIL", static_cast<int>(weights), static_cast<int>(plan.flush), plan.m8, plan.m16, plan.warps, plan.ctas,
        plan.cluster, c.n, c.k, c.group, m, sms, e.kernel, e.output, e.nan, why.c_str(), s.message().c_str());
}

// tiny: a few products, for racecheck, which takes its time.
void check_plans(bool quick, bool tiny) {
  int count = 0;
  for (const Weights w : {Weights::int4, Weights::int8, Weights::fp4, Weights::fp4_e4m3})
    for (const Half half : {Half::bf16, Half::f16}) {
      const bool integer = w == Weights::int4 || w == Weights::int8;
      std::vector<Case> cases;
      for (const int group : {16, 32, 64, 128, 0, -1})
        for (const auto& [n, k] : {std::pair{256, 1024}, {200, 1000}, {4096, 512}, {6144, 256}, {1088, 2048}}) {
          if (tiny && (n != 200 || half == Half::f16 || (group != 16 && group != 128))) continue;
          Case c;
          c.n = n, c.k = tiny ? 264 : k, c.group = group;
          c.scale_type = w == Weights::fp4_e4m3 ? PlaneType::e4m3
                         : w == Weights::fp4    ? PlaneType::e8m0
                         : group == 64          ? PlaneType::f32
                         : half == Half::f16    ? PlaneType::f16
                                                : PlaneType::bf16;
          if (integer && group == 32) c.extra = Extra::offsets, c.extra_type = PlaneType::f16;
          if (integer && group == 128) c.extra = Extra::zeros;
          if (n == 200) c.split_part = 72, c.bias = true;
          cases.push_back(c);
        }
      for (const Case& c : cases)
        for (const int m : {1, 8, 13, 16, 17, 32, 45, 61, 130}) {
          if (quick && (c.n > 300 || m == 8 || m == 16 || m == 32 || m > 64)) continue;
          if (m > 100 && c.n > 4100) continue;
          if (tiny) {
            if (m == 13 || m == 45 || m == 61) check_plan(c, w, half, m, 7, 3, 1, c.group == 16), ++count;
            continue;
          }
          const int y_type = half == Half::bf16 ? 1 : 0;
          check_plan(c, w, half, m, 0, 0, y_type, false);
          ++count;
          if (c.n < 300) {
            check_plan(c, w, half, m, 24, 3, m & 1 ? 2 : y_type, c.group == -1);
            check_plan(c, w, half, m, 7, 8, y_type, true);
            count += 2;
          }
        }
    }
  std::printf("checked %d plans in %.1f s, %d failures\n", count, seconds(), failures);
}

struct Format {
  const char* name;
  Weights weights;
  Half half;
  int group;
  PlaneType scale;
  Extra extra = Extra::none;
  bool gathered = false;  // activation order
};
// int4_act is what packing makes of GPTQ's groups of 128; int4_act_rows has a scale row for each slice, as where groups are cut.
const Format formats[] = {{"int4", Weights::int4, Half::bf16, 128, PlaneType::bf16},
                          {"int4_zeros", Weights::int4, Half::bf16, 128, PlaneType::bf16, Extra::zeros},
                          {"int4_f16", Weights::int4, Half::f16, 128, PlaneType::f16},
                          {"int4_act", Weights::int4, Half::bf16, 128, PlaneType::bf16, Extra::none, true},
                          {"int4_act_rows", Weights::int4, Half::bf16, -128, PlaneType::bf16, Extra::none, true},
                          {"int4_g32", Weights::int4, Half::bf16, 32, PlaneType::bf16},
                          {"int8", Weights::int8, Half::bf16, 128, PlaneType::bf16},
                          {"mxfp4", Weights::fp4, Half::bf16, 32, PlaneType::e8m0},
                          {"nvfp4", Weights::fp4_e4m3, Half::bf16, 16, PlaneType::e4m3}};

struct Forced {
  int sms = 0;  // 0: all
  DecodeChoice choice;
  int whole = -1;  // 0: columns are split evenly, 1: never
};
void time_plans(const std::string& shapes, const std::vector<int>& ms, const char* only, double limit, const Forced& forced) {
  const cudaStream_t stream = stream_on(forced.sms);
  cudaEvent_t t0, t1;
  CHECK(cudaEventCreate(&t0));
  CHECK(cudaEventCreate(&t1));
  const Gpu gpu = gpu_of(forced.sms);
  for (const Layer& layer : layers) {
    if (!shapes.empty() && ("," + shapes + ",").find(std::string(",") + layer.name + ",") == std::string::npos) continue;
    for (const Format& f : formats) {
      if (only && std::strcmp(f.name, only) != 0) continue;
      Case c;
      c.n = layer.n, c.k = layer.k, c.group = f.group, c.scale_type = f.scale, c.extra = f.extra;
      const double bytes = double{1} * c.n * c.k * (f.weights == Weights::int8 ? 1 : 0.5);
      c.copies = static_cast<int>(std::ceil(250e6 / bytes)) + 1;
      Variant v{"plan", nullptr, f.weights, f.half, 1, Flush::units, 16, 3, 1, {}};
      Problem p;
      make(p, v, c, 7);
      Packed w = packed(p, c, f.weights);
      w.view.parts = w.parts.data();
      w.view.n_parts = 1;
      std::vector<std::int32_t> identity(c.k);
      for (int k = 0; k < c.k; ++k) identity[k] = k ^ 1;
      if (f.gathered) {
        auto* g = device<std::int32_t>(c.k);
        CHECK(cudaMemcpy(g, identity.data(), 4 * identity.size(), cudaMemcpyHostToDevice));
        p.owned.push_back(g);
        w.view.gather = g;
      }
      for (const int m : ms) {
        if (seconds() > limit) return;
        DecodePlan plan = plan_decode(w.view, m, f.half == Half::bf16 ? DType::bf16 : DType::f16, gpu, forced.choice);
        if (forced.whole >= 0) {
          plan.whole = forced.whole;
          plan.ctas = gpu.sms;
          plan.cluster = 1;
        }
        fill_x<<<(std::int64_t{m} * c.k + 255) / 256, 256>>>(x_buffer, m, c.k, c.k, c.k, 0, f.half == Half::bf16, 5);
        DecodeCall call;
        call.x = x_buffer, call.ldx = c.k, call.m = m, call.y = y_buffer, call.ldy = c.n;
        call.y_type = f.half == Half::bf16 ? DType::bf16 : DType::f16;
        call.workspace = workspace, call.workspace_size = workspace_size, call.stream = stream;
        CHECK(cudaMemset(y_buffer, 0xff, std::size_t{2} * m * c.n));
        Status s = init_decode_workspace(plan, workspace, stream);
        if (s.ok()) s = launch_decode(w.view, plan, call);
        if (!s.ok()) {
          std::printf("%s\n", s.message().c_str());
          ++failures;
          continue;
        }
        CHECK(cudaStreamSynchronize(stream));
        Errors e;
        DecodeArgs& a = p.args;
        a.x = x_buffer, a.ldx = c.k, a.ldy = c.n, a.m = m, a.y_type = f.half == Half::bf16;
        if (!f.gathered) e = compare(v, a, c.n, c.k);
        for (const bool pdl : {true, false}) {
          const int calls = std::max(32, c.copies);
          call.dependent = pdl;
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
          for (int i = 0; i < calls; ++i) {
            PackedView u = w.view;
            const int copy = i % c.copies;
            u.codes = static_cast<const std::byte*>(u.codes) + p.code_bytes * copy;
            u.scales = static_cast<const std::byte*>(u.scales) + p.scale_bytes * copy;
            if (u.zeros) u.zeros = static_cast<const std::byte*>(u.zeros) + p.extra_bytes * copy;
            (void)launch_decode(u, plan, call).ok();
          }
          CHECK(cudaStreamEndCapture(stream, &graph));
          CHECK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK(cudaGraphLaunch(exec, stream));
          CHECK(cudaStreamSynchronize(stream));
          usleep(10000);
          std::vector<float> us;
          for (int i = 0; i < (layer.n > 20000 ? 21 : 31); ++i) {
            CHECK(cudaEventRecord(t0, stream));
            CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaEventRecord(t1, stream));
            CHECK(cudaStreamSynchronize(stream));
            float taken;
            CHECK(cudaEventElapsedTime(&taken, t0, t1));
            us.push_back(1000 * taken / calls);
          }
          std::sort(us.begin(), us.end());
          CHECK(cudaGraphExecDestroy(exec));
          CHECK(cudaGraphDestroy(graph));
          const double median = us[us.size() / 2];
          const bool ok = f.gathered || (!e.nan && e.kernel <= 1.1 * e.dequantized);
          std::fprintf(out_file,
                       "{\"layer\":\"%s\",\"n\":%d,\"k\":%d,\"m\":%d,\"weight\":\"%s\",\"group\":%d,\"act\":\"%s\","
                       "\"kernel\":\"sm80_mma/%s\",\"tile_m\":%d,\"warps\":%d,\"ctas\":%d,\"cluster\":%d,\"pdl\":%d,"
                       "\"sms\":%d,\"whole\":%d,\"us\":%.2f,\"us_p05\":%.2f,\"us_p95\":%.2f,\"rel_err\":%.6f,\"dequantized_rel_"
                       "err\":%.6f,\"bound_ok\":%s}\n",
                       layer.name, c.n, c.k, m, f.name, c.group < 0 ? -c.group : c.group, f.half == Half::bf16 ? "bf16" : "f16",
                       plan.m16 ? "middle" : "decode", plan.tile_m(), plan.warps, plan.ctas, plan.cluster, pdl, gpu.sms, plan.whole,
                       median, us[us.size() / 20], us[us.size() * 19 / 20], e.kernel, e.dequantized, ok ? "true" : "false");
          std::printf("%-11s m=%-3d %-10s w%-2d ctas %3d cl %d pdl %d %7.2f us (%.2f..%.2f) err %.5f / %.5f%s\n", layer.name, m,
                      f.name, plan.warps, plan.ctas, plan.cluster, pdl, median, us.front(), us[us.size() * 19 / 20], e.kernel,
                      e.dequantized, ok ? "" : " WRONG");
          if (!ok) ++failures;
        }
      }
    }
    std::fflush(stdout);
    std::fflush(out_file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool do_check = false, do_time = false, do_plan = false, quick = false, tiny = false;
  std::string shapes, out = "/dev/null";
  std::vector<int> ms = {1, 8, 16};
  const char* only = nullptr;
  Forced forced;
  double limit = 150;
  for (int i = 1; i < argc; ++i) {
    const std::string s = argv[i];
    if (s == "--check")
      do_check = true;
    else if (s == "--time")
      do_time = true;
    else if (s == "--plan")
      do_plan = true;
    else if (s == "--quick")
      quick = true;
    else if (s == "--tiny")
      tiny = true;
    else if (i + 1 < argc && s == "--shapes")
      shapes = argv[++i];
    else if (i + 1 < argc && s == "--sms")
      forced.sms = std::atoi(argv[++i]);
    else if (i + 1 < argc && s == "--whole")
      forced.whole = std::atoi(argv[++i]);
    else if (i + 1 < argc && s == "--form")
      forced.choice.kernel = argv[++i][0] == 'd' ? DecodeChoice::decode : DecodeChoice::best;
    else if (i + 1 < argc && s == "--columns")
      forced.choice.columns = std::atoi(argv[++i]);
    else if (i + 1 < argc && s == "--m16")
      forced.choice.m16 = std::atoi(argv[++i]);
    else if (i + 1 < argc && s == "--out")
      out = argv[++i];
    else if (i + 1 < argc && s == "--only")
      only = argv[++i];
    else if (i + 1 < argc && s == "--seconds")
      limit = std::atof(argv[++i]);
    else if (i + 1 < argc && s == "--ms") {
      ms.clear();
      for (char* t = std::strtok(argv[++i], ","); t; t = std::strtok(nullptr, ",")) ms.push_back(std::atoi(t));
    } else {
      std::printf("unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  seconds();
  out_file = std::fopen(out.c_str(), "a");
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  std::printf("%s, %d SMs\n", prop.name, prop.multiProcessorCount);
  pieces = device<float>(std::size_t{2048} * 64 * 64);
  flags = device<std::uint32_t>(4096);
  CHECK(cudaMemset(flags, 0, 4 * 4096));
  x_buffer = device<std::uint16_t>(std::size_t{kMostRows} * 32768);
  y_buffer = device<std::byte>(std::size_t{4} * kMostRows * 65536);
  ref_exact = device<double>(std::size_t{kMostRows} * 65536);
  ref_rounded = device<double>(std::size_t{kMostRows} * 65536);
  for (const Variant& v : variants()) CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448));
  workspace = device<std::byte>(workspace_size);
  if (do_plan) {
    if (do_check) check_plans(quick, tiny);
    if (do_time) time_plans(shapes, ms, only, limit, forced);
  } else {
    if (do_check) check_all(only);
    if (do_time) time_all(shapes, ms, only, limit);
  }
  std::printf("done after %.1f s\n", seconds());
  return failures != 0;
}
