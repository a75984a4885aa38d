// Decode: y[M,N] = x[M,K] · Wᵀ for few rows of x (8 or 16 a launch) on mma64/1, by mma.sync; sm_80 and up, bound by memory.
//
// Work partition. A unit is one 2,048-byte block of codes (64 rows of W × 64 k; int8: 32 k); a step is kUnits of them, with the x
// and the scales they need. The steps of all columns, column by column, form one line of `columns · steps`; CTA c takes an even
// piece of it. The piece is cut into segments where a column ends, and a segment is split evenly, in k order, over the CTA's warps:
//
//     column 0                        column 1                        column 2
//     |--------------------------|----|---------------------|---------|----------------- ...
//     |<-------- CTA 0 --------->|<--------- CTA 1 -------->|<-------- CTA 2 -------->|
//                                |seg.|<---- segment ------>|<-seg.-->|<-- segment -->|
//                                 w0…w15      w0…w15          w0…w15       w0…w15
//
//   A CTA that holds a column's first step owns the column. A CTA whose first segment belongs to an earlier CTA's column hands it
//   over as fp32, and the owner adds the pieces in k order after its own: through the workspace and a flag, or, where the CTAs of a
//   cluster share whole columns (sm_90 and up), through the owner's shared memory and the cluster's barrier. Pieces come first in
//   their CTAs and owners' incomplete columns last, so the owner seldom waits. CTAs are numbered from the grid's end: an owner
//   waits only for CTAs that the hardware started before it.
//
// Main loop. Each warp streams its steps through its own ring of kStages slots in shared memory: a lane copies (cp.async) the
// 16-byte pieces of codes that it will consume; x and the scale rows are shared by the warp. One bar.warp.sync a step makes x
// visible and frees the previous slot; no CTA barrier except at a segment's end. Weights are operand A (16 rows of W × 16 k), x is
// operand B (16 k × 8 tokens): half the mma work for M ≤ 8 of the usual way round.
//
//     slot: | codes | x: 8·kM8 tokens × the step's k, 16-byte chunks xor-swizzled | scale rows | zero or offset rows |
//
// Arithmetic. Codes become exact 16-bit numbers q − base (parts/dequantize.cuh: base −16 for int4, 128 for int8). An mma whose A is
// base − zero everywhere gives (base − zero)·Σx over the k between two applications of the scale; the sums of products start from
// it instead of from 0, and then total += scale · sum, one fp32 fma. Where zero points vary by row (or are no 16-bit number), A is
// base, and sum −= zero · Σx by an fma more; but bytes of int4 for M ≤ 8 start the sums by another mma (start_sums). With an offset
// plane total += offset · Σx. e2m1 has no base and no Σx; with e4m3 scales, and e8m0 for bf16 x, value · scale is exact in 16 bits
// and goes into the fragment. Sums over warps and CTAs: fp32, ascending k. y = round(fma(alpha, total, bias)), once, to y's type.
//
// Invariants: every warp passes every iteration of a segment (idle ones too), so ring positions agree in the CTA; a slot is
// refilled only after the barrier that follows its last read; flags are zero before and after every launch; nothing but weights is
// read before griddepcontrol.wait, nothing is written before it.
//
// Budget: M ≤ 8: 16 warps, 1 CTA/SM, or 8 warps, 2 CTAs/SM, ≤ 128 registers, 2 stages of 2 units, 6.3 KB a warp: 200 (100) KB (or
// 3 stages of one unit). M ≤ 16: the same, 3 stages of 4.3 KB: 209 (104) KB; 12 warps where rows change inside of units and
// are not in the fragments.
//
// One file of more than 600 lines: copies, arithmetic and the ends of segments share the registers of one class and its ring.
#pragma once

#include "kernels/cuda/parts/dequantize.cuh"
#include "kernels/cuda/parts/planes.cuh"
#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/cluster.h"
#include "kernels/cuda/ptx/dependency.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/registers.h"
#include "kernels/cuda/ptx/warp.h"
#include "kernels/cuda/sm80_mma/common.cuh"

namespace swordfish::mma {

// The walk of a warp's copies over the steps of its CTA: segment by segment, its own share of each, with addresses at hand.
struct Feed {
  Share at;
  std::int32_t column;
  std::int32_t left;            // steps of the CTA after this segment
  gptr<const std::byte> codes;  // of this lane's first piece of the next step
  // Of the column's first row: this lane's piece, where it always takes the same (Flush::units: of the extra plane, if the lane is
  // past the scales). Where sums are carried on, of the next row.
  gptr<const std::byte> scales, extra;
  gptr<const std::uint16_t> x;  // this lane's chunk of its first token
  std::int32_t rows;            // kDynamic: the scale row of slice lane % 8, from the next step's first on
  SF_DEVICE bool live() const { return at.k < at.k_end; }
};

template <Weights weights, Half half, int kM8, Flush kFlush, int kWarps, int kStages, int kUnits>
struct Decode {
  using Shape = DecodeShape<weights, kM8, kFlush, kUnits>;
  static constexpr bool kSums = Shape::sums;
  static constexpr bool kFolded = scaled_in_fragment(weights);  // scales are in the fragments
  static constexpr bool kDynamic = kFlush == Flush::slices && !kFolded;
  // Sums live until a row ends, which may be steps later; else every step ends with the scale.
  static constexpr bool kCarry = kDynamic || (kFlush == Flush::units && (kM8 == 2 || weights == Weights::int8));
  // Rows end with steps: which sums are the first of a row is known before the step.
  static constexpr bool kFresh = kCarry && kFlush == Flush::units && kM8 == 2;
  static constexpr int kRows = Shape::code_bytes + Shape::x_bytes;  // offset of the scale rows in a slot
  static constexpr int kTokens = 32 / Shape::chunks;                // tokens whose x the warp copies at once
  static constexpr int kPasses = 8 * kM8 / kTokens;
  static constexpr int kXSlices = kM8 == 1 ? 2 : 1;  // whose x one ldmatrix.x4 brings
  static constexpr int kSpan =                       // slices between two applications of the scale, as far as that is known
      kFlush == Flush::units && !kCarry ? Shape::slices
      : kFlush == Flush::pairs          ? 2
                                        : kXSlices;
  static constexpr int kInbox = 8 * kM8 * 64 * 4;  // bytes
  static constexpr float kBase = weights == Weights::int4 ? -16.0f : 128.0f;

