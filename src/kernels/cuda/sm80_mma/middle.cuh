// Middle: y[M,N] = x[M,K] · Wᵀ for M from 17 on, on mma64/1, by mma.sync; sm_80 and up. Up to eight m16 tiles of x share one stream
// of dequantized weights.
//
// Work partition. A tile is kColumns n64 columns × 16·kM16 tokens of y; a unit is 64 k (int8: 32 k) of a tile, a step kUnits of
// them. The steps of all tiles form one line (columns outermost, then tokens, then k), of which CTA c takes an even piece
// (Stream-K); the piece is cut into segments where a tile ends. A CTA's warps are groups; a segment is split evenly, in k order,
// over the groups, and in a group each warp has a column with all of its tokens (tiles of 128 tokens: two warps have half a column
// each, which halves the weights that a warp dequantizes for each product):
//
//     tile (columns 0…3, tokens 0…63)                     tile (columns 0…3, tokens 64…127)          tile (columns 4…7, …
//     |-------------------------------|-------------------|------------------------------|-----------|-------- ...
//     |<---------- CTA 0 ------------>|<------------- CTA 1 ---------------->|<------------ CTA 2 ------------->|
//     |  group 0      |    group 1    |  group 0|group 1  | group 0 | group 1|
//
//   A CTA that holds a tile's first step owns the tile. A CTA whose first segment belongs to an earlier CTA's tile hands it over as
//   fp32 through the workspace and a flag, and the owner adds the pieces in k order after its own. CTAs are numbered from the
//   grid's end: an owner waits only for CTAs that the hardware started before it.
//
// Main loop. Each group streams its steps through its own ring of slots: a lane copies (cp.async) the codes that it will consume,
// x and its warp's rows of planes. One named barrier of the group a step makes x visible and frees the previous slot.
//
//     unit: | codes, kColumns · 2048 | x: tokens × 64 k, 16-byte chunks xor-swizzled | per column: scale rows, zero rows |
//
// Arithmetic. A code becomes the exact 16-bit number q − zero (e2m1: the value), times its scale, rounded once to x's type;
// products add up in fp32, all of K in one set of accumulators. int4 with tiles of 32 tokens has registers for a second set: where
// a scale row of x's type covers whole steps, the products of a step add up without their scale, which then multiplies the sums;
// no weight is rounded (Scaling::sums). Scales of another type than x's are hi + lo, two numbers of x's type:
// v·scale = fma(v, hi, v·lo) is then rounded once but for 2^-17 (bf16) of the product (e4m3 and e8m0 are numbers of x's type). A
// zero point above 128, which with int4's base of 128 is no bf16 number, is hi + lo too. Sums over groups and CTAs: fp32,
// ascending k. y = round(fma(alpha, total, bias)).
//
// Invariants: every warp passes every iteration of a segment, so ring positions agree in the CTA; a slot is refilled only after the
// barrier that follows its last read; flags are zero before and after every launch; nothing but weights is read before
// griddepcontrol.wait, nothing is written before it.
//
// Budget: 8 warps, 255 registers, 227 KB: the ring is middle_ring's (shape.h).
//
// One file of more than 600 lines: copies, arithmetic and the ends of segments share the registers of one class and its ring.
#pragma once

#include "kernels/cuda/parts/dequantize.cuh"
#include "kernels/cuda/parts/planes.cuh"
#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/dependency.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/registers.h"
#include "kernels/cuda/ptx/warp.h"
#include "kernels/cuda/sm80_mma/common.cuh"

namespace swordfish::mma {

// The walk of a group's copies over the steps of its CTA, with the addresses of this lane at hand.
struct MiddleFeed {
  Share at;
  std::int32_t tile;
  std::int32_t left;            // steps of the CTA after this segment
  gptr<const std::byte> codes;  // this lane's first piece of the next step
  gptr<const std::uint16_t> x;  // this lane's chunk of its first token
  std::int32_t tokens;          // of the tile and of later ones, from this lane's first on
  std::int32_t row;             // of the planes, counted over all columns: the next step's first, or (Flush::slices) the column's
  std::int32_t rows;            // Flush::slices: the scale row of slice lane % 8, counted from the next step's first
  bool fresh;                   // Flush::units: at the first step of a segment
  SF_DEVICE bool live() const { return at.k < at.k_end; }
};

// How a scale is applied.
enum class Scaling {
  once,        // one number of x's type
  two,         // hi and lo, for the zero point too
  folded,      // e4m3: with the placement of e2m1's bits (sums are off by a power of two)
  sums,        // in fp32, to a step's sums
  plain_sums,  // the same, with one zero point for all
};

template <Weights weights, Half half, int kM16, Flush kFlush, int kColumns, int kUnits, int kStages>
struct Middle {
  using Shape = MiddleShape<weights, kM16, kFlush, kColumns>;
  static constexpr int kM8 = 2 * kM16;
  static constexpr int kPatches = 4 / Shape::halves;  // of 16 rows, a warp
  static constexpr int kTiles = kM16 < 4 ? kM16 : 4;  // of x in registers
  static constexpr int kGroupThreads = 32 * Shape::warps;
  static constexpr int kTokens = kGroupThreads / Shape::chunks;  // whose x the group copies at once; a multiple of 8
  static constexpr int kPasses = (Shape::tokens + kTokens - 1) / kTokens;
  static constexpr int kRows = kColumns * 2048 + Shape::x_bytes;  // offset of the rows in a slot
  static constexpr int kTileRows = 64 * kColumns;
  static constexpr int kBatch = kM16 == 4 ? 2 : 4;  // 16-byte pieces of a tile that a thread finishes at once
  static constexpr int kWords = (weights == Weights::int8 ? 8 : 4) / Shape::halves;  // of codes, a slice and lane
  static constexpr float kBase = weights == Weights::int8  ? -128.0f                 // in the fragment
                                 : weights == Weights::fp4 ? 0.0f
                                 : half == Half::bf16      ? 128.0f
                                                           : 1024.0f;

