// cpu_decode: y = x · Wᵀ for few rows of x (M ≤ 8), bound by reading W; unpacks each code once per four rows of x.
//
// Work partition. A piece is one n64 block over a range of K (all of K unless N is small); it streams its codes front to back:
//
//        K →   run (≤ 128 columns, one scale row)
//      +-------+-------+-------+- - -+      piece: 64 rows of W, one range of K
//   n64| 8×512B|       |       |     |      run:   codes stay in L1 while up to M rows of x pass over them
//      +-------+-------+-------+- - -+      inside a run: tiles of R rows of x by G word columns g, R·G·2 accumulators in registers
//
// A vector of words holds [t][4 rows of W]. `word & mask` is a code times a power of two; converting it to fp32 and multiplying by
// x times the inverse power costs and + convert + FMA per 8 codes (AVX2), plus one shift per 64 codes. All powers are exact: x
// (bf16 or f16) times 2^-12 still is an fp32 number. fp4 goes through a byte table of 2·value + 12 first.
//
//   table of x, per row and slice: for each vector of a word column: x[2t], x[2t+1], x[2t+8], x[2t+9] (each scaled as its nibble
//   needs, four times side by side), and their sum: 5 vectors.
//
// Roundings, for each run: S = Σ x·code − zero·Σx in fp32, started at −zero·Σx (Σx in fp32), kLanes/4 partial sums a row of W; then
// total = fma(scale, S, total), then total = fma(offset, Σx, total). Partial sums are added pairwise at the end, ranges of K in
// order, then the epilogue. A one-hot x therefore gives scale·(code − zero) with one rounding, exactly the format's value where
// that is exact in fp32. Targets without FMA (SSE4) round the product too: x·code is exact all the same. x with an infinity or NaN
// makes its row of y non-finite.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode.cc"
#include "base/simd_targets.h"

#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "kernels/cpu/vector-inl.h"

#ifndef SWORDFISH_KERNELS_CPU_DECODE_ONCE
#define SWORDFISH_KERNELS_CPU_DECODE_ONCE
namespace swordfish::cpu {
constexpr int kMaxRows = 8;
constexpr int kRun = 8;  // slices
// Bytes of codes fetched ahead: the tiles of a run read every other 256 bytes, which hardware prefetchers follow badly. 8 KiB took
// 20–45 % off the time on Zen 3; 4 and 16 KiB took less. May point past the end: a prefetch cannot fault.
constexpr int kPrefetch = 8192;
constexpr int kSliceFloats = 80;  // of the table of x: 5 numbers × 4 t × 4 copies

struct DecodePiece {
  const PackedView* w;
  std::int64_t nb, slice0, slice1;
  int rows;
  const float* x;  // [slices, rows, kSliceFloats]
  float* sums;     // [rows, 64] in tile order
};
struct DecodeX {
  const PackedView* w;
  DType type;
  const std::uint16_t* x;  // one row
  std::int64_t slice0, slice1;
  float* out;           // of that row and slice 0
  std::int64_t stride;  // floats from slice to slice
};
}  // namespace swordfish::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace swordfish::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
void DecodePieceRun(const DecodePiece&) {}
void DecodeXRun(const DecodeX&) {}
#else

constexpr int kT = kLanes / 4;           // lanes t in one vector
constexpr int kSteps = 4 / kT;           // vectors of a word column
constexpr int kStepFloats = 5 * kLanes;  // table of x a vector of words
static_assert(kSteps * kStepFloats == kSliceFloats);

// What a code type does to x and to the sums. With 4 bits the two halves h of a 16-bit half word share the table, which makes the
// sums of h = 0 smaller by kHalf; with 8 bits halves are separate words.
template <CodeType kCode>
struct Scaling {
  static constexpr float kHalf = kCode == CodeType::int8 ? 1.0f : 256.0f;
  static constexpr float kLow = (kCode == CodeType::fp4 ? 0.5f : 1.0f) / kHalf;  // of columns 2t and 2t+1
  static constexpr float kHigh = kCode == CodeType::int4 ? kLow / 16 : kCode == CodeType::int8 ? kLow / 256 : kLow;  // 2t+8, 2t+9
};