  const DecodeArgs& a;
  int lane, warp;
  // In this warp's first slot: the lane's 16 bytes of the codes, its chunk of x to copy first, its row of the scales (kM8 = 1, or
  // kFolded: of the converted ones) and of x for the first ldmatrix. Kept in registers (ptx::pinned).
  sptr<std::byte> codes_at, x_copy;
  sptr<const std::byte> row_read, x_read;
  sptr<std::byte> converted;  // kFolded: the step's scales, rows of 64 16-bit numbers. zeros_by_mma: zero points, and constants
  sptr<const std::byte> row_zeros;  // where this lane reads them
  sptr<float> inbox;                // the pieces of the cluster's next CTAs, [CTA][token][64]
  int slot_size, scale_shift, extra_shift;
  std::int32_t group_mask, step_shift;  // Flush::units: step k uses row k >> shift, and ends it where k & mask == mask
  std::uint32_t flushes;                // kDynamic: the slices after which the scale is applied, 4 bits a step under way
  int row_lanes;                        // Flush::units: 16-byte pieces of a row, with those of the extra plane
  std::uint32_t row_pitch;              // and the bytes of this lane's plane a row
  std::int32_t tokens_left;             // a.m − this lane's first token
  std::uint32_t x_factor;               // not kCarry: the pair that x is multiplied by for x_sum
  bool direct, plain;                   // scales are of x's type; nothing but they is applied when a row ends
  bool zero_rows;                       // zero points start the sums
  bool fresh;                           // kFresh: the sums hold nothing
  ptx::CachePolicy stream;
  float total[kM8][4][4];
  float sum[kM8][4][4];
  float x_sum[kM8][4];

  SF_DEVICE explicit Decode(const DecodeArgs& args) : a(args) {}

  // Whether x_sum takes a constant zero point off, which it can as a number of x's type.
  SF_DEVICE bool zero_in_factor() const {
    const float v = kBase - a.zero;
    return a.extra_kind == Extra::none && ptx::to_f32<half>(ptx::cvt_x2<half>(v, v), 0) == v;
  }
  SF_DEVICE bool clustered() const { return ptx::kClusters && a.cluster > 1; }

  // --- copies -------------------------------------------------------------------------------------------------------------------
  SF_DEVICE void aim(Feed& feed) const {
    std::int64_t row = static_cast<std::int64_t>(feed.column) * a.rows;
    if constexpr (kCarry && kFlush == Flush::units) row += feed.at.k >> step_shift;
    row *= 64;
    const int piece = kFolded ? 16 * (lane & 3) : kFlush == Flush::units ? 16 * lane : 0, scale_bytes = 64 << scale_shift;
    feed.codes = a.codes + ((static_cast<std::int64_t>(feed.column) * a.k_blocks + kUnits * feed.at.k) * 2048 + 16 * lane);
    feed.scales = a.scales + ((row << scale_shift) + piece);
    if constexpr (kFlush == Flush::units) {
      if (extra_shift >= 0 && piece >= scale_bytes) feed.scales = a.extra + ((row << extra_shift) + (piece - scale_bytes));
    } else if constexpr (kSums) {
      if (extra_shift >= 0) feed.extra = a.extra + (row << extra_shift);
    }
    feed.x = a.x + (lane / Shape::chunks * a.ldx + feed.at.k * (16 * Shape::slices) + 8 * (lane % Shape::chunks));
    read_rows(feed);
  }
  SF_DEVICE void read_rows(Feed& feed) const {
    if constexpr (kDynamic) feed.rows = row_of(a, feed.at.k * Shape::slices + (lane & 7), a.k_blocks * Shape::slices / kUnits);
  }
  SF_DEVICE void step(Feed& feed) const {
    ++feed.at.k;
    feed.codes += Shape::code_bytes;
    feed.x += 16 * Shape::slices;
    if (--feed.at.turns > 0 || feed.left == 0) {
      read_rows(feed);
      return;
    }
    const std::int32_t length = feed.left < a.steps ? feed.left : a.steps;
    feed.left -= length;
    ++feed.column;
    feed.at = share(0, length, warp, kWarps);
    aim(feed);
  }
  // kCarry, Flush::units: whether the scale is applied after step k.
  SF_DEVICE bool ends_row(const Share& at) const { return (at.k & group_mask) == group_mask || at.k + 1 == at.k_end; }

