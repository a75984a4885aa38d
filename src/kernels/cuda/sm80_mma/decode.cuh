// Decode: y[M,N] = x[M,K] · Wᵀ for few rows of x (8 or 16 a launch) on mma64/1, by mma.sync; sm_80 and up, bound by memory.
//
// Work partition. A unit is one 2,048-byte block of codes (64 rows of W × 64 k; int8: 32 k) with the x and the scales it needs.
// The units of all columns, column by column, form one line of `columns · k_blocks`; CTA c takes an even piece of it. The piece is
// cut into segments where a column ends, and a segment is split evenly, in k order, over the CTA's warps:
//
//     column 0                        column 1                        column 2
//     |--------------------------|----|---------------------|---------|----------------- ...
//     |<-------- CTA 0 --------->|<--------- CTA 1 -------->|<-------- CTA 2 -------->|
//                                |seg.|<---- segment ------>|<-seg.-->|<-- segment -->|
//                                 w0…w15      w0…w15          w0…w15       w0…w15
//
//   A CTA that holds a column's first unit owns the column. A CTA whose first segment belongs to an earlier CTA's column hands it
//   over as fp32, and the owner adds the pieces in k order after its own: through the workspace and a flag, or, where the CTAs of a
//   cluster share whole columns (sm_90 and up), through the owner's shared memory and the cluster's barrier. Pieces come first in
//   their CTAs and owners' incomplete columns last, so the owner seldom waits. CTAs are numbered from the grid's end: an owner
//   waits only for CTAs that the hardware started before it.
//
// Main loop. Each warp streams its units through its own ring of kStages slots in shared memory: a lane copies (cp.async) the
// 16-byte pieces of codes that it will consume; x and the scale rows are shared by the warp. One bar.warp.sync a unit makes x
// visible and frees the previous slot; no CTA barrier except at a segment's end. Weights are operand A (16 rows of W × 16 k), x is
// operand B (16 k × 8 tokens): half the mma work for M ≤ 8 of the usual way round.
//
//     slot: | codes 2048 | x: 8·kM8 tokens × 64 k (int8: 32), 16-byte chunks xor-swizzled | scale rows | zero or offset rows |
//
// Arithmetic. Codes become exact 16-bit numbers q − base (parts/dequantize.cuh: base −16 for int4, 128 for int8); products add up
// in fp32 over one scale row, and an mma with A = 1 adds up x over the same k; then total += scale · (sum − (zero − base)·Σx), two
// fp32 fma, and with an offset plane total += offset · Σx. e2m1 has no base and no Σx; with e4m3 scales value · scale is exact in
// 16 bits and goes into the fragment. Sums over warps and CTAs: fp32, ascending k. y = round(fma(alpha, total, bias)), once, to y's
// type.
//
// Invariants: every warp passes every iteration of a segment (idle ones too), so ring positions agree in the CTA; a slot is
// refilled only after the barrier that follows its last read; flags are zero before and after every launch; nothing but weights is
// read before griddepcontrol.wait, nothing is written before it.
//
// Budget: M ≤ 8: 16 warps, 1 CTA/SM, or 8 warps, 2 CTAs/SM, ≤ 128 registers, 3 stages of 3.2 KB a warp: 156 (78) KB. M ≤ 16: the
// same, 4.3 KB: 209 (104) KB; 12 warps where rows change inside of units. M ≤ 32: 8 warps, 254 registers, 8.5 KB: 204 KB.
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

// The walk of a warp's copies over the units of its CTA: segment by segment, its own share of each, with addresses at hand.
struct Feed {
  Share at;
  std::int32_t column;
  std::int32_t left;             // units of the CTA after this segment
  gptr<const std::byte> codes;   // of this lane's first piece of the next unit
  gptr<const std::byte> scales;  // of the column's first row (Flush::units: this lane's piece of the next row)
  gptr<const std::byte> extra;
  gptr<const std::uint16_t> x;  // this lane's chunk of its first token
  std::int32_t rows;            // Flush::slices: the scale row of slice lane % 8, counted from the next unit's first
  SF_DEVICE bool live() const { return at.k < at.k_end; }
};