  static constexpr bool kCanSum = weights == Weights::int4 && kM16 == 2 && kFlush == Flush::units && kUnits == 2;  // Scaling::sums
  using Sums = float[kM8][kPatches][4];

  const DecodeArgs& a;
  int lane, warp, warps, groups, group, column, half_column;  // column: of the tile; half of it (0 where a warp has all)
  sptr<std::byte> codes_copy, x_copy, rows_at, converted;
  sptr<const std::byte> codes_read, x_read;
  int unit_size, scale_shift, extra_shift;
  std::int32_t unit_shift, group_mask;  // Flush::units: step k starts a scale row where k & mask == 0, and uses row k >> shift
  bool direct;                          // scales are of x's type and the zero point is constant
  bool two;                             // the row's scales or zero points need two numbers
  ptx::CachePolicy stream;
  std::uint32_t scale[kPatches / 2][4], zero[kPatches / 2][4];  // pairs of one value: row 16j + 8r + g at [j / 2][2 (j % 2) + r]
  std::uint32_t x[kTiles][4];                                   // B fragments of a slice (its first tiles), and
  std::uint32_t codes[kWords];                                  // its codes
  Sums total;

  SF_DEVICE explicit Middle(const DecodeArgs& args) : a(args) {}
  SF_DEVICE int thread() const { return 32 * (column * Shape::halves + half_column) + lane; }  // of the group
  SF_DEVICE int slot_size() const { return kUnits * unit_size; }