template <CodeType kCode>
void FillX(const DecodeX& a) {
  const DF df;
  // Byte i of a vector: lane t = (its word) / 4 of the four that are loaded to every 128 bits.
  alignas(64) std::uint8_t index[kSteps][4 * kLanes];
  for (int u = 0; u < kSteps; ++u)
    for (int i = 0; i < 4 * kLanes; ++i) index[u][i] = static_cast<std::uint8_t>(4 * (u * kT + i / 16) + i % 4);
  const hn::Repartition<std::uint8_t, DF> d8;
  float* out = a.out + a.slice0 * a.stride;
  for (std::int64_t s = a.slice0; s < a.slice1; ++s, out += a.stride) {
    alignas(64) float x[16];
    alignas(64) float quad[5][4];  // [2t, 2t+1, 2t+8, 2t+9, sum][t]
    LoadSlice(*a.w, a.type, a.x, s, x);
    for (int t = 0; t < 4; ++t) {
      const float x0 = x[2 * t] * Scaling<kCode>::kLow, x1 = x[2 * t + 1] * Scaling<kCode>::kLow;
      const float x8 = x[2 * t + 8], x9 = x[2 * t + 9];
      quad[0][t] = x0;
      quad[1][t] = x1;
      quad[2][t] = x8 * Scaling<kCode>::kHigh;
      quad[3][t] = x9 * Scaling<kCode>::kHigh;
      quad[4][t] = (x0 + x1) + (x8 * Scaling<kCode>::kLow + x9 * Scaling<kCode>::kLow);
    }
    for (int u = 0; u < kSteps; ++u)
      for (int i = 0; i < 5; ++i)
        hn::Store(hn::BitCast(df, hn::TableLookupBytes(hn::BitCast(d8, hn::LoadDup128(df, quad[i])), hn::Load(d8, index[u]))), df,
                  out + u * kStepFloats + i * kLanes);
  }
}

void DecodeXRun(const DecodeX& a) {
  switch (a.w->code) {
    case CodeType::int4: return FillX<CodeType::int4>(a);
    case CodeType::int8: return FillX<CodeType::int8>(a);
    case CodeType::fp4: return FillX<CodeType::fp4>(a);
  }
}

// One vector of words of each of kG word columns (64 bytes apart) against kR rows of x: acc[g][r][h] += code · x. Columns are the
// inner loop, so that neighbouring FMAs go to different accumulators.
template <CodeType kCode, int kR, int kG>
HWY_INLINE void MultiplyWords(const std::uint8_t* HWY_RESTRICT codes, const float* HWY_RESTRICT x, VF (&acc)[kG][kR][2]) {
  const DF df;
  const DI di;
  const DU du;
  const auto multiply = [&](int g, int h, int column, VU code) HWY_ATTR {
    const VF v = hn::ConvertTo(df, hn::BitCast(di, code));
    for (int r = 0; r < kR; ++r) acc[g][r][h] = hn::MulAdd(v, hn::Load(df, x + r * kSliceFloats + column * kLanes), acc[g][r][h]);
  };
  const auto load = [&](int g, int h)
                        HWY_ATTR { return hn::Load(du, reinterpret_cast<const std::uint32_t*>(codes + 64 * g + 512 * h)); };
  if constexpr (kCode == CodeType::int4) {
    VU w[kG];
    for (int g = 0; g < kG; ++g) w[g] = load(g, 0);
    for (int odd = 0; odd < 2; ++odd) {
      for (int g = 0; g < kG; ++g) {
        multiply(g, 0, odd, hn::And(w[g], hn::Set(du, 0x000fu)));
        multiply(g, 1, odd, hn::And(w[g], hn::Set(du, 0x0f00u)));
      }
      for (int g = 0; g < kG; ++g) {
        multiply(g, 0, 2 + odd, hn::And(w[g], hn::Set(du, 0x00f0u)));
        multiply(g, 1, 2 + odd, hn::And(w[g], hn::Set(du, 0xf000u)));
        w[g] = hn::ShiftRight<16>(w[g]);
      }
    }
  } else if constexpr (kCode == CodeType::fp4) {
    const hn::Repartition<std::uint8_t, DF> d8;
    const auto table = hn::LoadDup128(d8, kDoubledE2m1);
    const VU nibbles = hn::Set(du, 0x0f0f0f0fu);
    for (int high = 0; high < 2; ++high) {
      VU w[kG];
      for (int g = 0; g < kG; ++g) {
        const VU nibble = hn::And(high ? hn::ShiftRight<4>(load(g, 0)) : load(g, 0), nibbles);
        w[g] = hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(d8, nibble)));
      }
      for (int odd = 0; odd < 2; ++odd) {
        for (int g = 0; g < kG; ++g) {
          multiply(g, 0, 2 * high + odd, hn::And(w[g], hn::Set(du, 0x00ffu)));
          multiply(g, 1, 2 * high + odd, hn::And(w[g], hn::Set(du, 0xff00u)));
          w[g] = hn::ShiftRight<16>(w[g]);
        }
      }
    }
  } else {
    for (int h = 0; h < 2; ++h) {
      VU w[kG];
      for (int g = 0; g < kG; ++g) w[g] = load(g, h);
      for (int odd = 0; odd < 2; ++odd) {
        for (int g = 0; g < kG; ++g) multiply(g, h, odd, hn::And(w[g], hn::Set(du, 0x00ffu)));
        for (int g = 0; g < kG; ++g) {
          multiply(g, h, 2 + odd, hn::And(w[g], hn::Set(du, 0xff00u)));
          w[g] = hn::ShiftRight<16>(w[g]);
        }
      }
    }
  }
}

