// cpu_gemm: y = x · Wᵀ for any M; dequantizes a block of W into fp32 once per panel of x and multiplies it register tile by
// register tile.
//
// Work partition. x is taken in panels of at most 192 rows, converted once to fp32 and cut into strips of 6 rows. A piece is one
// n64 block over a range of K (all of K unless N is small), for all rows of the panel; it walks K in chunks of 256 columns:
//
//                         n64 block of W, one chunk, fp32 (64 KiB, stays in L2)
//                        +------+------+------+------+
//                  256 k |strip |strip |      |      |   a strip is kStrip places wide (16 KiB with AVX2: stays in L1 while
//                        |      |      |      |      |   every strip of x passes over it)
//                        +------+------+------+------+
//      x, fp32   256 k      ||
//     +----------------+ +------+------+------+------+
//   6 | strip of rows  | | tile |      |      |      |   tile: 6 rows × kStrip places in registers, one FMA chain over kDepth
//     +----------------+ +------+------+------+------+   columns (256; AVX-512: 128), then added to the piece's sums
//   6 |                | |      |      |      |      |
//     +----------------+ +------+------+------+------+   sums [rows, 64], fp32
//
// Roundings: w = scale·(code − zero) rounded once to fp32 (fma(scale, code, offset) with offsets; targets without FMA, SSE4, round
// the product first); products are added in fp32, each kDepth columns in order of packed k and then to the sum of those before,
// ranges of K in order; then the epilogue. A row's result depends neither on M nor on the number of threads. A one-hot x gives the
// w of above exactly.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "base/simd_targets.h"

#include "hwy/foreach_target.h"

#include "kernels/cpu/vector-inl.h"

#ifndef SWORDFISH_KERNELS_CPU_GEMM_ONCE
#define SWORDFISH_KERNELS_CPU_GEMM_ONCE
namespace swordfish::cpu {
constexpr int kStripRows = 6;  // 6 × 2 accumulators, 2 vectors of W and one of x: 15 of 16 registers
constexpr std::int64_t kPanelRows = 192;
constexpr std::int64_t kChunk = 16;  // slices: 256 columns
constexpr std::int64_t kBlockFloats = kChunk * 16 * 64;

struct GemmPiece {
  const PackedView* w;
  std::int64_t nb, slice0, slice1;
  std::int64_t rows;
  const float* x;  // [strip, slice, 16, kStripRows]
  float* block;    // kBlockFloats of scratch
  float* sums;     // [rows, 64] in tile order
};
struct GemmX {
  const PackedView* w;
  DType type;
  const std::uint16_t* x;  // first row of the strip
  std::int64_t ldx;
  int rows;  // of the strip
  std::int64_t slice0, slice1;
  float* out;  // of the strip
};
}  // namespace swordfish::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace swordfish::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
void GemmPieceRun(const GemmPiece&) {}
void GemmXRun(const GemmX&) {}
#else

constexpr int kVectors =
    HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 ? 2 : 4;  // of a strip of W: 4 where there are 32 registers
constexpr int kStrip = kVectors * kLanes;                      // places
// Columns of a strip of W that one pass over x takes: 32 KiB at most, two thirds of an L1 of 48 KiB.
constexpr std::int64_t kDepth = std::min<std::int64_t>(kChunk * 16, (32 << 10) / (kStrip * 4));

void GemmXRun(const GemmX& a) {
  for (std::int64_t s = a.slice0; s < a.slice1; ++s) {
    float* out = a.out + s * 16 * kStripRows;
    for (int r = 0; r < a.rows; ++r) {
      alignas(64) float x[16];
      LoadSlice(*a.w, a.type, a.x + r * a.ldx, s, x);
      for (int i = 0; i < 16; ++i) out[i * kStripRows + r] = x[i];
    }
  }
}

