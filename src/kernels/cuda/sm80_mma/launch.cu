// Launches of the decode kernels: arguments checked and filled, x prepared where it must be, rows of x in turn.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>

#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/sm80_mma/decode.h"
#include "kernels/cuda/sm80_mma/instances.h"
#include "kernels/cuda/sm80_mma/prepare.cuh"

namespace swordfish::mma {
namespace {

Status failed(const char* what, cudaError_t error) {
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::unavailable;
  return {code, std::string("decode: ") + what + ": " + cudaGetErrorString(error)};
}
Status refused(std::string why) { return {Code::invalid_argument, "decode: " + std::move(why)}; }

DecodeKernel kernel_of(const DecodePlan& p) {
  if (p.m16) {
    switch (p.weights) {
      case Weights::int4: return int4_middle_kernel(p.bf16, p.m16, p.flush, p.columns);
      case Weights::int8: return int8_middle_kernel(p.bf16, p.m16, p.flush, p.columns);
      default: return fp4_middle_kernel(p.bf16, p.m16, p.columns);
    }
  }
  switch (p.weights) {
    case Weights::int4: return int4_kernel(p.bf16, p.m8, p.flush, p.two_ctas);
    case Weights::int8: return int8_kernel(p.bf16, p.m8, p.flush);
    case Weights::fp4: return fp4_kernel(p.bf16, p.m8, p.flush);
    case Weights::fp4_e4m3: return fp4_e4m3_kernel(p.bf16, p.m8);
    case Weights::fp4_e8m0: break;
  }
  return fp4_e8m0_kernel(p.m8);
}

PlaneType plane_type(DType type) {
  switch (type) {
    case DType::f16: return PlaneType::f16;
    case DType::bf16: return PlaneType::bf16;
    case DType::f32: return PlaneType::f32;
    case DType::f8_e4m3: return PlaneType::e4m3;
    case DType::f8_e8m0: return PlaneType::e8m0;
    case DType::i16: return PlaneType::i16;
    default: return PlaneType::u8;
  }
}

bool aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

// More than 48 KB of dynamic shared memory must be allowed once for a kernel and device; the largest size costs nothing.
Status allow_shared_memory(DecodeKernel kernel, std::uint32_t bytes) {
  if (bytes <= 48 * 1024) return {};
  const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  return e == cudaSuccess ? Status() : failed("shared memory", e);
}

}  // namespace

Status init_decode_workspace(const DecodePlan& plan, void* workspace, void* stream) {
  const cudaError_t e = cudaMemsetAsync(workspace, 0, plan.flags_bytes, static_cast<cudaStream_t>(stream));
  return e == cudaSuccess ? Status() : failed("workspace", e);
}

Status launch_decode(const PackedView& w, const DecodePlan& plan, const DecodeCall& call) {
  if (call.m == 0) return {};
  const std::size_t y_size = call.y_type == DType::f32 ? 4 : 2;
  if (call.m < 0) return refused("m is negative");
  if (!call.x || !call.y || !call.workspace) return refused("a null pointer");
  if (call.ldx < w.k || call.ldy < w.n) return refused("a row stride is less than the row");
  if (!aligned(call.x, 2) || !aligned(call.y, y_size)) return refused("a pointer is not aligned to its element");
  if (call.workspace_size < plan.x_offset + static_cast<std::size_t>(call.m * plan.packed_k) * 2)
    return refused("workspace too small");
  const DecodeKernel kernel = kernel_of(plan);
  if (!kernel) return {Code::internal, "decode: the plan names no kernel of this build"};
  if (Status s = allow_shared_memory(kernel, plan.smem); !s.ok()) return s;
  const auto stream = static_cast<cudaStream_t>(call.stream);
  auto* workspace = static_cast<std::byte*>(call.workspace);

  auto* x = static_cast<const std::uint16_t*>(call.x);
  std::int64_t ldx = call.ldx;
  if (w.gather || w.k != plan.packed_k || ldx % 8 != 0 || !aligned(x, 16)) {
    PrepareArgs p{};
    p.x = x;
    p.out = reinterpret_cast<std::uint16_t*>(workspace + plan.x_offset);
    p.gather = w.gather;
    p.ldx = ldx;
    p.m = static_cast<std::int32_t>(call.m);
    p.k = static_cast<std::int32_t>(w.k);
    p.packed_k = static_cast<std::int32_t>(plan.packed_k);
    ptx::LaunchShape shape;
    shape.threads = 256;
    const std::int64_t blocks = call.m * ((plan.packed_k + 255) / 256);
    if (blocks > INT32_MAX) return refused("m is too large");
    shape.grid_x = static_cast<std::uint32_t>(blocks);
    shape.dependent = call.dependent && plan.dependent;
    if (const cudaError_t e = ptx::launch(prepare_x, shape, stream, p); e != cudaSuccess) return failed("preparing x", e);
    x = p.out;
    ldx = plan.packed_k;
  }

  DecodeArgs a{};
  a.codes = static_cast<const std::byte*>(w.codes);
  a.scales = static_cast<const std::byte*>(w.scales);
  a.row_of_slice = w.row_of_slice;
  a.bias = call.bias;
  a.flags = reinterpret_cast<std::uint32_t*>(workspace);
  a.pieces = reinterpret_cast<float*>(workspace + plan.pieces_offset);
  a.ldx = ldx;
  a.ldy = call.ldy;
  a.columns = static_cast<std::int32_t>(w.n_blocks);
  a.k_blocks = static_cast<std::int32_t>(w.k_blocks);
  a.rows = static_cast<std::int32_t>(w.rows);
  a.group_shift = 31;
  if (!w.row_of_slice && w.rows > 1)
    for (a.group_shift = 0; std::int64_t{16} << a.group_shift < w.group_size;) ++a.group_shift;
  a.cluster = plan.cluster;
  a.zero = static_cast<float>(w.zero);
  a.scale_type = plane_type(w.scale_type);
  if (w.zeros || w.offsets) {
    a.extra = static_cast<const std::byte*>(w.zeros ? w.zeros : w.offsets);
    a.extra_kind = w.zeros ? Extra::zeros : Extra::offsets;
    a.extra_type = plane_type(w.zeros ? w.zero_type : w.offset_type);
  }
  a.y_type = call.y_type == DType::f16 ? 0 : call.y_type == DType::bf16 ? 1 : 2;
  bool pairs = aligned(call.y, 2 * y_size) && call.ldy % 2 == 0, quads = aligned(call.y, 4 * y_size) && call.ldy % 4 == 0;
  a.parts = static_cast<std::int32_t>(w.n_parts);
  for (std::int64_t i = 0; i < w.n_parts; ++i) {
    const PackedPart& part = w.parts[i];
    const float g = part.global.value;
    a.part[i] = {static_cast<std::int32_t>(part.block0), static_cast<std::int32_t>(part.n0), static_cast<std::int32_t>(part.n),
                 part.global.op == Global::Op::multiply ? g : 1.0f / g};
    pairs = pairs && part.n0 % 2 == 0;
    quads = quads && part.n0 % 4 == 0;
  }
  a.y_pairs = pairs;
  a.y_quads = quads;

  ptx::LaunchShape shape;
  shape.threads = static_cast<std::uint32_t>(32 * plan.warps);
  shape.cluster_x = static_cast<std::uint32_t>(plan.cluster);
  shape.dynamic_smem = plan.smem;
  shape.dependent = call.dependent && plan.dependent;
  // Rows in turn: the decode kernel takes one tile of tokens, the middle kernel as many as 2^31 units allow.
  const std::int64_t tokens = plan.tile_m();
  const std::int64_t tiles_n = (w.n_blocks + plan.columns - 1) / plan.columns;
  const std::int64_t steps = (w.k_blocks + plan.units - 1) / plan.units;
  a.steps = static_cast<std::int32_t>(steps);
  const std::int64_t most = plan.m16 ? std::max<std::int64_t>(1, INT32_MAX / 2 / (tiles_n * steps)) : 1;
  for (std::int64_t m0 = 0; m0 < call.m; m0 += most * tokens) {
    a.x = x + m0 * ldx;
    a.y = static_cast<std::byte*>(call.y) + m0 * call.ldy * static_cast<std::int64_t>(y_size);
    a.m = static_cast<std::int32_t>(std::min(call.m - m0, most * tokens));
    a.m_groups = static_cast<std::int32_t>((a.m + tokens - 1) / tokens);
    a.grain = plan.whole ? a.steps : 1;
    const std::int64_t grains = tiles_n * a.m_groups * steps / a.grain;
    shape.grid_x = static_cast<std::uint32_t>(std::min<std::int64_t>(plan.ctas, grains));
    a.units_each = static_cast<std::int32_t>(grains / shape.grid_x);
    a.units_more = static_cast<std::int32_t>(grains % shape.grid_x);
    if (const cudaError_t e = ptx::launch(kernel, shape, stream, a); e != cudaSuccess) return failed("launch", e);
  }
  return {};
}

}  // namespace swordfish::mma