// The scale row of a run, in tile order; `zero` and `offset` are filled only where the weight has such a plane.
struct RunScales {
  alignas(64) float scale[64], zero[64], offset[64];
  float constant_zero;
  bool has_zeros, has_offsets;
};

// One run of `n` slices: kR rows of x by kG word columns from column g.
template <CodeType kCode, int kR, int kG>
HWY_INLINE void RunTile(const std::uint8_t* HWY_RESTRICT codes, int n, int g, const float* HWY_RESTRICT x, std::int64_t x_stride,
                        const RunScales& s, const VF (&sum_x)[kR], float* HWY_RESTRICT totals) {
  constexpr int kBytes = kCode == CodeType::int8 ? 1024 : 512;  // of a sub-tile
  constexpr float kHalf = Scaling<kCode>::kHalf;
  const DF df;
  VF acc[kG][kR][2];
  for (int i = 0; i < kG; ++i) {
    for (int h = 0; h < 2; ++h) {
      const VF zero = s.has_zeros ? hn::LoadDup128(df, s.zero + 4 * (8 * h + g + i)) : hn::Set(df, s.constant_zero);
      const VF minus = hn::Mul(zero, hn::Set(df, h == 0 ? -1.0f : -kHalf));
      for (int r = 0; r < kR; ++r) acc[i][r][h] = hn::Mul(minus, sum_x[r]);
    }
  }
  codes += 64 * g;
  for (int slice = 0; slice < n; ++slice, codes += kBytes, x += x_stride) {
    for (int i = 0; i < kG; ++i)
      for (int half = 0; half < kBytes; half += 512) hwy::Prefetch(codes + kPrefetch + 64 * i + half);
    for (int u = 0; u < kSteps; ++u) MultiplyWords<kCode, kR, kG>(codes + 16 * kT * u, x + u * kStepFloats, acc);
  }
  for (int i = 0; i < kG; ++i) {
    for (int h = 0; h < 2; ++h) {
      const int c = 8 * h + g + i;
      const VF scale = hn::LoadDup128(df, s.scale + 4 * c);
      for (int r = 0; r < kR; ++r) {
        float* total = totals + (r * 16 + c) * kLanes;
        const VF sum = kHalf != 1.0f && h == 0 ? hn::Mul(acc[i][r][h], hn::Set(df, kHalf)) : acc[i][r][h];
        VF t = hn::MulAdd(scale, sum, hn::Load(df, total));
        if (s.has_offsets) t = hn::MulAdd(hn::LoadDup128(df, s.offset + 4 * c), hn::Mul(sum_x[r], hn::Set(df, kHalf)), t);
        hn::Store(t, df, total);
      }
    }
  }
}