  // --- copies -------------------------------------------------------------------------------------------------------------------
  SF_DEVICE void aim(MiddleFeed& feed) const {
    const std::int32_t quad = feed.tile / a.m_groups, m0 = (feed.tile - quad * a.m_groups) * Shape::tokens;
    const std::int32_t n64 = quad * kColumns + column, unit = kUnits * feed.at.k;
    const std::int32_t from = n64 < a.columns ? n64 : a.columns - 1;  // past N: the last column again, for nothing
    feed.codes =
        a.codes + ((static_cast<std::int64_t>(from) * a.k_blocks + unit) * 2048 + (2048 / Shape::halves * half_column + 16 * lane));
    feed.row = from * a.rows;
    if constexpr (kFlush == Flush::units) {
      const std::int32_t row = unit >> unit_shift;
      feed.row += row < a.rows ? row : a.rows - 1;
    }
    feed.fresh = true;
    feed.tokens = a.m - m0 - thread() / Shape::chunks;
    feed.x = a.x + ((m0 + thread() / Shape::chunks) * a.ldx + unit * (16 * Shape::slices) + 8 * (thread() % Shape::chunks));
    read_rows(feed);
  }
  SF_DEVICE void read_rows(MiddleFeed& feed) const {
    if constexpr (kFlush == Flush::slices)
      feed.rows = row_of(a, feed.at.k * Shape::slices + (lane & 7), a.k_blocks * Shape::slices);
  }
  // Flush::units: whether the first unit of step k starts a scale row, or is the first of a segment.
  SF_DEVICE bool starts_row(std::int32_t k, bool fresh) const { return fresh || ((kUnits * k) & group_mask) == 0; }
  SF_DEVICE void step(MiddleFeed& feed) const {
    if constexpr (kFlush == Flush::units) {
      feed.fresh = false;
      if (((kUnits * feed.at.k + (kUnits - 1)) & group_mask) == group_mask) feed.row += group_mask == 0 ? kUnits : 1;
    }
    ++feed.at.k;
    feed.codes += kUnits * 2048;
    feed.x += kUnits * 16 * Shape::slices;
    if (--feed.at.turns > 0 || feed.left == 0) {
      read_rows(feed);
      return;
    }
    const std::int32_t length = feed.left < a.steps ? feed.left : a.steps;
    feed.left -= length;
    ++feed.tile;
    feed.at = share(0, length, group, groups);
    aim(feed);
  }
  // Where a row of a plane lies, and this lane's piece of it.
  SF_DEVICE gptr<const std::byte> plane_row(gptr<const std::byte> plane, std::int32_t row, int shift) const {
    return plane + ((static_cast<std::int64_t>(row) * 64 << shift) + 16 * lane);
  }
  // Flush::units: the row of planes of the unit at an offset.
  SF_DEVICE void copy_row(std::int32_t row, int unit) const {
    const sptr<std::byte> to = rows_at + (unit + 16 * lane);
    if (lane < 4 << scale_shift) ptx::cp_async_cg(to, plane_row(a.scales, row, scale_shift));
    if (extra_shift >= 0 && lane < 4 << extra_shift)
      ptx::cp_async_cg(to + (64 << scale_shift), plane_row(a.extra, row, extra_shift));
  }
  // Codes and x of unit `from` of the step, whose tokens there are, to the unit at an offset.
  template <bool kWeights, bool kX>
  SF_DEVICE void copy_unit(const MiddleFeed& feed, int from, std::int32_t tokens, int unit) const {
    if constexpr (kWeights) {
      SF_UNROLL
      for (int i = 0; i < 4 / Shape::halves; ++i)
        ptx::cp_async_cg_hint(codes_copy + (unit + 512 * i), feed.codes + (2048 * from + 512 * i), stream);
    }
    if constexpr (kX) {
      SF_UNROLL
      for (int i = 0; i < kPasses; ++i)
        if (kPasses * kTokens == Shape::tokens || thread() < Shape::chunks * (Shape::tokens - i * kTokens))
          ptx::cp_async_cg_zfill(x_copy + (unit + i * kTokens * 16 * Shape::chunks),
                                 feed.x + i * kTokens * a.ldx + from * 16 * Shape::slices, i * kTokens < tokens ? 16 : 0);
    }
  }
  // The copies of a step to the slot at an offset: codes with their rows of planes, x, or both. Where the step's second unit is
  // past K, the first comes again, and x is 0.
  template <bool kWeights, bool kX>
  SF_DEVICE void copy(const MiddleFeed& feed, int slot) const {
    const bool past = kUnits == 2 && 2 * feed.at.k + 1 == a.k_blocks;
    if (kWeights && half_column == 0) {
      if constexpr (kFlush == Flush::units) {
        if (starts_row(feed.at.k, feed.fresh)) copy_row(feed.row, slot);
        if (kUnits == 2 && group_mask == 0) copy_row(past ? feed.row : feed.row + 1, slot + unit_size);
      } else {
        const sptr<std::byte> to = rows_at + (slot + 16 * lane);
        copy_slice_rows<Shape::slices>(to, plane_row(a.scales, feed.row, scale_shift) - 16 * lane, scale_shift, feed.rows, lane);
        if (extra_shift >= 0)
          copy_slice_rows<Shape::slices>(to + (Shape::slices * 64 << scale_shift),
                                         plane_row(a.extra, feed.row, extra_shift) - 16 * lane, extra_shift, feed.rows, lane);
      }
    }
    copy_unit<kWeights, kX>(feed, 0, feed.tokens, slot);
    if constexpr (kUnits == 2) {
      if (past)
        copy_unit<kWeights, kX>(feed, 0, 0, slot + unit_size);
      else
        copy_unit<kWeights, kX>(feed, 1, feed.tokens, slot + unit_size);
    }
  }
  // --- rows of planes -----------------------------------------------------------------------------------------------------------
  static SF_DEVICE float element(PlaneType type, sptr<const std::byte> row, int n) {
    if (type == PlaneType::f32) {
      const float v = ptx::cast<const float>(row)[n];
      return v;
    }
    if (type == PlaneType::bf16 || type == PlaneType::f16 || type == PlaneType::i16) {
      const std::uint16_t v = ptx::cast<const std::uint16_t>(row)[n];
      if (type == PlaneType::i16) return static_cast<float>(static_cast<std::int16_t>(v));
      return type == PlaneType::bf16 ? ptx::to_f32<Half::bf16>(v, 0) : ptx::to_f32<Half::f16>(v, 0);
    }
    const std::uint8_t v = ptx::cast<const std::uint8_t>(row)[n];
    return byte_value(type, v);
  }
  // Pairs of one value for the rows of a fragment, of 64 16-bit numbers: matrices whose rows are all one 16-byte piece, transposed.
  SF_DEVICE void read_pairs(sptr<const std::byte> row, std::uint32_t (&out)[kPatches / 2][4]) const {
    SF_UNROLL
    for (int i = 0; i < kPatches / 2; ++i) ptx::ldmatrix<4, true>(out[i], row + (64 * (half_column + i) + 16 * (lane >> 3)));
  }
  // Turns row s of the slot into numbers of x's type: scale hi | zero hi | scale lo | −(zero lo · scale).
  SF_DEVICE void convert_row(int slot, int s) {
    if constexpr (kFlush == Flush::slices) ptx::syncwarp();  // every lane has read the row before (units: the group's barrier)
    const sptr<const std::byte> row = rows_at + (slot + (s * 64 << scale_shift));
    const sptr<const std::byte> other =
        rows_at + (slot + (Shape::scale_rows * 64 << scale_shift) + (extra_shift < 0 ? 0 : s * 64 << extra_shift));
    if (weights == Weights::int4 && kM16 == 2 && a.extra_kind == Extra::zeros && a.extra_type == PlaneType::u8 &&
        a.scale_type == (half == Half::bf16 ? PlaneType::bf16 : PlaneType::f16)) {
      // base + zero in one byte permutation, where base has room for the zero point.
      const std::uint32_t pair = ptx::cast<const std::uint16_t>(other)[lane];
      if (half == Half::f16 || !ptx::vote_any((pair & 0x8080u) != 0)) {
        (ptx::cast<std::uint32_t>(converted) + 32)[lane] = ptx::prmt(pair, half == Half::bf16 ? 0x43434343u : 0x64646464u, 0x4140);
        two = false;
        ptx::syncwarp();
        read_pairs(row, scale);
        read_pairs(converted + 128, zero);
        return;
      }
    }
    float sc[2], lo[2], z[2], z_lo[2];
    SF_UNROLL
    for (int i = 0; i < 2; ++i) {
      sc[i] = element(a.scale_type, row, 2 * lane + i);
      z[i] = kBase + (extra_shift < 0 ? a.zero : element(a.extra_type, other, 2 * lane + i));
    }
    const std::uint32_t s_hi = ptx::cvt_x2<half>(sc[0], sc[1]), z_hi = ptx::cvt_x2<half>(z[0], z[1]);
    SF_UNROLL
    for (int i = 0; i < 2; ++i) {
      lo[i] = ptx::add_f32(sc[i], -ptx::to_f32<half>(s_hi, i));
      z_lo[i] = ptx::mul_f32(ptx::add_f32(ptx::to_f32<half>(z_hi, i), -z[i]), sc[i]);
    }
    const sptr<std::uint32_t> to = ptx::cast<std::uint32_t>(converted) + lane;
    to[0] = s_hi;
    to[32] = z_hi;
    to[64] = ptx::cvt_x2<half>(lo[0], lo[1]);
    to[96] = ptx::cvt_x2<half>(z_lo[0], z_lo[1]);
    two = ptx::vote_any(lo[0] != 0 || lo[1] != 0 || z_lo[0] != 0 || z_lo[1] != 0);
    ptx::syncwarp();
    read_pairs(converted, scale);
    if constexpr (weights != Weights::fp4) read_pairs(converted + 128, zero);
  }
  // fp4: the step's four rows of e4m3 or e8m0 as 16-bit numbers, each lane 8 of the 256.
  SF_DEVICE void convert_step(int slot) const {
    const ptx::U32x2 in = ptx::ld<ptx::U32x2>(rows_at + (slot + 8 * lane));
    if (a.scale_type == PlaneType::e4m3)
      ptx::st(converted + 16 * lane,
              ptx::U32x4{e4m3_pair<half>(in.x, 0), e4m3_pair<half>(in.x, 1), e4m3_pair<half>(in.y, 0), e4m3_pair<half>(in.y, 1)});
    else
      ptx::st(converted + 16 * lane, ptx::U32x4{e8m0_pair(in.x, 0), e8m0_pair(in.x, 1), e8m0_pair(in.y, 0), e8m0_pair(in.y, 1)});
    ptx::syncwarp();
  }