  // The copies of a step to the slot at an offset: codes with their scale (and zero or offset) rows, x, or both. Where the step's
  // second unit is past K, the first comes again, and x is 0. Hardly a branch.
  template <bool kWeights, bool kX>
  SF_DEVICE void copy(Feed& feed, int slot) {
    const bool past = kUnits == 2 && 2 * feed.at.k + 1 == a.k_blocks;
    if constexpr (kWeights) {
      SF_UNROLL
      for (int i = 0; i < 4; ++i) ptx::cp_async_cg_hint(codes_at + (slot + 512 * i), feed.codes + 512 * i, stream);
      if constexpr (kUnits == 2) {
        const gptr<const std::byte> second = feed.codes + (past ? 0 : 2048);
        SF_UNROLL
        for (int i = 0; i < 4; ++i) ptx::cp_async_cg_hint(codes_at + (slot + 2048 + 512 * i), second + 512 * i, stream);
      }
    }
    if constexpr (kX) {
      if (past)
        copy_x<true>(feed, slot);
      else
        copy_x<false>(feed, slot);
    }
    if constexpr (kWeights) {
      const sptr<std::byte> to = codes_at + (slot + kRows);
      if constexpr (kFolded) {
        const std::int32_t row = regular_row(feed.at.k, lane >> 2);
        if (Shape::scale_rows == 8 || lane < 4 * Shape::scale_rows)
          ptx::cp_async_cg(to, feed.scales + static_cast<std::int64_t>(row) * 64);
      } else if constexpr (kFlush == Flush::units) {
        if constexpr (kCarry) {
          const bool ends = ends_row(feed.at);
          if (ends && lane < row_lanes) ptx::cp_async_cg(to, feed.scales);
          feed.scales += ends ? row_pitch : 0;
        } else {
          const std::uint64_t row = static_cast<std::uint32_t>(feed.at.k >> step_shift);
          if (lane < row_lanes) ptx::cp_async_cg(to, feed.scales + static_cast<std::int64_t>(row * row_pitch));
        }
      } else {
        copy_rows(feed, to, feed.scales, scale_shift);
        if constexpr (kSums)
          if (a.extra_kind != Extra::none) copy_rows(feed, to + (Shape::scale_rows * 64 << scale_shift), feed.extra, extra_shift);
        if constexpr (kDynamic) {
          const std::int32_t next = ptx::bits_as<std::int32_t>(ptx::shfl_down(static_cast<std::uint32_t>(feed.rows), 1));
          std::uint32_t mask = ptx::vote_ballot(feed.rows != next) & ((1u << Shape::slices) - 1);
          if (feed.at.k + 1 == feed.at.k_end) mask |= 1u << (Shape::slices - 1);
          flushes |= mask;
        }
      }
    }
  }
  template <bool kPast>
  SF_DEVICE void copy_x(const Feed& feed, int slot) const {
    copy_tokens<kPast>(feed, slot, 0);
    if (kM8 == 2 || a.m > kTokens) {
      SF_UNROLL
      for (int i = 1; i < kPasses; ++i) copy_tokens<kPast>(feed, slot, i);
    }
  }
  // The tokens kTokens · i on from the lane's first. The swizzle of their rows differs by what that moves the row.
  template <bool kPast>
  SF_DEVICE void copy_tokens(const Feed& feed, int slot, int i) const {
    if (i * kTokens >= tokens_left) return;
    const int flip = Shape::chunks < 8 ? 0 : (kTokens * i & 7) * 16;
    const sptr<std::byte> to =
        flip == 0 ? x_copy + (slot + 512 * i) : ptx::address_xor(x_copy + slot, static_cast<std::uint32_t>(flip)) + 512 * i;
    const gptr<const std::uint16_t> from = feed.x + i * kTokens * a.ldx;
    if constexpr (kPast)
      ptx::cp_async_cg_zfill(to, from, lane % Shape::chunks < Shape::chunks / 2 ? 16 : 0);
    else
      ptx::cp_async_cg(to, from);
  }
  // The plane's row of the r-th row of step k, where no table says it: a row covers whole slices (Flush::pairs: whole pairs).
  SF_DEVICE std::int32_t regular_row(std::int32_t k, int r) const {
    const std::int32_t row = (k * Shape::scale_rows + r) >> (kFlush == Flush::pairs ? a.group_shift - 1 : a.group_shift);
    return row < a.rows ? row : a.rows - 1;
  }
  SF_DEVICE void copy_rows(const Feed& feed, sptr<std::byte> to, gptr<const std::byte> plane, int shift) const {
    if constexpr (kFlush == Flush::slices) {
      copy_slice_rows<Shape::scale_rows>(to, plane, shift, feed.rows, lane);
    } else {  // pairs: at most 32 pieces of two rows
      const int r = lane >> (2 + shift);
      const std::int32_t row = regular_row(feed.at.k, r);
      if (r < Shape::scale_rows) ptx::cp_async_cg(to, plane + ((row * 64 << shift) + 16 * (lane & ((4 << shift) - 1))));
    }
  }
  // --- arithmetic ---------------------------------------------------------------------------------------------------------------
  SF_DEVICE void clear_sums() {
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 16; ++e) sum[t][e >> 2][e & 3] = 0;
      SF_UNROLL
      for (int e = 0; e < 4; ++e) x_sum[t][e] = 0;
    }
  }

  // sum += factor · x_sum, by row of the fragment.
  template <class Factor>
  SF_DEVICE void add_x(Factor factor) {
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 16; ++e)
        sum[t][e >> 2][e & 3] = ptx::fma_f32(factor(e >> 2, e >> 1 & 1), x_sum[t][e & 1], sum[t][e >> 2][e & 3]);
    }
  }
  SF_DEVICE void add_scaled(const float (&scale)[4][2]) {
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 16; ++e)
        total[t][e >> 2][e & 3] = ptx::fma_f32(scale[e >> 2][e >> 1 & 1], sum[t][e >> 2][e & 3], total[t][e >> 2][e & 3]);
    }
  }
  // What x_sum, a multiple of Σx, is multiplied by to take a zero point off (kCarry: and base): exact.
  static constexpr float kPerX = kCarry ? 1.0f : kBase;
  SF_DEVICE static float zero_factor(float zero) { return ptx::fma_f32(zero, -1 / kPerX, kCarry ? kBase : 0.0f); }
  // A row of them. Bytes are turned into 16-bit numbers by all lanes together, in `scratch`.
  SF_DEVICE void read_zeros(sptr<const std::byte> row, sptr<std::byte> scratch, float (&out)[4][2]) const {
    if ((kM8 == 1 || kFresh) && a.extra_type == PlaneType::u8) {
      constexpr bool int4 = weights == Weights::int4;
      constexpr std::uint32_t by = kCarry ? 0xbc00bc00u : int4 ? 0x2c002c00u : 0xa000a000u;  // −1, 1/16, −1/128: −1/kPerX
      constexpr std::uint32_t add = kCarry ? (int4 ? 0x63e063e0u : 0x64806480u)              // 1008, 1152
                                           : (int4 ? 0xd400d400u : 0x48004800u);             // −64, 8
      const std::uint32_t two = ptx::cast<const std::uint16_t>(row)[lane];
      const std::uint32_t z = ptx::fma_x2<Half::f16>(ptx::prmt(two, 0x64646464u, 0x4140), by, add);  // of 1024 + zero
      ptx::syncwarp();  // every lane has read what was there
      ptx::cast<std::uint32_t>(scratch)[lane] = z;
      ptx::syncwarp();
      read_half_row<Half::f16>(scratch + half_row_offset(lane), out);
    } else {
      read_plane_row(a.extra_type, row, lane, out);
      SF_UNROLL
      for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = zero_factor(out[i >> 1][i & 1]);
    }
  }
  // Applies row s of the step, in the slot at an offset. The codes that it covers have been consumed.
  SF_DEVICE void flush(int slot, int s) {
    const sptr<const std::byte> rows = codes_at + (slot + kRows - 16 * lane);
    const auto other_row = [&] { return rows + ((Shape::scale_rows * 64 << scale_shift) + (s * 64 << extra_shift)); };
    float scale[4][2];
    if (kM8 == 1 && direct)
      read_half_row<half>(row_read + (slot + 128 * s), scale);
    else
      read_plane_row(a.scale_type, rows + (s * 64 << scale_shift), lane, scale);
    if (kSums && (kCarry || !plain)) {
      if (a.extra_kind == Extra::zeros) {
        float other[4][2];
        read_zeros(other_row(), codes_at + (slot + Shape::code_bytes / Shape::scale_rows * s - 16 * lane), other);
        add_x([&](int j, int r) { return other[j][r]; });
      } else if (kCarry || !zero_in_factor()) {
        const float factor = zero_factor(a.zero);
        add_x([&](int, int) { return factor; });
      }
    }
    add_scaled(scale);
    if (kSums && a.extra_kind == Extra::offsets) {
      read_plane_row(a.extra_type, other_row(), lane, scale);
      SF_UNROLL
      for (int t = 0; t < kM8; ++t) {
        SF_UNROLL
        for (int e = 0; e < 16; ++e)
          total[t][e >> 2][e & 3] =
              ptx::fma_f32(scale[e >> 2][e >> 1 & 1], ptx::mul_f32(x_sum[t][e & 1], 1 / kPerX), total[t][e >> 2][e & 3]);
      }
    }
    if constexpr (kCarry && !kFresh) clear_sums();
  }

  // B fragments: slices s and s+1 of 8 tokens (kM8 = 1), or slice s of two token tiles.
  SF_DEVICE void read_x(int slot, int s, std::uint32_t (&b)[4]) const {
    // A slice moves the chunk by 2s, of which the low three bits are swizzled.
    const int low = Shape::slices > 4 ? s & 3 : s;
    ptx::ldmatrix<4>(b, ptx::address_xor(x_read + slot, 32u * static_cast<std::uint32_t>(low)) + 32 * (s - low));
  }
  // Those of slice s and tile t.
  SF_DEVICE static void select_x(const std::uint32_t (&b)[4], int s, int t, std::uint32_t (&bt)[2]) {
    const int at = kM8 == 1 ? 2 * (s & 1) : 2 * t;
    bt[0] = b[at];
    bt[1] = b[at + 1];
  }
  // x_sum of slice s, the i-th of a span. kFirst: of the row.
  template <bool kFirst = false>
  SF_DEVICE void sum_x(const std::uint32_t (&b)[4], int s, int i) {
    const std::uint32_t v = kCarry ? kOne<half> : x_factor, factor[4] = {v, v, v, v};
    constexpr float none[4] = {0, 0, 0, 0};
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      std::uint32_t bt[2];
      select_x(b, s, t, bt);
      if (kFirst || (i == 0 && !kCarry))
        ptx::mma_m16n8k16<half>(x_sum[t], factor, bt, none);
      else
        ptx::mma_m16n8k16<half>(x_sum[t], factor, bt);
    }
  }
  // Starts the sums with (base − zero) · Σx by row, for zero points of one byte: an mma whose A is −base and zero, and B is Σx as
  // three bf16 of eight bits each, which hold all of an fp32. Both stand four times as often as is needed in k16: words 2p and 2p+1
  // take one half each, and in a half columns 0–3 of A are the zero points (bytes are bf16 subnormals; times 2^127, z · 2^-6),
  // columns 4–7 −base. Σx of token g for all t: x as operand A, two slices at once, its halves of k as rows g and g + 8.
  static constexpr float kPerZero = -64;
  SF_DEVICE void start_sums(int slot, const std::uint32_t (&b)[kSpan / kXSlices][4]) {
    const auto at = codes_at + (slot + kRows + (64 << scale_shift) - 14 * lane);
    const std::uint32_t zeros = ptx::prmt(ptx::ld<std::uint16_t>(at), 0, 0x4140);
    ptx::st(converted + 4 * lane, ptx::mul_x2<Half::bf16>(zeros, 0x7f007f00u));
    const std::uint32_t factor[2] = {x_factor, x_factor};
    constexpr float none[4] = {0, 0, 0, 0};
    float d[4];
    ptx::mma_m16n8k16<half>(d, b[0], factor, none);
    SF_UNROLL
    for (int i = 1; i < kSpan / kXSlices; ++i) ptx::mma_m16n8k16<half>(d, b[i], factor);
    const float x = ptx::add_f32(d[0], d[2]);
    const auto high = [](float v) { return ptx::bits_as<float>(ptx::bits_as<std::uint32_t>(v) & 0xffff0000u); };
    const float middle = ptx::add_f32(x, -high(x)), low = ptx::add_f32(middle, -high(middle));
    const std::uint32_t parts = lane & 1 ? ptx::bits_as<std::uint32_t>(low) >> 16
                                         : ptx::prmt(ptx::bits_as<std::uint32_t>(x), ptx::bits_as<std::uint32_t>(middle), 0x7632);
    ptx::syncwarp();
    SF_UNROLL
    for (int p = 0; p < 2; ++p) {
      std::uint32_t w[4];
      ptx::ldmatrix<4, true>(w, row_zeros + 64 * p);
      const std::uint32_t first[2] = {parts, 0}, second[2] = {0, parts};
      ptx::mma_m16n8k16<Half::bf16>(sum[0][2 * p], w, first, none);
      ptx::mma_m16n8k16<Half::bf16>(sum[0][2 * p + 1], w, second, none);
    }
  }
  // What the sums hold before a slice; usual: what they hold where every span starts them anew, or where they are carried on.
  enum class Before { usual, nothing, something };
  // Patch j of slice s, the i-th of a span.
  template <Before before = Before::usual>
  SF_DEVICE void multiply(int j, const std::uint32_t (&w)[4], const std::uint32_t (&b)[4], int s, int i) {
    constexpr float none[4] = {0, 0, 0, 0};
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      std::uint32_t bt[2];
      select_x(b, s, t, bt);
      if constexpr (kFolded)
        ptx::mma_m16n8k16<half>(total[t][j], w, bt);
      else if (before == Before::something || (before == Before::usual && (kCarry || i > 0)))
        ptx::mma_m16n8k16<half>(sum[t][j], w, bt);
      else if constexpr (kSums && before == Before::usual)
        ptx::mma_m16n8k16<half>(sum[t][j], w, bt, x_sum[t]);
      else
        ptx::mma_m16n8k16<half>(sum[t][j], w, bt, none);
    }
  }

  // Two e8m0 scales / 4, for any code (255 is NaN).
  SF_DEVICE static std::uint32_t e8m0_quarters(std::uint32_t word, int part) {
    const std::uint32_t two = word >> 16 * part;
    return ptx::cvt_x2<Half::bf16>(ptx::mul_f32(byte_value(PlaneType::e8m0, two & 255), 0.25f),
                                   ptx::mul_f32(byte_value(PlaneType::e8m0, two >> 8 & 255), 0.25f));
  }
  // kFolded: the step's scale rows as 16-bit numbers, each lane as many. True if an e8m0 scale is too large to be the factor that
  // places a code's bits as well: then they are the scales themselves, times 2^-2.
  SF_DEVICE bool convert_rows(int slot) const {
    constexpr int words = Shape::scale_rows / 2, each = words < 2 ? words : 2;  // of a lane, and in a pass
    std::uint32_t in[words], any = 0;
    SF_UNROLL
    for (int i = 0; i < words; i += each) {
      const sptr<std::byte> at = codes_at + (slot + kRows + 128 * i - (16 - 4 * each) * lane);
      if constexpr (each == 2) {
        const auto two = ptx::ld<ptx::U32x2>(at);
        in[i] = two.x;
        in[i + 1] = two.y;
      } else {
        in[i] = ptx::ld<std::uint32_t>(at);
      }
    }
    SF_UNROLL
    for (int i = 0; i < words; ++i) any |= in[i];
    const auto store = [&](auto pair) {
      SF_UNROLL
      for (int i = 0; i < words; i += each) {
        const sptr<std::byte> at = converted + (256 * i + 8 * each * lane);
        if constexpr (each == 2)
          ptx::st(at, ptx::U32x4{pair(in[i], 0), pair(in[i], 1), pair(in[i + 1], 0), pair(in[i + 1], 1)});
        else
          ptx::st(at, ptx::U32x2{pair(in[i], 0), pair(in[i], 1)});
      }
    };
    bool wide = false;
    if constexpr (weights == Weights::fp4_e8m0) {
      wide = ptx::vote_any((any & 0x80808080u) != 0);
      if (wide)
        store([](std::uint32_t word, int part) { return e8m0_quarters(word, part); });
      else
        store([](std::uint32_t word, int part) { return e8m0_factors(word, part); });
    } else {
      store([](std::uint32_t word, int part) { return e4m3_pair<half>(word, part); });
    }
    ptx::syncwarp();
    return wide;
  }

  // Slice s of the step, the i-th of a span. kFolded: scale[j] is of n = 16j + g and 16j + 8 + g.
  template <bool kWide, Before before = Before::usual>
  SF_DEVICE void slice(int slot, int s, const std::uint32_t (&b)[4], int i, const std::uint32_t (&scale)[4]) {
    if constexpr (weights == Weights::int8) {
      SF_UNROLL
      for (int h = 0; h < 2; ++h) {
        const ptx::U32x4 w = ptx::ld<ptx::U32x4>(codes_at + (slot + 1024 * s + 512 * h));
        std::uint32_t f[4];
        int8_fragment<half>(w.x, w.y, f);
        multiply<before>(2 * h, f, b, s, i);
        int8_fragment<half>(w.z, w.w, f);
        multiply<before>(2 * h + 1, f, b, s, i);
      }
    } else {
      const ptx::U32x4 v = ptx::ld<ptx::U32x4>(codes_at + (slot + 512 * s));
      const std::uint32_t w[4] = {v.x, v.y, v.z, v.w};
      constexpr std::uint32_t unscale = half == Half::bf16 ? 0x7e807e80u : 0x74007400u;  // 2^126, 2^14
      SF_UNROLL
      for (int j = 0; j < 4; ++j) {
        std::uint32_t f[4];
        if constexpr (weights == Weights::int4)
          int4_fragment<half>(w[j], f);
        else if constexpr (!kFolded || kWide)
          e2m1_fragment<half>(w[j], unscale, unscale, f);
        else
          e2m1_fragment<half>(w[j], ptx::twice<0>(scale[j]), ptx::twice<1>(scale[j]), f);
        if constexpr (kWide) {
          SF_UNROLL
          for (int e = 0; e < 4; ++e) f[e] = ptx::mul_x2<half>(f[e], e & 1 ? ptx::twice<1>(scale[j]) : ptx::twice<0>(scale[j]));
        }
        multiply<before>(j, f, b, s, i);
      }
    }
  }
  // kSpan slices from `first` on. Two token tiles leave no registers to keep x between its sum and the products.
  template <bool kWide = false>
  SF_DEVICE void span(int slot, int first) {
    constexpr bool kept = kM8 == 1 || kSpan == kXSlices;
    std::uint32_t b[kept ? kSpan / kXSlices : 1][4], scale[4];
    const auto sum_all = [&] {
      SF_UNROLL
      for (int i = 0; i < kSpan; ++i) {
        const int at = kept ? i / kXSlices : 0;
        if (!kept && i % kXSlices == 0) read_x(slot, first + i, b[at]);
        sum_x(b[at], first + i, i);
      }
    };
    SF_UNROLL
    for (int i = 0; kept && i < kSpan; i += kXSlices) read_x(slot, first + i, b[i / kXSlices]);
    if constexpr (Shape::zeros_by_mma) {
      if (zero_rows) {
        start_sums(slot, b);
        slice<kWide, Before::something>(slot, first, b[0], 0, scale);
      } else {
        sum_all();
        slice<kWide>(slot, first, b[0], 0, scale);
      }
    } else if constexpr (kSums && !kCarry) {
      sum_all();
    }
    SF_UNROLL
    for (int i = Shape::zeros_by_mma ? 1 : 0; i < kSpan; ++i) {
      const int at = kept ? i / kXSlices : 0;
      if (!kept && i % kXSlices == 0) read_x(slot, first + i, b[at]);
      if constexpr (kFresh) {
        if (first + i == 0 && fresh) {
          sum_x<true>(b[at], 0, 0);
          slice<kWide, Before::nothing>(slot, 0, b[at], 0, scale);
          continue;
        }
      }
      if constexpr (kSums && kCarry) sum_x(b[at], first + i, i);
      constexpr int covered = Shape::slices / Shape::scale_rows;  // slices of a scale row
      if (kFolded && i % covered == 0) ptx::ldmatrix<4, true>(scale, row_read + 128 * ((first + i) / covered));
      slice<kWide>(slot, first + i, b[at], i, scale);
      if constexpr (kDynamic)
        if (flushes >> (4 * (kStages - 1) + first + i) & 1) flush(slot, first + i);
    }
  }
  SF_DEVICE void consume(const Share& at, int slot) {
    bool wide = false;
    if constexpr (kFolded) wide = convert_rows(slot);
    if constexpr (kDynamic) {
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; s += kSpan) span(slot, s);
    } else if (wide) {
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; s += kSpan) span<weights == Weights::fp4_e8m0>(slot, s);
    } else {
      SF_UNROLL
      for (int s = 0; s < Shape::slices; s += kSpan) {
        span(slot, s);
        if constexpr (!kFolded && !kCarry) flush(slot, s / kSpan);
      }
      if constexpr (kFresh) {
        fresh = ends_row(at);
        if (fresh) flush(slot, 0);
      } else if constexpr (kCarry) {
        if (ends_row(at)) flush(slot, 0);
      }
    }
  }

  // --- the end of a segment -----------------------------------------------------------------------------------------------------
  // Writes this warp's totals to a slot as [token][64 n], and clears them.
  SF_DEVICE void put_total(sptr<std::byte> slot) {
    const sptr<float> to = ptx::cast<float>(slot);
    const int g = lane / 4, t2 = 2 * (lane % 4);
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int token = 8 * t + t2 + (e & 1);
        SF_UNROLL
        for (int j = 0; j < 4; ++j) {
          if (token < a.m) to[token * Shape::token_stride + 16 * j + 8 * (e >> 1) + g] = total[t][j][e];
          total[t][j][e] = 0;
        }
      }
    }
  }

  // Adds the warps' totals of steps [from, to) of the CTA's line, all of one column, and stores them or hands them to the column's
  // owner. True if it has waited for the cluster's pieces.
  SF_DEVICE bool finish_segment(sptr<const std::byte> totals, std::int32_t column, std::int32_t from, std::int32_t to,
                                std::int32_t cta) const {
    const std::int32_t column_end = (column + 1) * a.steps;
    const bool owner = from == column * a.steps, whole = to == column_end, clustered = this->clustered();
    const int thread = 32 * warp + lane;
    ptx::dptr<float> outbox{};
    if (clustered && !owner) {
      const std::int32_t away = cta - column * a.steps / a.units_each;  // CTAs are numbered against the cluster's ranks
      outbox = ptx::mapa(inbox + (away - 1) * (kInbox / 4), ptx::cluster_ctarank() + static_cast<std::uint32_t>(away));
    }
    if (clustered && owner && !whole) ptx::cluster_wait();  // the pieces are here
    for (int i = thread; i < 32 * a.m; i += 32 * kWarps) {
      const int token = i >> 5, n = 2 * (i & 31), at = token * 64 + n;
      ptx::F32x2 v{0, 0};
      SF_UNROLL
      for (int w = 0; w < kWarps; ++w)
        add(v, ptx::ld<ptx::F32x2>(totals + (w * kStages * slot_size + 4 * (token * Shape::token_stride + n))));
      if (!owner) {
        if (clustered) {
          ptx::st_cluster(outbox + at, v.x);
          ptx::st_cluster(outbox + (at + 1), v.y);
        } else {
          ptx::st(a.pieces + (static_cast<std::int64_t>(cta) * (kInbox / 4) + at), v);
        }
        continue;
      }
      if (!whole) {
        for (std::int32_t c = cta + 1; first_unit(a, c) < column_end; ++c) {
          if (clustered) {
            add(v, ptx::ld<ptx::F32x2>(inbox + ((c - cta - 1) * (kInbox / 4) + at)));
          } else {
            while (ptx::ld_acquire(a.flags + c) == 0) {
            }
            add(v, ptx::ld<ptx::F32x2>(a.pieces + (static_cast<std::int64_t>(c) * (kInbox / 4) + at)));
          }
        }
      }
      if constexpr (kFolded) {
        // e8m0: 2^2; e4m3: 2^(e2m1_shift − e4m3_shift)
        constexpr float undo = weights == Weights::fp4_e8m0 ? 4.0f
                               : half == Half::bf16         ? 0x1p8f
                                                            : 0x1p7f;  // 2^(e2m1_shift − e4m3_shift)
        v.x = ptx::mul_f32(v.x, undo);
        v.y = ptx::mul_f32(v.y, undo);
      }
      store_pair(a, column, token, n, v);
    }
    if (owner && whole) return false;
    if (clustered) {
      if (!owner) ptx::cluster_arrive();
      return owner;
    }
    ptx::bar_sync(0);
    if (thread == 0) {
      if (!owner)
        ptx::red_add_release(a.flags + cta, 1);
      else
        for (std::int32_t c = cta + 1; first_unit(a, c) < column_end; ++c) ptx::st_relaxed(a.flags + c, 0);
    }
    return false;
  }

  // --- the whole ----------------------------------------------------------------------------------------------------------------
  SF_DEVICE void run(sptr<std::byte> smem) {
    const auto cta = static_cast<std::int32_t>(ptx::nctaid_x() - 1 - ptx::ctaid_x());
    std::int32_t position = first_unit(a, cta);
    const std::int32_t end = first_unit(a, cta + 1);
    scale_shift = kFolded ? 0 : plane_shift(a.scale_type);
    extra_shift = kSums && a.extra_kind != Extra::none ? plane_shift(a.extra_type) : -1;
    slot_size = ptx::pinned(slot_bytes<Shape>(scale_shift, extra_shift));
    constexpr int slices_log = Shape::slices == 8 ? 3 : Shape::slices == 4 ? 2 : 1;
    step_shift = a.group_shift < 31 ? a.group_shift - slices_log : 31;
    group_mask = step_shift < 31 ? (1 << (step_shift > 0 ? step_shift : 0)) - 1 : 0x7fffffff;
    const sptr<std::byte> rings = ptx::carve<std::byte>(smem, static_cast<std::size_t>(kWarps * kStages * slot_size));
    const sptr<std::byte> ring = rings + warp * kStages * slot_size;
    inbox = ptx::carve<float>(smem, static_cast<std::size_t>((a.cluster - 1) * (kInbox / 4)));
    if constexpr (Shape::converted_bytes > 0)
      converted = ptx::carve<std::byte>(smem, kWarps * Shape::converted_bytes) + warp * Shape::converted_bytes;
    stream = ptx::policy_evict_first();
    row_lanes = (4 << scale_shift) + (extra_shift < 0 ? 0 : 4 << extra_shift);
    row_pitch = 64u << (lane < 4 << scale_shift ? scale_shift : extra_shift & 3);
    if constexpr (kM8 == 1 && kFlush == Flush::units) {
      row_lanes = ptx::pinned(row_lanes);
      row_pitch = ptx::pinned(row_pitch);
    }
    if constexpr (!kCarry && kM8 == 1) step_shift = ptx::pinned(step_shift);
    if constexpr (kCarry && kM8 == 1) group_mask = ptx::pinned(group_mask);  // else it is one register too many
    direct = a.scale_type == (half == Half::bf16 ? PlaneType::bf16 : PlaneType::f16);
    zero_rows = Shape::zeros_by_mma && a.extra_kind == Extra::zeros && a.extra_type == PlaneType::u8;
    plain = kCarry ? a.extra_kind == Extra::none : zero_in_factor() || zero_rows;
    const float factor = zero_rows ? kPerZero : zero_in_factor() ? kBase - a.zero : kBase;
    x_factor = ptx::cvt_x2<half>(factor, factor);
    tokens_left = ptx::pinned(a.m - lane / Shape::chunks);
    codes_at = ptx::pinned(ring + 16 * lane);
    x_copy = ptx::pinned(ring + (Shape::code_bytes + x_offset<Shape::chunks>(lane / Shape::chunks, lane % Shape::chunks)));
    if constexpr (kM8 == 1 && !kFolded) row_read = ptx::pinned(ring + (kRows + half_row_offset(lane)));
    if constexpr (kFolded) row_read = ptx::pinned(converted + half_row_offset(lane));
    if constexpr (Shape::zeros_by_mma) {
      ptx::cast<std::uint32_t>(converted + 128)[lane] = 0x3e803e80u;  // 16 · 2^-6
      row_zeros = converted + (16 * (lane >> 3) + (lane & 4 ? 128 : 0));
    }
    // Rows past M hold nothing: their lanes read row 0, and the tokens are never stored.
    const int read = kM8 == 1 ? lane & 7 : (lane & 7) + 8 * (lane >> 4);
    x_read = ptx::pinned(
        ring + (Shape::code_bytes + x_offset<Shape::chunks>(read < a.m ? read : 0, kM8 == 1 ? lane >> 3 : lane >> 3 & 1)));

    Feed feed;
    feed.column = position / a.steps;
    const std::int32_t k0 = position - feed.column * a.steps;
    std::int32_t length = a.steps - k0;
    length = length < end - position ? length : end - position;
    feed.left = end - position - length;
    feed.at = share(k0, length, warp, kWarps);
    aim(feed);

    ptx::griddep_launch_dependents();
    std::int32_t column = feed.column, rest = feed.left;
    Share at = feed.at;
    Feed early = feed;
    flushes = 0;
    SF_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      flushes <<= 4;
      if (early.live()) copy<true, false>(early, i * slot_size);
      step(early);
    }
    if (clustered()) ptx::cluster_arrive_relaxed();
    ptx::griddep_wait();
    SF_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) {
      if (feed.live()) copy<false, true>(feed, i * slot_size);
      ptx::cp_async_commit();
      step(feed);
    }
    if constexpr (kCarry) {
      feed.scales = early.scales;
      feed.extra = early.extra;
    }
    fresh = true;
    if constexpr (kCarry && !kFresh) clear_sums();
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 16; ++e) total[t][e >> 2][e & 3] = 0;
    }

    int first = position != column * a.steps ? 1 : 2;  // in the first segment: 1 if it is handed over
    int slot = 0, refill = (kStages - 1) * slot_size;  // offsets in the ring
    for (;;) {
      do {
        ptx::cp_async_wait<kStages - 2>();
        ptx::syncwarp();
        flushes <<= 4;
        if (feed.live()) copy<true, true>(feed, refill);
        ptx::cp_async_commit();
        step(feed);
        if (at.k < at.k_end) consume(at, slot);
        ++at.k;
        refill = slot;
        slot += slot_size;
        slot = slot == kStages * slot_size ? 0 : slot;
      } while (--at.turns > 0);
      ptx::syncwarp();  // every lane has read the slot
      put_total(rings + (warp * kStages * slot_size + refill));
      ptx::bar_sync(0);
      if (first != 0 && clustered()) {
        ptx::cluster_wait();                            // all of the cluster run
        if (first == 2) ptx::cluster_arrive_relaxed();  // nothing will come from here
      }
      first = 0;
      const bool waited = finish_segment(rings + refill, column, position, end - rest, cta);
      if (rest == 0) {
        if (clustered() && !waited) ptx::cluster_wait();
        return;
      }
      position = end - rest;
      ++column;
      length = rest < a.steps ? rest : a.steps;
      rest -= length;
      at = share(0, length, warp, kWarps);
      ptx::bar_sync(0);
    }
  }
};

// kWarps, kStages, kUnits 0: as the architecture has room. kCtas: of an SM, where it has registers for them.
template <Weights weights, Half half, int kM8, Flush kFlush, int kWarps = 0, int kStages = 0, int kCtas = 1, int kUnits = 0>
SF_KERNEL void SF_LAUNCH_BOUNDS(32 * (kWarps ? kWarps : decode_warps(weights, kM8, kFlush, kSharedMemory)),
                                (kM8 == 2 && kSharedMemory != SharedMemory::large ? 1 : kCtas))
    decode_kernel(const SF_GRID_CONSTANT DecodeArgs args) {
  constexpr int warps = kWarps ? kWarps : decode_warps(weights, kM8, kFlush, kSharedMemory);
  constexpr int units = kUnits ? kUnits : decode_units(weights, kM8, kFlush, kSharedMemory);
  Decode<weights, half, kM8, kFlush, warps, kStages ? kStages : decode_stages(units, kSharedMemory), units> decode(args);
  decode.lane = static_cast<int>(ptx::laneid());
  decode.warp = static_cast<int>(ptx::shfl_idx(ptx::warpid(), 0));
  decode.run(ptx::dyn_smem());
}

}  // namespace swordfish::mma