template <CodeType kCode, int kR>
HWY_INLINE void RunRows(const std::uint8_t* HWY_RESTRICT codes, int n, const float* HWY_RESTRICT x, std::int64_t x_stride,
                        const RunScales& s, float* HWY_RESTRICT totals) {
  constexpr int kG = kR == 1 ? 4 : kR == 2 ? 2 : 1;  // 8 accumulators: enough to hide the latency of FMA in 16 registers
  const DF df;
  VF sum_x[kR];
  for (int r = 0; r < kR; ++r) {
    sum_x[r] = hn::Zero(df);
    for (int i = 0; i < n; ++i)
      for (int u = 0; u < kSteps; ++u)
        sum_x[r] = hn::Add(sum_x[r], hn::Load(df, x + i * x_stride + r * kSliceFloats + u * kStepFloats + 4 * kLanes));
  }
  for (int g = 0; g < 8; g += kG) RunTile<kCode, kR, kG>(codes, n, g, x, x_stride, s, sum_x, totals);
}

template <CodeType kCode>
void Piece(const DecodePiece& p) {
  constexpr int kBytes = kCode == CodeType::int8 ? 1024 : 512;
  const PackedView& w = *p.w;
  const DF df;
  alignas(64) float totals[kMaxRows * 16 * kLanes];
  std::fill_n(totals, p.rows * 16 * kLanes, 0.0f);
  RunScales scales;
  scales.has_zeros = w.zeros != nullptr;
  scales.has_offsets = w.offsets != nullptr;
  scales.constant_zero = kCode == CodeType::fp4 ? 12.0f : static_cast<float>(w.zero);
  const auto* codes = static_cast<const std::uint8_t*>(w.codes) + p.nb * w.k_blocks * 2048;
  const std::int64_t x_stride = p.rows * kSliceFloats;
  std::int64_t at = -1;  // the scale row that `scales` holds
  for (std::int64_t s = p.slice0; s < p.slice1;) {
    const std::int64_t row = w.row(s);
    std::int64_t end = s + 1;
    while (end < p.slice1 && end - s < kRun && w.row(end) == row) ++end;
    if (row != at) {
      ExpandRow(w, w.scale_type, w.scales, p.nb, row, scales.scale);
      if (w.zeros) ExpandRow(w, w.zero_type, w.zeros, p.nb, row, scales.zero);
      if (w.offsets) ExpandRow(w, w.offset_type, w.offsets, p.nb, row, scales.offset);
      at = row;
    }
    const int n = static_cast<int>(end - s);
    for (int r = 0; r < p.rows;) {
      const float* x = p.x + (s * p.rows + r) * kSliceFloats;
      float* t = totals + r * 16 * kLanes;
      switch (std::min(p.rows - r, 4)) {
        case 1:
          RunRows<kCode, 1>(codes + s * kBytes, n, x, x_stride, scales, t);
          r += 1;
          break;
        case 2:
          RunRows<kCode, 2>(codes + s * kBytes, n, x, x_stride, scales, t);
          r += 2;
          break;
        case 3:
          RunRows<kCode, 3>(codes + s * kBytes, n, x, x_stride, scales, t);
          r += 3;
          break;
        default:
          RunRows<kCode, 4>(codes + s * kBytes, n, x, x_stride, scales, t);
          r += 4;
          break;
      }
    }
    s = end;
  }
  for (int c = 0; c < p.rows * 16; ++c) {  // [t][4] to [4]
    alignas(64) float v[kLanes];
    hn::Store(hn::Load(df, totals + c * kLanes), df, v);
    for (int half = kT / 2; half >= 1; half /= 2)
      for (int i = 0; i < 4 * half; ++i) v[i] += v[i + 4 * half];
    std::memcpy(p.sums + 4 * c, v, 4 * sizeof(float));
  }
}