// Each 128-bit group of v to its own column, two columns apart (the words of neighbouring lanes t).
template <class D, class V>
HWY_INLINE void StoreGroups(D d, V v, float* HWY_RESTRICT out) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, out);
  } else {
    const hn::Half<D> half;
    StoreGroups(half, hn::LowerHalf(half, v), out);
    StoreGroups(half, hn::UpperHalf(half, v), out + hn::MaxLanes(half) / 4 * 2 * kStrip);
  }
}

struct RowScales {
  alignas(64) float scale[64], zero[64], offset[64];
  bool has_offsets;
};

// One slice of one n64 block into columns 0..15 of `out`, a block [strip][256][kStrip].
template <CodeType kCode>
void DequantizeSlice(const std::uint8_t* HWY_RESTRICT codes, const RowScales& s, float* HWY_RESTRICT out) {
  constexpr int kT = kLanes / 4;
  const DF df;
  const DI di;
  const DU du;
  for (int h = 0; h < 2; ++h) {
    for (int g = 0; g < 8; ++g) {
      const int place = 4 * (8 * h + g);
      const VF scale = hn::LoadDup128(df, s.scale + place), zero = hn::LoadDup128(df, s.zero + place);
      const VF offset = hn::LoadDup128(df, s.offset + place);
      float* column = out + place / kStrip * (kChunk * 16 * kStrip) + place % kStrip;
      const auto put = [&](int k, VU code, float power) HWY_ATTR {
        const VF v = hn::ConvertTo(df, hn::BitCast(di, code)), p = hn::Set(df, power);
        const VF w = s.has_offsets ? hn::MulAdd(hn::Mul(v, p), scale, offset) : hn::Mul(hn::MulSub(v, p, zero), scale);
        StoreGroups(df, w, column + k * kStrip);
      };
      for (int t = 0; t < 4; t += kT) {
        const int byte = 64 * g + 16 * t;
        if constexpr (kCode == CodeType::int8) {
          VU w = hn::Load(du, reinterpret_cast<const std::uint32_t*>(codes + 512 * h + byte));
          for (int odd = 0; odd < 2; ++odd) {
            put(2 * t + odd, hn::And(w, hn::Set(du, 0x00ffu)), 1.0f);
            put(2 * t + odd + 8, hn::And(w, hn::Set(du, 0xff00u)), 0x1p-8f);
            w = hn::ShiftRight<16>(w);
          }
        } else {
          VU w = hn::Load(du, reinterpret_cast<const std::uint32_t*>(codes + byte));
          if (h == 1) w = hn::ShiftRight<8>(w);
          if constexpr (kCode == CodeType::int4) {
            for (int odd = 0; odd < 2; ++odd) {
              put(2 * t + odd, hn::And(w, hn::Set(du, 0x0fu)), 1.0f);
              put(2 * t + odd + 8, hn::And(w, hn::Set(du, 0xf0u)), 0x1p-4f);
              w = hn::ShiftRight<16>(w);
            }
          } else {
            const hn::Repartition<std::uint8_t, DF> d8;
            const auto table = hn::LoadDup128(d8, kDoubledE2m1);
            const VU nibbles = hn::Set(du, 0x0f0f0f0fu);
            for (int high = 0; high < 2; ++high) {
              VU v =
                  hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(d8, hn::And(high ? hn::ShiftRight<4>(w) : w, nibbles))));
              put(2 * t + 8 * high, hn::And(v, hn::Set(du, 0x00ffu)), 1.0f);
              put(2 * t + 8 * high + 1, hn::And(hn::ShiftRight<16>(v), hn::Set(du, 0x00ffu)), 1.0f);
            }
          }
        }
      }
    }
  }
}