  // --- arithmetic ---------------------------------------------------------------------------------------------------------------
  // (f − zero) · scale in x's type, of patch j.
  template <Scaling scaling>
  SF_DEVICE void apply(std::uint32_t (&f)[4], int j) const {
    std::uint32_t lo[2], shift[2];
    if constexpr (scaling == Scaling::two) {
      const int patch = j + kPatches * half_column;
      ptx::ldmatrix<2, true>(lo, converted + (256 + 32 * patch + 16 * (lane >> 3 & 1)));
      ptx::ldmatrix<2, true>(shift, converted + (384 + 32 * patch + 16 * (lane >> 3 & 1)));
    }
    SF_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t hi = scale[j >> 1][2 * (j & 1) + (i & 1)];
      if constexpr (weights != Weights::fp4) f[i] = ptx::sub_x2<half>(f[i], zero[j >> 1][2 * (j & 1) + (i & 1)]);
      if constexpr (scaling == Scaling::two)
        f[i] = ptx::fma_x2<half>(f[i], hi, ptx::fma_x2<half>(f[i], lo[i & 1], shift[i & 1]));
      else
        f[i] = ptx::mul_x2<half>(f[i], hi);
    }
  }
  // x of tile t of a slice; two chunks on: chunk ^ 2s, as the lane's own chunk has no such bit.
  SF_DEVICE void read_x(int t, int unit, int s) {
    ptx::ldmatrix<4>(x[t % kTiles],
                     ptx::address_xor(x_read + (unit + 256 * Shape::chunks * t), 32u * static_cast<std::uint32_t>(s)));
  }
  SF_DEVICE void read_codes(int slot, int s) {
    if constexpr (kWords == 2) {
      const ptx::U32x2 v = ptx::ld<ptx::U32x2>(codes_read + (slot + 512 * s));
      codes[0] = v.x, codes[1] = v.y;
    } else {
      SF_UNROLL
      for (int h = 0; h < kWords / 4; ++h) {
        const ptx::U32x4 v = ptx::ld<ptx::U32x4>(codes_read + (slot + 2048 / Shape::slices * s + 512 * h));
        codes[4 * h] = v.x, codes[4 * h + 1] = v.y, codes[4 * h + 2] = v.z, codes[4 * h + 3] = v.w;
      }
    }
  }
  // Adds the products of patch j and tile t to the sums; `first`: there are none yet.
  SF_DEVICE void multiply(int j, const std::uint32_t (&w)[4], int t, Sums& sums, bool first) {
    const std::uint32_t(&v)[4] = x[t % kTiles];
    const std::uint32_t b[2][2] = {{v[0], v[1]}, {v[2], v[3]}};
    constexpr float none[4] = {0, 0, 0, 0};
    SF_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (first)
        ptx::mma_m16n8k16<half>(sums[2 * t + i][j], w, b[i], none);
      else
        ptx::mma_m16n8k16<half>(sums[2 * t + i][j], w, b[i]);
    }
  }
  // Patch j of a slice's weights.
  template <Scaling scaling>
  SF_DEVICE void weights_of(const std::uint32_t (&words)[kWords], int j, std::uint32_t (&f)[4]) const {
    if constexpr (weights == Weights::int8) {
      int8_fragment<half>(words[2 * j], words[2 * j + 1], f);
    } else if constexpr (scaling == Scaling::plain_sums) {
      return int4_fragment_of<half>(words[j], zero[0][0], f);
    } else if constexpr (weights == Weights::int4) {
      int4_fragment_high<half>(words[j], f);
    } else if constexpr (scaling == Scaling::folded) {
      e2m1_fragment<half>(words[j], scale[j >> 1][2 * (j & 1)], scale[j >> 1][2 * (j & 1) + 1], f);
    } else {
      constexpr std::uint32_t unscale = half == Half::bf16 ? 0x7e807e80u : 0x74007400u;  // 2^126, 2^14
      e2m1_fragment<half>(words[j], unscale, unscale, f);
    }
    if constexpr (scaling == Scaling::sums) {
      SF_UNROLL
      for (int i = 0; i < 4; ++i) f[i] = ptx::sub_x2<half>(f[i], zero[j >> 1][2 * (j & 1) + (i & 1)]);
    } else if constexpr (scaling != Scaling::folded) {
      apply<scaling>(f, j);
    }
  }
  // Where a slice lies.
  struct Place {
    int unit, s;
  };
  // A slice, whose codes and first tiles of x are in registers; reads those of the next one, if there is one, x as soon as
  // registers are free.
  template <Scaling scaling>
  SF_DEVICE void slice(const Place& here, bool more, const Place& next, Sums& sums, bool first) {
    std::uint32_t now[kWords];
    SF_UNROLL
    for (int i = 0; i < kWords; ++i) now[i] = codes[i];
    if (more) read_codes(next.unit, next.s);
    if constexpr (kTiles == kM16) {  // patch by patch: x stays
      SF_UNROLL
      for (int j = 0; j < kPatches; ++j) {
        std::uint32_t f[4];
        weights_of<scaling>(now, j, f);
        SF_UNROLL
        for (int t = 0; t < kM16; ++t) {
          multiply(j, f, t, sums, first);
          if (j == kPatches - 1 && more) read_x(t, next.unit, next.s);
        }
      }
    } else {  // tile by tile: the weights stay
      std::uint32_t f[kPatches][4];
      SF_UNROLL
      for (int j = 0; j < kPatches; ++j) weights_of<scaling>(now, j, f[j]);
      SF_UNROLL
      for (int t = 0; t < kM16; ++t) {
        SF_UNROLL
        for (int j = 0; j < kPatches; ++j) multiply(j, f[j], t, sums, first);
        if (t + kTiles < kM16)
          read_x(t + kTiles, here.unit, here.s);
        else if (more)
          read_x(t + kTiles - kM16, next.unit, next.s);
      }
    }
  }
  // Slice s of the unit at an offset, which another of the step may follow.
  template <Scaling scaling>
  SF_DEVICE void slice_of_step(int unit, int s, Sums& sums, bool another = false, bool first = false) {
    const bool last = s + 1 == Shape::slices;
    slice<scaling>({unit, s}, !last || another, {last ? unit + unit_size : unit, last ? 0 : s + 1}, sums, first);
  }
  template <Scaling scaling>
  SF_DEVICE void slice_of_step(int unit, int s, bool another = false) {
    slice_of_step<scaling>(unit, s, total, another);
  }
  // A step that one scale row covers: one multiplication of fp32 for each of its sums instead of one for each pair of weights.
  template <Scaling scaling>
  SF_DEVICE void sum_step(int slot) {
    Sums sums;
    SF_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      SF_UNROLL
      for (int s = 0; s < Shape::slices; ++s)
        slice_of_step<scaling>(slot + u * unit_size, s, sums, u + 1 < kUnits, u == 0 && s == 0);
    }
    SF_UNROLL
    for (int i = 0; i < 2 * kPatches; ++i) {
      const float of_row = ptx::to_f32<half>(scale[i >> 2][i & 3], 1);
      SF_UNROLL
      for (int e = 0; e < 2 * kM8; ++e) {
        float& sum = total[e >> 1][i >> 1][2 * (i & 1) + (e & 1)];
        sum = ptx::fma_f32(sums[e >> 1][i >> 1][2 * (i & 1) + (e & 1)], of_row, sum);
      }
    }
  }
  // `fresh`: the first step of a segment.
  SF_DEVICE void consume(const Share& at, int slot, bool fresh) {
    read_codes(slot, 0);
    SF_UNROLL
    for (int t = 0; t < kTiles; ++t) read_x(t, slot, 0);
    if constexpr (kFlush == Flush::units) {
      // A path of its own is 3 % faster; with half columns it takes too many registers. It stands last: before the other it was 4 %
      // slower at 64 tokens.
      const bool simple = Shape::halves == 1 && direct;
      bool new_row = starts_row(at.k, fresh);
      if constexpr (kCanSum) {
        if (group_mask != 0) {
          if (new_row && direct) read_pairs(rows_at + slot, scale);
          if (new_row && !direct) convert_row(slot, 0);
          if (direct) return sum_step<Scaling::plain_sums>(slot);
          if (!two) return sum_step<Scaling::sums>(slot);
          new_row = false;
        }
      }
      SF_UNROLL
      for (int u = 0; u < kUnits && !simple; ++u) {
        const int unit = slot + u * unit_size;
        if (u == 0 ? new_row : group_mask == 0) {
          if (Shape::halves == 2 && direct)
            read_pairs(rows_at + unit, scale);
          else
            convert_row(unit, 0);
        }
        if (!two) {
          SF_UNROLL
          for (int s = 0; s < Shape::slices; ++s) slice_of_step<Scaling::once>(unit, s, u + 1 < kUnits);
        } else {
          SF_NO_UNROLL
          for (int s = 0; s < Shape::slices; ++s) slice_of_step<Scaling::two>(unit, s, u + 1 < kUnits);
        }
      }
      SF_UNROLL
      for (int u = 0; u < kUnits && simple; ++u) {
        const int unit = slot + u * unit_size;
        if (u == 0 ? new_row : group_mask == 0) read_pairs(rows_at + unit, scale);
        SF_UNROLL
        for (int s = 0; s < Shape::slices; ++s) slice_of_step<Scaling::once>(unit, s, u + 1 < kUnits);
      }
    } else if (direct) {
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; ++s) {
        read_pairs(rows_at + (slot + 128 * s), scale);
        slice_of_step<Scaling::once>(slot, s);
      }
    } else if (weights == Weights::fp4 && scale_shift == 0) {
      convert_step(slot);
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; ++s) {
        read_pairs(converted + 128 * s, scale);
        if (a.scale_type == PlaneType::e4m3)
          slice_of_step<weights == Weights::fp4 ? Scaling::folded : Scaling::once>(slot, s);
        else
          slice_of_step<Scaling::once>(slot, s);
      }
    } else {
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; ++s) {
        convert_row(slot, s);
        if (two)
          slice_of_step<Scaling::two>(slot, s);
        else
          slice_of_step<Scaling::once>(slot, s);
      }
    }
  }

  // --- the end of a segment -----------------------------------------------------------------------------------------------------
  // Writes this warp's totals of `count` tiles of 8 tokens from `first` on as [token][64 n].
  SF_DEVICE void put_totals(int first, int count, sptr<std::byte> place) const {
    const sptr<float> to = ptx::cast<float>(place);
    const int g = lane / 4, t2 = 2 * (lane % 4);
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      if (t < first || t >= first + count) continue;
      SF_UNROLL
      for (int e = 0; e < 4; ++e) {
        SF_UNROLL
        for (int j = 0; j < kPatches; ++j)
          to[(8 * (t - first) + t2 + (e & 1)) * Shape::token_stride + 16 * (j + kPatches * half_column) + 8 * (e >> 1) + g] =
              total[t][j][e];
      }
    }
  }

  static SF_DEVICE std::int32_t this_cta() { return static_cast<std::int32_t>(ptx::nctaid_x() - 1 - ptx::ctaid_x()); }
  // Adds the groups' totals of a segment of a tile, `rest` steps before the CTA's end, and stores them or hands them to the tile's
  // owner. They go through the slot just consumed, some tokens a round; at the CTA's end the whole ring is free.
  SF_DEVICE void finish_segment(sptr<std::byte> rings, int slot, std::int32_t tile, std::int32_t rest) {
    const std::int32_t cta = this_cta(), from = first_unit(a, cta), to = first_unit(a, cta + 1) - rest;
    const std::int32_t tile_end = (tile + 1) * a.steps;
    const bool owner = from <= tile * a.steps, whole = to == tile_end;
    const std::int32_t quad = tile / a.m_groups, m0 = (tile - quad * a.m_groups) * Shape::tokens;
    const std::int32_t tokens = a.m - m0 < Shape::tokens ? a.m - m0 : Shape::tokens;
    const int thread = 32 * warp + lane, threads = 32 * warps, ring = kStages * slot_size();
    constexpr int eight_bytes = 8 * Shape::token_stride * 4;  // of 8 tokens of a column
    const int room = (rest == 0 ? ring : slot_size()) / (kColumns * eight_bytes), eights = room < kM8 ? room : kM8;
    const int place = rest == 0 ? 0 : slot;
    const int piece_bytes = eights * eight_bytes;
    if (owner && !whole && warp == 0) {
      for (std::int32_t c = cta + 1 + lane; first_unit(a, c) < tile_end; c += 32) {
        while (ptx::ld_acquire(a.flags + c) == 0) {
        }
      }
    }
    // A thread has four rows of the tile, and every threads / (kTileRows / 4)-th token.
    const int n = 4 * thread % kTileRows, first_token = 4 * thread / kTileRows, tokens_at_once = 4 * threads / kTileRows;
    StorePlace to_y = store_place(a, quad * kColumns + n / 64, n % 64);
    if constexpr (weights == Weights::fp4) {
      constexpr float undo = half == Half::bf16 ? 0x1p8f : 0x1p7f;  // 2^(e2m1_shift − e4m3_shift)
      if (a.scale_type == PlaneType::e4m3) to_y.alpha = ptx::mul_f32(to_y.alpha, undo);
    }
    constexpr std::int64_t piece = Shape::tokens * kTileRows;
    const sptr<const std::byte> mine = rings + (place + n / 64 * piece_bytes + 4 * (n % 64));
    ptx::bar_sync(0);  // the groups have read their slots, and the pieces are here
    SF_NO_UNROLL
    for (int first = 0; 8 * first < tokens; first += eights) {
      put_totals(first, eights, rings + (group * ring + place + column * piece_bytes));
      ptx::bar_sync(0);
      const int left = tokens - 8 * first < 8 * eights ? tokens - 8 * first : 8 * eights;
      SF_NO_UNROLL
      for (int t0 = first_token; t0 < left; t0 += kBatch * tokens_at_once) {
        // All loads at once: those past the end read the last token again.
        ptx::F32x4 v[kBatch];
        int t[kBatch];
        SF_UNROLL
        for (int u = 0; u < kBatch; ++u) {
          t[u] = t0 + u * tokens_at_once < left ? t0 + u * tokens_at_once : left - 1;
          v[u] = {0, 0, 0, 0};
        }
        SF_NO_UNROLL
        for (int g = 0; g < groups; ++g) {
          SF_UNROLL
          for (int u = 0; u < kBatch; ++u) add(v[u], ptx::ld<ptx::F32x4>(mine + (g * ring + 4 * Shape::token_stride * t[u])));
        }
        const std::int32_t at = 8 * first * kTileRows + n;  // in a piece
        if (!owner) {
          SF_UNROLL
          for (int u = 0; u < kBatch; ++u)
            if (t0 + u * tokens_at_once < left) ptx::st(a.pieces + (cta * piece + (at + t[u] * kTileRows)), v[u]);
          continue;
        }
        if (!whole) {
          SF_NO_UNROLL
          for (std::int32_t c = cta + 1; first_unit(a, c) < tile_end; ++c) {
            SF_UNROLL
            for (int u = 0; u < kBatch; ++u) add(v[u], ptx::ld<ptx::F32x4>(a.pieces + (c * piece + (at + t[u] * kTileRows))));
          }
        }
        SF_UNROLL
        for (int u = 0; u < kBatch; ++u)
          if (t0 + u * tokens_at_once < left) store_four(a, to_y, m0 + 8 * first + t[u], v[u]);
      }
      ptx::bar_sync(0);
    }
    clear_totals();
    if (thread == 0 && !(owner && whole)) {
      if (!owner)
        ptx::red_add_release(a.flags + cta, 1);
      else
        for (std::int32_t c = cta + 1; first_unit(a, c) < tile_end; ++c) ptx::st_relaxed(a.flags + c, 0);
    }
  }
  SF_DEVICE void clear_totals() {
    SF_UNROLL
    for (int i = 0; i < 4 * kPatches * kM8; ++i) total[i / (4 * kPatches)][i / 4 % kPatches][i % 4] = 0;
  }

  // --- the whole ----------------------------------------------------------------------------------------------------------------
  SF_DEVICE void run(sptr<std::byte> smem) {
    const std::int32_t position = first_unit(a, this_cta()), end = first_unit(a, this_cta() + 1);
    groups = warps / Shape::warps;
    group = warp / Shape::warps;
    column = warp % Shape::warps / Shape::halves;
    half_column = warp % Shape::halves;
    scale_shift = plane_shift(a.scale_type);
    extra_shift = a.extra_kind == Extra::zeros ? plane_shift(a.extra_type) : -1;
    direct = extra_shift < 0 && a.scale_type == (half == Half::bf16 ? PlaneType::bf16 : PlaneType::f16);
    two = false;
    unit_size = ptx::pinned(Shape::unit_bytes(scale_shift, extra_shift));
    constexpr int slices_log = Shape::slices == 4 ? 2 : 1;
    unit_shift = a.group_shift < 31 ? a.group_shift - slices_log : 31;
    group_mask = unit_shift < 31 ? (1 << (unit_shift > 0 ? unit_shift : 0)) - 1 : 0x7fffffff;
    const int ring_size = kStages * slot_size();
    const sptr<std::byte> rings = ptx::carve<std::byte>(smem, static_cast<std::size_t>(groups * ring_size));
    converted = ptx::carve<std::byte>(smem, static_cast<std::size_t>(warps * kConvertedBytes)) + warp * kConvertedBytes;
    const sptr<std::byte> ring = rings + group * ring_size;
    stream = a.m_groups == 1 ? ptx::policy_evict_first() : ptx::policy_evict_normal();
    group_mask = ptx::pinned(group_mask);
    codes_copy = ptx::pinned(ring + (2048 * column + 2048 / Shape::halves * half_column + 16 * lane));
    codes_read = codes_copy;
    if constexpr (Shape::halves == 2)  // words 0, 1 or 2, 3 of a sub-tile, or its first or second 16-byte pieces
      codes_read = ptx::pinned(ring + (2048 * column + (weights == Weights::int8 ? 512 : 8) * half_column + 16 * lane));
    x_copy = ptx::pinned(ring + (kColumns * 2048 + x_offset<Shape::chunks>(thread() / Shape::chunks, thread() % Shape::chunks)));
    x_read = ptx::pinned(ring + (kColumns * 2048 + x_offset<Shape::chunks>((lane & 7) + 8 * (lane >> 4), lane >> 3 & 1)));
    rows_at = ptx::pinned(ring + (kRows + column * Shape::row_bytes(scale_shift, extra_shift)));
    SF_UNROLL
    for (int i = 0; i < 2 * kPatches; ++i) zero[i >> 2][i & 3] = ptx::cvt_x2<half>(kBase + a.zero, kBase + a.zero);

    MiddleFeed feed;
    feed.tile = position / a.steps;
    const std::int32_t k0 = position - feed.tile * a.steps;
    std::int32_t length = a.steps - k0;
    length = length < end - position ? length : end - position;
    feed.left = end - position - length;
    feed.at = share(k0, length, group, groups);
    feed.rows = 0;
    aim(feed);

    ptx::griddep_launch_dependents();
    std::int32_t tile = feed.tile, rest = feed.left;
    Share at = feed.at;
    MiddleFeed early = feed;
    SF_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      if (early.live()) copy<true, false>(early, i * slot_size());
      step(early);
    }
    ptx::griddep_wait();
    SF_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      if (feed.live()) copy<false, true>(feed, i * slot_size());
      ptx::cp_async_commit();
      step(feed);
    }
    clear_totals();

    int slot = 0, refill = (kStages - 1) * slot_size();  // offsets in the ring
    for (;;) {
      bool fresh = true;
      do {
        ptx::cp_async_wait<kStages - 2>();
        ptx::bar_sync(1 + group, kGroupThreads);
        if (feed.live()) copy<true, true>(feed, refill);
        ptx::cp_async_commit();
        step(feed);
        if (at.k < at.k_end) consume(at, slot, fresh);
        fresh = false;
        ++at.k;
        refill = slot;
        slot += slot_size();
        slot = slot == ring_size ? 0 : slot;
      } while (--at.turns > 0);
      finish_segment(rings, refill, tile, rest);
      if (rest == 0) return;
      ++tile;
      length = rest < a.steps ? rest : a.steps;
      rest -= length;
      at = share(0, length, group, groups);
    }
  }
};

// Launched with MiddleShape::warps · groups warps, at most kMaxWarps. kUnits and kStages 0: as the architecture has room.
template <Weights weights, Half half, int kM16, Flush kFlush, int kColumns, int kMaxWarps, int kUnits = 0, int kStages = 0>
SF_KERNEL void SF_LAUNCH_BOUNDS(32 * kMaxWarps, 1) middle_kernel(const SF_GRID_CONSTANT DecodeArgs args) {
  constexpr MiddleRing ring = middle_ring<MiddleShape<weights, kM16, kFlush, kColumns>>(kFlush, kSharedMemory);
  Middle<weights, half, kM16, kFlush, kColumns, kUnits ? kUnits : ring.units, kStages ? kStages : ring.stages> middle(args);
  middle.lane = static_cast<int>(ptx::laneid());
  middle.warp = static_cast<int>(ptx::shfl_idx(ptx::warpid(), 0));
  middle.warps = static_cast<int>(ptx::ntid_x() / 32);
  middle.run(ptx::dyn_smem());
}

}  // namespace swordfish::mma