template <Weights weights, Half half, int kM8, Flush kFlush, int kWarps, int kStages>
struct Decode {
  using Shape = DecodeShape<weights, kM8, kFlush>;
  static constexpr bool kSums = Shape::sums;
  static constexpr int kRows = 2048 + Shape::x_bytes;  // offset of the scale rows in a slot
  static constexpr int kTokens = 32 / Shape::chunks;   // tokens whose x the warp copies at once
  static constexpr int kPasses = 8 * kM8 / kTokens;
  static constexpr int kFragments = kM8 == 1 ? 1 : kM8 / 2;  // ldmatrix.x4 of x at a time
  static constexpr bool kDynamic = kFlush == Flush::slices && weights != Weights::fp4_e4m3;
  static constexpr int kInbox = 8 * kM8 * 64 * 4;  // bytes
  static constexpr float kBase = weights == Weights::int4 ? -16.0f : 128.0f;

  const DecodeArgs& a;
  int lane, warp;
  // In this warp's first slot: the lane's 16 bytes of the codes, its chunk of x to copy in even and in odd passes, its rows of x
  // for the first ldmatrix (of each 16 tokens), the scale rows. Kept in registers (ptx::pinned).
  sptr<std::byte> codes_at, x_copy[2], rows_at;
  sptr<const std::byte> x_read[kFragments];
  sptr<std::byte> converted;  // fp4_e4m3: four rows of 64 16-bit scales
  sptr<float> inbox;          // the pieces of the cluster's next CTAs, [CTA][token][64]
  int slot_size, scale_shift, extra_shift;
  std::int32_t group_mask,
      unit_shift;                // Flush::units: a scale row ends with the units k with k & mask == mask, and is row k >> shift
  std::uint32_t flushes;         // Flush::slices: the slices after which the scale is applied, 4 bits a unit under way
  int scale_lanes, extra_lanes;  // 16-byte pieces of a row
  std::int32_t tokens_left;      // a.m − this lane's first token
  ptx::CachePolicy stream;
  float total[kM8][4][4];
  float sum[kM8][4][4];
  float x_sum[kM8][4];

  SF_DEVICE explicit Decode(const DecodeArgs& args) : a(args) {}

  SF_DEVICE bool clustered() const { return ptx::kClusters && a.cluster > 1; }

  // --- copies -------------------------------------------------------------------------------------------------------------------
  SF_DEVICE void aim(Feed& feed) const {
    std::int64_t first = static_cast<std::int64_t>(feed.column) * a.rows;
    int piece = 0;
    if constexpr (kFlush == Flush::units) {
      first += feed.at.k >> unit_shift;
      piece = 16 * lane;
    }
    feed.codes = a.codes + ((static_cast<std::int64_t>(feed.column) * a.k_blocks + feed.at.k) * 2048 + 16 * lane);
    feed.scales = a.scales + ((first * 64 << scale_shift) + piece);
    if constexpr (kSums)
      if (extra_shift >= 0) feed.extra = a.extra + ((first * 64 << extra_shift) + piece);
    feed.x = a.x + (lane / Shape::chunks * a.ldx + feed.at.k * (16 * Shape::slices) + 8 * (lane % Shape::chunks));
    read_rows(feed);
  }
  SF_DEVICE void read_rows(Feed& feed) const {
    if constexpr (kFlush == Flush::slices) feed.rows = row_of(a, feed.at.k * Shape::slices, a.k_blocks * Shape::slices, lane);
  }
  SF_DEVICE void step(Feed& feed) const {
    ++feed.at.k;
    feed.codes += 2048;
    feed.x += 16 * Shape::slices;
    if (--feed.at.turns > 0 || feed.left == 0) {
      read_rows(feed);
      return;
    }
    const std::int32_t length = feed.left < a.k_blocks ? feed.left : a.k_blocks;
    feed.left -= length;
    ++feed.column;
    feed.at = share(0, length, warp, kWarps);
    aim(feed);
  }
  // Whether the scale is applied after unit k.
  SF_DEVICE bool ends_row(const Share& at) const { return (at.k & group_mask) == group_mask || at.k + 1 == at.k_end; }