void DecodePieceRun(const DecodePiece& p) {
  switch (p.w->code) {
    case CodeType::int4: return Piece<CodeType::int4>(p);
    case CodeType::int8: return Piece<CodeType::int8>(p);
    case CodeType::fp4: return Piece<CodeType::fp4>(p);
  }
}
#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace swordfish::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swordfish::cpu {
namespace {
HWY_EXPORT(DecodePieceRun);
HWY_EXPORT(DecodeXRun);

// Workspace: the table of x, then partial sums [split, m, n_blocks·64] (or, for split 1, [slots, m, 64]).
struct Workspace {
  std::size_t x, sums, total;
};
Workspace workspace(const Problem& p) {
  const Pieces pieces = cut(*p.weight);
  const std::size_t m = static_cast<std::size_t>(p.m);
  const std::size_t tiles =
      pieces.split > 1 ? static_cast<std::size_t>(pieces.count()) : static_cast<std::size_t>(std::max(p.threads, 1));
  Workspace s;
  s.x = 0;
  s.sums = align64(m * static_cast<std::size_t>(pieces.slices) * kSliceFloats * sizeof(float));
  s.total = s.sums + tiles * m * 64 * sizeof(float);
  return s;
}
}  // namespace

std::string decode_can_run(const Problem& p) {
  if (std::string why = common_can_run(p); !why.empty()) return why;
  if (p.m > kMaxRows) return "takes at most 8 rows of x; this problem has " + std::to_string(p.m);
  return {};
}

Plan decode_plan(const Problem& p) {
  const Pieces pieces = cut(*p.weight);
  Plan plan;
  plan.m = p.m;
  plan.tile_m = static_cast<int>(p.m);
  plan.tile_n = 64;
  plan.tasks = static_cast<int>(pieces.count());
  plan.split_k = pieces.split;
  plan.workspace = workspace(p).total;
  plan.reason = "M <= 8: reading the weight bounds the time, so each code is read once and unpacked in registers";
  return plan;
}

Status decode_launch(Context& context, const Problem& p, const Plan&, const RunArgs& a) {
  const PackedView& w = *p.weight;
  const Pieces pieces = cut(w);
  const Workspace at = workspace(p);
  auto* base = static_cast<std::byte*>(a.workspace);
  float* const x = reinterpret_cast<float*>(base + at.x);
  float* const sums = reinterpret_cast<float*>(base + at.sums);

  constexpr std::int64_t kChunk = 64;  // slices of x that a task prepares
  const std::int64_t chunks = (pieces.slices + kChunk - 1) / kChunk;
  const auto fill = [&](std::int64_t task, int) {
    const std::int64_t row = task / chunks, s = task % chunks * kChunk;
    HWY_DYNAMIC_DISPATCH(DecodeXRun)
    ({&w, p.x_type, static_cast<const std::uint16_t*>(a.x) + row * a.ldx, s, std::min(s + kChunk, pieces.slices),
      x + row * kSliceFloats, p.m * kSliceFloats});
  };
  if (p.m * chunks <= 8) {  // some µs: less than waking threads
    for (std::int64_t task = 0; task < p.m * chunks; ++task) fill(task, 0);
  } else {
    pool(context).parallel_for(p.m * chunks, fill);
  }

  const int rows = static_cast<int>(p.m);
  for_pieces(pool(context), std::max(p.threads, 1), pieces.count(), [&](std::int64_t piece, std::int64_t slot) {
    const std::int64_t nb = piece / pieces.split;
    const int range = static_cast<int>(piece % pieces.split);
    float* const out = sums + (pieces.split > 1 ? piece : slot) * p.m * 64;
    HWY_DYNAMIC_DISPATCH(DecodePieceRun)({&w, nb, pieces.begin(range), pieces.begin(range + 1), rows, x, out});
    if (pieces.split == 1) store_tile(p, a, nb, 0, p.m, out, 64, 1, 0);
  });
  if (pieces.split > 1) {
    for (std::int64_t nb = 0; nb < pieces.n_blocks; ++nb)
      store_tile(p, a, nb, 0, p.m, sums + nb * pieces.split * p.m * 64, 64, pieces.split, p.m * 64);
  }
  return {};
}

}  // namespace swordfish::cpu
#endif  // HWY_ONCE
