// What the decode and the middle kernels share: their arguments, the cutting of work, the rows of planes, the stores of y.
#pragma once

#include "kernels/cuda/parts/plane_type.h"
#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/warp.h"
#include "kernels/cuda/sm80_mma/shape.h"

namespace swordfish::mma {

using ptx::gptr;
using ptx::Half;
using ptx::sptr;

struct DecodePart {
  std::int32_t block0, n0, n;  // first n64 block, first output column, rows
  float alpha;
};

struct DecodeArgs {
  gptr<const std::byte> codes;
  gptr<const std::byte> scales;  // [columns, rows, 64]
  gptr<const std::byte> extra;   // the same shape, or null
  gptr<const std::int32_t> row_of_slice;
  gptr<const std::uint16_t> x;  // [m, packed K], 16-byte aligned, row stride a multiple of 8 elements
  gptr<std::byte> y;
  gptr<const float> bias;
  gptr<float> pieces;         // [CTAs][tokens of a tile][rows of a tile]: sums for the tiles of earlier CTAs
  gptr<std::uint32_t> flags;  // [CTAs]
  std::int64_t ldx, ldy;
  std::int32_t m;
  std::int32_t columns, k_blocks, rows;
  std::int32_t group_shift;             // a scale row covers 2^group_shift slices of 16 k; 31: one row
  std::int32_t grain;                   // units that stay together: 1, or those of a column (tile), which is then not split
  std::int32_t units_each, units_more;  // a CTA takes units_each grains, the first units_more CTAs one more
  std::int32_t cluster;                 // CTAs of a cluster, which share whole columns (then units_more is 0); 1: none
  std::int32_t m_groups;                // middle: tiles along M
  std::int32_t steps;                   // of a column (tile) along K
  float zero;                           // the zero point where extra is not the zero plane
  PlaneType scale_type, extra_type;
  Extra extra_kind;
  int y_type;   // 0 f16, 1 bf16, 2 f32
  int y_pairs;  // y, its stride and the parts' first columns allow stores of two elements
  int y_quads;  // of four
  std::int32_t parts;
  DecodePart part[kMaxParts];
};

// One of `parts` even shares, in k order, of a segment.
struct Share {
  std::int32_t k, k_end;  // its units, and
  std::int32_t turns;     // the iterations of the segment, the same for all shares
};
SF_DEVICE Share share(std::int32_t first, std::int32_t length, std::int32_t i, std::int32_t parts) {
  return {first + length * i / parts, first + length * (i + 1) / parts, (length + parts - 1) / parts};
}
// The first unit of a CTA's piece of the line.
SF_DEVICE std::int32_t first_unit(const DecodeArgs& a, std::int32_t cta) {
  return (cta * a.units_each + (cta < a.units_more ? cta : a.units_more)) * a.grain;
}

// The scale row of a slice of K's `slices`, or of the last. Read ahead of the copies that need it, so that the load is not waited
// for.
SF_DEVICE std::int32_t row_of(const DecodeArgs& a, std::int32_t at, std::int32_t slices) {
  const std::int32_t last = slices - 1;
  const std::int32_t slice = at < last ? at : last;
  std::int32_t row;
  if (a.row_of_slice)
    row = a.row_of_slice[slice];
  else
    row = slice >> a.group_shift;
  return row < a.rows ? row : a.rows - 1;
}
// Copies kRows rows of a plane whose column starts at `plane` to `to` (this lane's first 16 bytes); `rows`: of slice lane % 8.
template <int kRows>
SF_DEVICE void copy_slice_rows(sptr<std::byte> to, gptr<const std::byte> plane, int shift, std::int32_t rows, int lane) {
  const int pieces = 4 << shift;  // of a row
  SF_UNROLL
  for (int pass = 0; pass < (kRows == 4 ? 2 : 1); ++pass) {
    const int p = lane + 32 * pass, r = p >> (2 + shift);  // a piece of the unit's rows, and its row
    const auto row = ptx::bits_as<std::int32_t>(ptx::shfl_idx(static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(r) & 7));
    if (r < kRows) ptx::cp_async_cg(to + 512 * pass, plane + ((row * 64 << shift) + 16 * (p & (pieces - 1))));
  }
}

// Where chunk (8 values of k) of a token lies in a tile of x with kChunks chunks a token: swizzled so that the eight rows of an
// ldmatrix fall into different banks.
template <int kChunks>
SF_DEVICE int x_offset(int token, int chunk) {
  if constexpr (kChunks >= 8)
    return token * (16 * kChunks) + ((chunk ^ (token & 7)) * 16);
  else
    return token * 64 + ((chunk ^ (token >> 1 & 3)) * 16);
}

SF_DEVICE void add(ptx::F32x2& v, const ptx::F32x2& w) {
  v.x = ptx::add_f32(v.x, w.x);
  v.y = ptx::add_f32(v.y, w.y);
}
SF_DEVICE void add(ptx::F32x4& v, const ptx::F32x4& w) {
  v.x = ptx::add_f32(v.x, w.x);
  v.y = ptx::add_f32(v.y, w.y);
  v.z = ptx::add_f32(v.z, w.z);
  v.w = ptx::add_f32(v.w, w.w);
}

SF_DEVICE void store_one(const DecodeArgs& a, std::int64_t at, float v) {
  if (a.y_type == 2) {
    ptx::cast<float>(a.y)[at] = v;
  } else {
    const std::uint32_t pair = a.y_type == 1 ? ptx::cvt_x2<Half::bf16>(v, v) : ptx::cvt_x2<Half::f16>(v, v);
    ptx::cast<std::uint16_t>(a.y)[at] = static_cast<std::uint16_t>(pair);
  }
}
// y of rows n and n+1 of a block for one token: round(fma(alpha, v, bias)).
SF_DEVICE void store_pair(const DecodeArgs& a, std::int32_t column, int token, int n, ptx::F32x2 v) {
  int p = 0;
  while (p + 1 < a.parts && a.part[p + 1].block0 <= column) ++p;
  const std::int32_t row = 64 * (column - a.part[p].block0) + n, rows = a.part[p].n;
  if (row >= rows) return;
  const float alpha = a.part[p].alpha;
  const std::int32_t out = a.part[p].n0 + row;
  float b0 = 0, b1 = 0;
  if (a.bias) {
    b0 = a.bias[out];
    if (row + 1 < rows) b1 = a.bias[out + 1];
  }
  v.x = ptx::fma_f32(alpha, v.x, b0);
  v.y = ptx::fma_f32(alpha, v.y, b1);
  const std::int64_t at = token * a.ldy + out;
  if (a.y_pairs && row + 1 < rows) {
    if (a.y_type == 2)
      ptx::st(ptx::cast<float>(a.y) + at, v);
    else
      ptx::st(ptx::cast<std::uint16_t>(a.y) + at,
              a.y_type == 1 ? ptx::cvt_x2<Half::bf16>(v.x, v.y) : ptx::cvt_x2<Half::f16>(v.x, v.y));
  } else {
    store_one(a, at, v.x);
    if (row + 1 < rows) store_one(a, at + 1, v.y);
  }
}

// Where y of rows n … n+3 of a block goes, looked up once for many tokens.
struct StorePlace {
  std::int32_t out, rows;  // the first output column; how many of the four exist
  bool quads;              // stores of four elements are aligned
  float alpha, bias[4];
};
SF_DEVICE StorePlace store_place(const DecodeArgs& a, std::int32_t column, int n) {
  StorePlace s{};
  if (column >= a.columns) return s;
  int p = 0;
  while (p + 1 < a.parts && a.part[p + 1].block0 <= column) ++p;
  const std::int32_t row = 64 * (column - a.part[p].block0) + n;
  s.rows = a.part[p].n - row;
  s.alpha = a.part[p].alpha;
  s.out = a.part[p].n0 + row;
  s.quads = a.y_quads && s.rows >= 4;
  SF_UNROLL
  for (int i = 0; i < 4; ++i) {
    s.bias[i] = 0;
    if (a.bias && i < s.rows) s.bias[i] = a.bias[s.out + i];
  }
  return s;
}
SF_DEVICE void store_four(const DecodeArgs& a, const StorePlace& s, int token, const ptx::F32x4& sum) {
  const ptx::F32x4 v{ptx::fma_f32(s.alpha, sum.x, s.bias[0]), ptx::fma_f32(s.alpha, sum.y, s.bias[1]),
                     ptx::fma_f32(s.alpha, sum.z, s.bias[2]), ptx::fma_f32(s.alpha, sum.w, s.bias[3])};
  const std::int64_t at = token * a.ldy + s.out;
  if (s.quads) {
    if (a.y_type == 2)
      ptx::st(ptx::cast<float>(a.y) + at, v);
    else
      ptx::st(ptx::cast<std::uint16_t>(a.y) + at,
              a.y_type == 1 ? ptx::U32x2{ptx::cvt_x2<Half::bf16>(v.x, v.y), ptx::cvt_x2<Half::bf16>(v.z, v.w)}
                            : ptx::U32x2{ptx::cvt_x2<Half::f16>(v.x, v.y), ptx::cvt_x2<Half::f16>(v.z, v.w)});
  } else {
    if (s.rows > 0) store_one(a, at, v.x);
    if (s.rows > 1) store_one(a, at + 1, v.y);
    if (s.rows > 2) store_one(a, at + 2, v.z);
    if (s.rows > 3) store_one(a, at + 3, v.w);
  }
}

}  // namespace swordfish::mma