  // The copies of a unit to the slot at an offset: codes with their scale (and zero or offset) rows, x, or both. Hardly a branch.
  template <bool kWeights, bool kX>
  SF_DEVICE void copy(Feed& feed, int slot) {
    if constexpr (kWeights) {
      SF_UNROLL
      for (int i = 0; i < 4; ++i) ptx::cp_async_cg_hint(codes_at + (slot + 512 * i), feed.codes + 512 * i, stream);
    }
    if constexpr (kX) {
      SF_UNROLL
      for (int i = 0; i < kPasses; ++i)
        if (i * kTokens < tokens_left) ptx::cp_async_cg(x_copy[i & 1] + (slot + 512 * i), feed.x + i * kTokens * a.ldx);
    }
    if constexpr (kWeights) {
      const sptr<std::byte> to = rows_at + (slot + 16 * lane);
      if constexpr (kFlush == Flush::units) {
        const bool ends = ends_row(feed.at);
        if (ends && lane < scale_lanes) ptx::cp_async_cg(to, feed.scales);
        feed.scales += ends ? 16 * scale_lanes : 0;
        if constexpr (kSums) {
          if (a.extra_kind != Extra::none) {
            if (ends && lane < extra_lanes) ptx::cp_async_cg(to + 16 * scale_lanes, feed.extra);
            feed.extra += ends ? 16 * extra_lanes : 0;
          }
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
  SF_DEVICE void copy_rows(const Feed& feed, sptr<std::byte> to, gptr<const std::byte> plane, int shift) const {
    if constexpr (kFlush == Flush::slices) {
      copy_slice_rows<Shape::scale_rows>(to, plane, shift, feed.rows, lane);
    } else {  // pairs: at most 32 pieces of two rows
      const int r = lane >> (2 + shift);
      std::int32_t row = (feed.at.k * Shape::scale_rows + r) >> (a.group_shift - 1);
      row = row < a.rows ? row : a.rows - 1;
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

  // total += scale · (sum − (zero − base)·Σx), with scale and zero by row of the fragment.
  template <class Zero>
  SF_DEVICE void add_scaled(const float (&scale)[4][2], Zero minus_zero) {
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int j = 0; j < 4; ++j) {
        SF_UNROLL
        for (int e = 0; e < 4; ++e) {
          float v = sum[t][j][e];
          if constexpr (kSums) v = ptx::fma_f32(minus_zero(j, e >> 1), x_sum[t][e & 1], v);
          total[t][j][e] = ptx::fma_f32(scale[j][e >> 1], v, total[t][j][e]);
        }
      }
    }
  }
  // Applies row s of the unit.
  SF_DEVICE void flush(sptr<const std::byte> rows, int s) {
    float scale[4][2];
    read_plane_row(a.scale_type, rows + (s * 64 << scale_shift), lane, scale);
    if (kSums && a.extra_kind != Extra::none) {
      float other[4][2];
      read_plane_row(a.extra_type, rows + ((Shape::scale_rows * 64 << scale_shift) + (s * 64 << extra_shift)), lane, other);
      if (a.extra_kind == Extra::zeros) {
        add_scaled(scale, [&](int j, int r) { return kBase - other[j][r]; });
      } else {
        add_scaled(scale, [&](int, int) { return kBase - a.zero; });
        SF_UNROLL
        for (int t = 0; t < kM8; ++t) {
          SF_UNROLL
          for (int e = 0; e < 16; ++e)
            total[t][e >> 2][e & 3] = ptx::fma_f32(other[e >> 2][e >> 1 & 1], x_sum[t][e & 1], total[t][e >> 2][e & 3]);
        }
      }
    } else {
      add_scaled(scale, [&](int, int) { return kBase - a.zero; });
    }
    clear_sums();
  }

  // B fragments: one ldmatrix.x4 brings slices s and s+1 of 8 tokens (kM8 = 1), or slice s of two token tiles.
  SF_DEVICE void read_x(int slot, int s, std::uint32_t (&b)[kFragments][4]) const {
    SF_UNROLL
    for (int f = 0; f < kFragments; ++f)  // two chunks on: chunk ^ 2s, as the lane's own chunk has no such bit
      ptx::ldmatrix<4>(b[f], ptx::address_xor(x_read[f] + slot, 32u * static_cast<std::uint32_t>(s)));
  }
  SF_DEVICE static void select_x(const std::uint32_t (&b)[kFragments][4], int s, int t, std::uint32_t (&bt)[2]) {
    const int at = kM8 == 1 ? 2 * (s & 1) : 2 * (t & 1);
    bt[0] = b[t / 2][at];
    bt[1] = b[t / 2][at + 1];
  }
  SF_DEVICE void multiply(int j, const std::uint32_t (&w)[4], const std::uint32_t (&b)[kFragments][4], int s) {
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      std::uint32_t bt[2];
      select_x(b, s, t, bt);
      if constexpr (weights == Weights::fp4_e4m3)
        ptx::mma_m16n8k16<half>(total[t][j], w, bt);
      else
        ptx::mma_m16n8k16<half>(sum[t][j], w, bt);
    }
  }

  // fp4_e4m3: the unit's scale rows as 16-bit numbers, each lane 8 of the 256.
  SF_DEVICE void convert_rows(int slot) const {
    const ptx::U32x2 in = ptx::ld<ptx::U32x2>(rows_at + (slot + 8 * lane));
    ptx::st(converted + 16 * lane,
            ptx::U32x4{e4m3_pair<half>(in.x, 0), e4m3_pair<half>(in.x, 1), e4m3_pair<half>(in.y, 0), e4m3_pair<half>(in.y, 1)});
    ptx::syncwarp();
  }

  SF_DEVICE void slice(int slot, int s, const std::uint32_t (&b)[kFragments][4]) {
    if constexpr (kSums) {
      const std::uint32_t ones[4] = {kOne<half>, kOne<half>, kOne<half>, kOne<half>};
      SF_UNROLL
      for (int t = 0; t < kM8; ++t) {
        std::uint32_t bt[2];
        select_x(b, s, t, bt);
        ptx::mma_m16n8k16<half>(x_sum[t], ones, bt);
      }
    }
    if constexpr (weights == Weights::int8) {
      SF_UNROLL
      for (int h = 0; h < 2; ++h) {
        const ptx::U32x4 w = ptx::ld<ptx::U32x4>(codes_at + (slot + 1024 * s + 512 * h));
        std::uint32_t f[4];
        int8_fragment<half>(w.x, w.y, f);
        multiply(2 * h, f, b, s);
        int8_fragment<half>(w.z, w.w, f);
        multiply(2 * h + 1, f, b, s);
      }
    } else {
      const ptx::U32x4 v = ptx::ld<ptx::U32x4>(codes_at + (slot + 512 * s));
      const std::uint32_t w[4] = {v.x, v.y, v.z, v.w};
      std::uint32_t scale[2][4];
      if constexpr (weights == Weights::fp4_e4m3) {
        // Eight matrices whose rows are all one 16-byte piece: transposed, {scale, scale} of n = 8i + g.
        ptx::ldmatrix<4, true>(scale[0], converted + (128 * s + 16 * (lane >> 3)));
        ptx::ldmatrix<4, true>(scale[1], converted + (128 * s + 64 + 16 * (lane >> 3)));
      }
      SF_UNROLL
      for (int j = 0; j < 4; ++j) {
        std::uint32_t f[4];
        if constexpr (weights == Weights::int4) {
          int4_fragment<half>(w[j], f);
        } else if constexpr (weights == Weights::fp4) {
          constexpr std::uint32_t unscale = half == Half::bf16 ? 0x7e807e80u : 0x74007400u;  // 2^126, 2^14
          e2m1_fragment<half>(w[j], unscale, unscale, f);
        } else {
          e2m1_fragment<half>(w[j], scale[j >> 1][2 * (j & 1)], scale[j >> 1][2 * (j & 1) + 1], f);
        }
        multiply(j, f, b, s);
      }
    }
  }

  SF_DEVICE void consume(const Share& at, int slot) {
    constexpr int step = kM8 == 1 ? 2 : 1;  // slices an ldmatrix of x brings
    std::uint32_t b[kFragments][4];
    if constexpr (weights == Weights::fp4_e4m3) convert_rows(slot);
    if constexpr (kDynamic) {
      const std::uint32_t mask = flushes >> 4 * (kStages - 1);
      SF_NO_UNROLL
      for (int s = 0; s < Shape::slices; s += step) {
        read_x(slot, s, b);
        SF_UNROLL
        for (int i = 0; i < step; ++i) {
          slice(slot, s + i, b);
          if (mask >> (s + i) & 1) flush(rows_at + slot, s + i);
        }
      }
    } else {
      SF_UNROLL
      for (int s = 0; s < Shape::slices; ++s) {
        if (s % step == 0) read_x(slot, s, b);
        slice(slot, s, b);
        if constexpr (kFlush == Flush::pairs)
          if (s & 1) flush(rows_at + slot, s >> 1);
      }
      if constexpr (kFlush == Flush::units)
        if (ends_row(at)) flush(rows_at + slot, 0);
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

  // Adds the warps' totals of units [from, to) of the CTA's line, all of one column, and stores them or hands them to the column's
  // owner. True if it has waited for the cluster's pieces.
  SF_DEVICE bool finish_segment(sptr<const std::byte> totals, std::int32_t column, std::int32_t from, std::int32_t to,
                                std::int32_t cta) const {
    const std::int32_t column_end = (column + 1) * a.k_blocks;
    const bool owner = from == column * a.k_blocks, whole = to == column_end, clustered = this->clustered();
    const int thread = 32 * warp + lane;
    ptx::dptr<float> outbox{};
    if (clustered && !owner) {
      const std::int32_t away = cta - column * a.k_blocks / a.units_each;  // CTAs are numbered against the cluster's ranks
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
      if constexpr (weights == Weights::fp4_e4m3) {
        constexpr float undo = half == Half::bf16 ? 0x1p8f : 0x1p7f;  // 2^(e2m1_shift − e4m3_shift)
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
    scale_shift = plane_shift(a.scale_type);
    extra_shift = kSums && a.extra_kind != Extra::none ? plane_shift(a.extra_type) : -1;
    slot_size = ptx::pinned(slot_bytes<Shape>(scale_shift, extra_shift));
    constexpr int slices_log = Shape::slices == 4 ? 2 : 1;
    unit_shift = a.group_shift < 31 ? a.group_shift - slices_log : 31;
    group_mask = unit_shift < 31 ? (1 << (unit_shift > 0 ? unit_shift : 0)) - 1 : 0x7fffffff;
    const sptr<std::byte> rings = ptx::carve<std::byte>(smem, static_cast<std::size_t>(kWarps * kStages * slot_size));
    const sptr<std::byte> ring = rings + warp * kStages * slot_size;
    inbox = ptx::carve<float>(smem, static_cast<std::size_t>((a.cluster - 1) * (kInbox / 4)));
    if constexpr (weights == Weights::fp4_e4m3) converted = ptx::carve<std::byte>(smem, kWarps * 512) + warp * 512;
    stream = ptx::policy_evict_first();
    scale_lanes = ptx::pinned(4 << scale_shift);
    extra_lanes = extra_shift < 0 ? 0 : 4 << extra_shift;
    if constexpr (kM8 == 1 || kWarps != 8) group_mask = ptx::pinned(group_mask);  // else it is one register too many
    tokens_left = ptx::pinned(a.m - lane / Shape::chunks);
    codes_at = ptx::pinned(ring + 16 * lane);
    rows_at = ptx::pinned(ring + kRows);
    // Pass i of x is kTokens · i tokens on, 512 bytes: with 8 chunks a token that is 4 tokens, chunk ^ 4 in odd passes; else the
    // swizzle repeats.
    const int x_to = x_offset<Shape::chunks>(lane / Shape::chunks, lane % Shape::chunks);
    x_copy[0] = ptx::pinned(ring + (2048 + x_to));
    x_copy[1] = Shape::chunks == 8 ? ptx::pinned(ring + (2048 + (x_to ^ 64))) : x_copy[0];
    // Rows past M hold nothing: their lanes read row 0, and the tokens are never stored.
    const int read = kM8 == 1 ? lane & 7 : (lane & 7) + 8 * (lane >> 4);
    SF_UNROLL
    for (int f = 0; f < kFragments; ++f)
      x_read[f] = ptx::pinned(
          ring + (2048 + x_offset<Shape::chunks>(16 * f + read < a.m ? 16 * f + read : 0, kM8 == 1 ? lane >> 3 : lane >> 3 & 1)));

    Feed feed;
    feed.column = position / a.k_blocks;
    const std::int32_t k0 = position - feed.column * a.k_blocks;
    std::int32_t length = a.k_blocks - k0;
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
    feed.scales = early.scales;
    feed.extra = early.extra;
    clear_sums();
    SF_UNROLL
    for (int t = 0; t < kM8; ++t) {
      SF_UNROLL
      for (int e = 0; e < 16; ++e) total[t][e >> 2][e & 3] = 0;
    }

    const bool hands_over = position != column * a.k_blocks;
    bool fresh = true;
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
      if (fresh && clustered()) {
        ptx::cluster_wait();                             // all of the cluster run
        if (!hands_over) ptx::cluster_arrive_relaxed();  // nothing will come from here
      }
      fresh = false;
      const bool waited = finish_segment(rings + refill, column, position, end - rest, cta);
      if (rest == 0) {
        if (clustered() && !waited) ptx::cluster_wait();
        return;
      }
      position = end - rest;
      ++column;
      length = rest < a.k_blocks ? rest : a.k_blocks;
      rest -= length;
      at = share(0, length, warp, kWarps);
      ptx::bar_sync(0);
    }
  }
};

// kWarps, kStages 0: as the architecture has room. kCtas: of an SM, where it has registers for them.
template <Weights weights, Half half, int kM8, Flush kFlush, int kWarps = 0, int kStages = 0, int kCtas = 1>
SF_KERNEL void SF_LAUNCH_BOUNDS(32 * (kWarps ? kWarps : decode_warps(weights, kM8, kFlush, kSharedMemory)),
                                (kM8 == 2 && kSharedMemory != SharedMemory::large ? 1 : kCtas))
    decode_kernel(const SF_GRID_CONSTANT DecodeArgs args) {
  constexpr int warps = kWarps ? kWarps : decode_warps(weights, kM8, kFlush, kSharedMemory);
  Decode<weights, half, kM8, kFlush, warps, kStages ? kStages : decode_stages(kSharedMemory)> decode(args);
  decode.lane = static_cast<int>(ptx::laneid());
  decode.warp = static_cast<int>(ptx::shfl_idx(ptx::warpid(), 0));
  decode.run(ptx::dyn_smem());
}

}  // namespace swordfish::mma