template <CodeType kCode>
void DequantizeBlock(const GemmPiece& p, std::int64_t slice0, std::int64_t slice1, std::int64_t& at, RowScales& s) {
  constexpr int kBytes = kCode == CodeType::int8 ? 1024 : 512;
  const PackedView& w = *p.w;
  const auto* codes = static_cast<const std::uint8_t*>(w.codes) + p.nb * w.k_blocks * 2048;
  for (std::int64_t slice = slice0; slice < slice1; ++slice) {
    if (const std::int64_t row = w.row(slice); row != at) {
      ExpandRow(w, w.scale_type, w.scales, p.nb, row, s.scale);
      if (w.zeros) ExpandRow(w, w.zero_type, w.zeros, p.nb, row, s.zero);
      if (w.offsets) ExpandRow(w, w.offset_type, w.offsets, p.nb, row, s.offset);
      if constexpr (kCode == CodeType::fp4) {  // the table holds 2·value + 12
        for (float& f : s.scale) f *= 0.5f;
      }
      at = row;
    }
    DequantizeSlice<kCode>(codes + slice * kBytes, s, p.block + (slice - slice0) * 16 * kStrip);
  }
}

// kR rows of x against one strip of W over `n` columns; adds to (or starts) the sums.
template <int kR>
HWY_INLINE void Tile(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, std::int64_t n, bool first,
                     float* HWY_RESTRICT sums) {
  const DF df;
  VF acc[kR][kVectors];
  for (int r = 0; r < kR; ++r)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(df);
  for (std::int64_t k = 0; k < n; ++k, x += kStripRows, w += kStrip) {
    VF b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = hn::Load(df, w + v * kLanes);
    for (int r = 0; r < kR; ++r) {
      const VF a = hn::Set(df, x[r]);
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(a, b[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + r * 64 + v * kLanes;
      hn::Store(first ? acc[r][v] : hn::Add(hn::Load(df, to), acc[r][v]), df, to);
    }
  }
}

void GemmPieceRun(const GemmPiece& p) {
  const PackedView& w = *p.w;
  const std::int64_t slices = w.packed_k() / 16;
  RowScales scales;
  std::int64_t at = -1;  // the scale row that `scales` holds
  scales.has_offsets = w.offsets != nullptr;
  std::fill_n(scales.zero, 64, w.code == CodeType::fp4 ? 12.0f : static_cast<float>(w.zero));
  std::fill_n(scales.offset, 64, 0.0f);
  for (std::int64_t s0 = p.slice0; s0 < p.slice1; s0 += kChunk) {
    const std::int64_t s1 = std::min(s0 + kChunk, p.slice1);
    switch (w.code) {
      case CodeType::int4: DequantizeBlock<CodeType::int4>(p, s0, s1, at, scales); break;
      case CodeType::int8: DequantizeBlock<CodeType::int8>(p, s0, s1, at, scales); break;
      case CodeType::fp4: DequantizeBlock<CodeType::fp4>(p, s0, s1, at, scales); break;
    }
    const std::int64_t columns = 16 * (s1 - s0);
    for (int strip = 0; strip < 64 / kStrip; ++strip) {
      for (std::int64_t k = 0; k < columns; k += kDepth) {
        const std::int64_t n = std::min(kDepth, columns - k);
        const bool first = s0 == p.slice0 && k == 0;
        const float* b = p.block + strip * (kChunk * 16 * kStrip) + k * kStrip;
        for (std::int64_t m = 0; m < p.rows; m += kStripRows) {
          const float* x = p.x + ((m / kStripRows * slices + s0) * 16 + k) * kStripRows;
          float* sums = p.sums + m * 64 + strip * kStrip;
          switch (std::min<std::int64_t>(p.rows - m, kStripRows)) {
            case 1: Tile<1>(x, b, n, first, sums); break;
            case 2: Tile<2>(x, b, n, first, sums); break;
            case 3: Tile<3>(x, b, n, first, sums); break;
            case 4: Tile<4>(x, b, n, first, sums); break;
            case 5: Tile<5>(x, b, n, first, sums); break;
            default: Tile<6>(x, b, n, first, sums); break;
          }
        }
      }
    }
  }
}
#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace swordfish::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swordfish::cpu {
namespace {
HWY_EXPORT(GemmPieceRun);
HWY_EXPORT(GemmXRun);

// Workspace: x of a panel as fp32 strips, one dequantized block a slot, then sums [n block, split, rows, 64] (or, for split 1,
// [slot, rows, 64]).
struct Workspace {
  std::int64_t rows, slots;  // of a panel; slots
  std::size_t x, blocks, sums, total;
};
Workspace workspace(const Problem& p) {
  const Pieces pieces = cut(*p.weight);
  Workspace s{};
  s.rows = std::min(p.m, kPanelRows);
  s.slots = std::min<std::int64_t>(std::max(p.threads, 1), pieces.count());
  const auto rows = static_cast<std::size_t>(s.rows), slots = static_cast<std::size_t>(s.slots);
  const std::size_t strips = (rows + kStripRows - 1) / kStripRows;
  const std::size_t tiles = pieces.split > 1 ? static_cast<std::size_t>(pieces.count()) : slots;
  s.blocks = align64(strips * static_cast<std::size_t>(pieces.slices) * 16 * kStripRows * sizeof(float));
  s.sums = s.blocks + slots * kBlockFloats * sizeof(float);
  s.total = s.sums + tiles * rows * 64 * sizeof(float);
  return s;
}
}  // namespace

std::string gemm_can_run(const Problem& p) { return common_can_run(p); }

Plan gemm_plan(const Problem& p) {
  const Pieces pieces = cut(*p.weight);
  Plan plan;
  plan.m = p.m;
  plan.tile_m = static_cast<int>(std::min(p.m, kPanelRows));
  plan.tile_n = 64;
  plan.tasks = static_cast<int>(pieces.count());
  plan.split_k = pieces.split;
  plan.workspace = workspace(p).total;
  plan.reason = "many rows share each dequantized block of the weight, so arithmetic bounds the time";
  return plan;
}

Status gemm_launch(Context& context, const Problem& p, const Plan&, const RunArgs& a) {
  const PackedView& w = *p.weight;
  const Pieces pieces = cut(w);
  const Workspace at = workspace(p);
  auto* base = static_cast<std::byte*>(a.workspace);
  float* const x = reinterpret_cast<float*>(base + at.x);
  float* const blocks = reinterpret_cast<float*>(base + at.blocks);
  float* const sums = reinterpret_cast<float*>(base + at.sums);
  constexpr std::int64_t kTaskSlices = 64;
  const std::int64_t parts = (pieces.slices + kTaskSlices - 1) / kTaskSlices;

  for (std::int64_t m0 = 0; m0 < p.m; m0 += at.rows) {
    const std::int64_t rows = std::min(at.rows, p.m - m0), strips = (rows + kStripRows - 1) / kStripRows;
    pool(context).parallel_for(strips * parts, [&](std::int64_t task, int) {
      const std::int64_t strip = task / parts, s = task % parts * kTaskSlices, row = strip * kStripRows;
      HWY_DYNAMIC_DISPATCH(GemmXRun)
      ({&w, p.x_type, static_cast<const std::uint16_t*>(a.x) + (m0 + row) * a.ldx, a.ldx,
        static_cast<int>(std::min<std::int64_t>(kStripRows, rows - row)), s, std::min(s + kTaskSlices, pieces.slices),
        x + strip * pieces.slices * 16 * kStripRows});
    });
    for_pieces(pool(context), at.slots, pieces.count(), [&](std::int64_t piece, std::int64_t slot) {
      const std::int64_t nb = piece / pieces.split;
      const int range = static_cast<int>(piece % pieces.split);
      float* const out = sums + (pieces.split > 1 ? piece : slot) * rows * 64;
      HWY_DYNAMIC_DISPATCH(GemmPieceRun)
      ({&w, nb, pieces.begin(range), pieces.begin(range + 1), rows, x, blocks + slot * kBlockFloats, out});
      if (pieces.split == 1) store_tile(p, a, nb, m0, rows, out, 64, 1, 0);
    });
    if (pieces.split > 1) {
      pool(context).parallel_for(pieces.n_blocks, [&](std::int64_t nb, int) {
        store_tile(p, a, nb, m0, rows, sums + nb * pieces.split * rows * 64, 64, pieces.split, rows * 64);
      });
    }
  }
  return {};
}

}  // namespace swordfish::cpu
#endif  // HWY_ONCE
