// Cutting work into pieces, what both vector kernels require, and the epilogue.
#include "kernels/cpu/cpu.h"

#include <cstring>

#include "base/simd_targets.h"

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "quant/numeric.h"

namespace swordfish::cpu {
namespace {

bool is_scale(DType t) {
  return t == DType::f16 || t == DType::bf16 || t == DType::f32 || t == DType::f8_e4m3 || t == DType::f8_e8m0;
}

// Row of a tile at each place, for 4-bit and 8-bit codes.
struct RowOfPlace {
  std::uint8_t row[64];
};
constexpr RowOfPlace rows_of(CodeType code) {
  RowOfPlace r{};
  for (int p = 0; p < 64; ++p) r.row[p] = static_cast<std::uint8_t>(row_of_place(code, p));
  return r;
}
constexpr RowOfPlace kRows4 = rows_of(CodeType::int4), kRows8 = rows_of(CodeType::int8);

template <class T, class Convert>
void store_row(const float* v, std::int64_t n, void* y, std::int64_t at, Convert convert) {
  T* out = static_cast<T*>(y) + at;
  for (std::int64_t i = 0; i < n; ++i) out[i] = convert(v[i]);
}

const PackedPart& part_of(const PackedView& w, std::int64_t nb) {
  const PackedPart* part = w.parts;
  while (nb >= part->block0 + (part->n + 63) / 64) ++part;
  return *part;
}

}  // namespace

Pieces cut(const PackedView& w) {
  constexpr std::int64_t kWanted = 64;     // pieces, so that threads end together
  constexpr std::int64_t kMinSlices = 64;  // 1,024 columns: a piece is 32 KiB of 4-bit codes, some µs of work
  Pieces p;
  p.n_blocks = w.n_blocks;
  p.slices = slices(w);
  const std::int64_t wanted = (kWanted + p.n_blocks - 1) / p.n_blocks, most = std::max<std::int64_t>(p.slices / kMinSlices, 1);
  p.split = static_cast<int>(std::min({wanted, most, std::int64_t{16}}));
  return p;
}

std::string common_can_run(const Problem& p) {
  const PackedView& w = *p.weight;
  if (p.device.kind != Device::Kind::cpu) return "is a CPU kernel; the problem is on " + to_string(p.device);
  if (w.layout != Layout::mma64_1) return "reads layout mma64/1; the weight has " + std::string(name(w.layout));
  if (p.x_type != DType::bf16 && p.x_type != DType::f16) return "takes x in BF16 or F16, not " + std::string(name(p.x_type));
  if (p.y_type != DType::bf16 && p.y_type != DType::f16 && p.y_type != DType::f32)
    return "writes y in BF16, F16 or F32, not " + std::string(name(p.y_type));
  if (!is_scale(w.scale_type)) return "has no scales of type " + std::string(name(w.scale_type));
  if (w.code == CodeType::fp4 && (w.zeros || w.offsets || w.zero != 0))
    return "takes fp4 codes without zero points and offsets only";
  if ((hwy::SupportedTargets() & HWY_TARGETS & ~HWY_SCALAR) == 0)
    return "needs SSE4, AVX2, AVX-512 or NEON, which this processor does not have";
  return {};
}

void store_tile(const Problem& p, const RunArgs& args, std::int64_t nb, std::int64_t m0, std::int64_t rows, const float* sums,
                std::int64_t row_stride, int split, std::int64_t split_stride) {
  const PackedView& w = *p.weight;
  const PackedPart& part = part_of(w, nb);
  const std::int64_t first = 64 * (nb - part.block0), n0 = part.n0 + first;
  const std::int64_t n = std::min<std::int64_t>(64, part.n - first);
  const std::uint8_t* to = w.code == CodeType::int8 ? kRows8.row : kRows4.row;
  for (std::int64_t m = 0; m < rows; ++m) {
    float v[64];
    for (int i = 0; i < 64; ++i) {
      const float* in = sums + m * row_stride + i;
      float sum = in[0];
      for (int s = 1; s < split; ++s) sum += in[s * split_stride];
      v[to[i]] = sum;
    }
    if (!part.global.is_one()) {
      const float g = part.global.value;
      if (part.global.op == Global::Op::multiply) {
        for (float& f : v) f *= g;
      } else {
        for (float& f : v) f /= g;
      }
    }
    if (args.bias) {
      for (std::int64_t i = 0; i < n; ++i) v[i] += args.bias[n0 + i];
    }
    const std::int64_t at = (m0 + m) * args.ldy + n0;
    switch (p.y_type) {
      case DType::bf16: store_row<std::uint16_t>(v, n, args.y, at, f32_to_bf16); break;
      case DType::f16: store_row<std::uint16_t>(v, n, args.y, at, f32_to_f16); break;
      default: store_row<float>(v, n, args.y, at, [](float f) { return f; }); break;
    }
  }
}

}  // namespace swordfish::cpu
