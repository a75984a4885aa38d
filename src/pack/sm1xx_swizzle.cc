// Block scales to and from Sm1xx atoms: a transpose of 32-bit words, done in blocks that stream.
//
// The words of rows i, i+32, i+64, i+96 that belong to one atom are 16 neighbouring bytes there, so rows i … i+3 of the four row
// groups give whole 64-byte lines of an atom, written past the caches: 128 rows of up to 1,792 bytes (a tile) become whole
// atoms, and nothing is read in order to be overwritten. 128 source rows are more streams than a core follows by itself, so
// each step prefetches its share of the next tile, row by row. Figures in MEASURED.md (bench/swizzle_bench.cc).
#include "pack/sm1xx_pack.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pack/sm1xx_swizzle.cc"
#include "base/simd_targets.h"

#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace swordfish::sm1xx::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
void SwizzleStripe(const std::uint8_t* from, std::ptrdiff_t stride, std::int64_t quads, std::uint8_t* to) {
  for (std::int64_t i = 0; i < atom_n; ++i)
    for (std::int64_t c = 0; c < 4 * quads; ++c) std::memcpy(to + scale_offset(i, 4 * c, 4 * quads), from + i * stride + 4 * c, 4);
}
#else
namespace hn = hwy::HWY_NAMESPACE;

// A vector holds 16 bytes of each of kRows neighbouring rows.
constexpr int kRows = HWY_MAX_BYTES >= 32 ? 2 : 1;
using D = hn::FixedTag<std::uint32_t, 4 * kRows>;
using D64 = hn::Repartition<std::uint64_t, D>;
using V = hn::Vec<D>;
// 1,792 bytes of a row: K = 28,672 of NVFP4 in one tile, and a tile with the one ahead of it still fit an L2 cache of 512 KiB.
// Tiles of 256 to 1,024 bytes were up to 20 % slower on Zen 3.
constexpr std::int64_t kTileQuads = 112;

HWY_INLINE V LoadRows(const std::uint8_t* row, std::ptrdiff_t stride) {
  const D d;
  if constexpr (kRows == 1) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(row));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, reinterpret_cast<const std::uint32_t*>(row + stride)),
                       hn::LoadU(half, reinterpret_cast<const std::uint32_t*>(row)));
  }
}

// Rows i … i+3 of the four row groups, 4 atoms: a line of 64 bytes in each.
HWY_INLINE void SwizzleLines(const std::uint8_t* HWY_RESTRICT row, std::ptrdiff_t stride, std::uint8_t* HWY_RESTRICT to) {
  const D d;
  const D64 d64;
  V out[4 / kRows][4];
  for (int r = 0; r < 4 / kRows; ++r, row += kRows * stride) {
    const V a = LoadRows(row, stride), b = LoadRows(row + 32 * stride, stride);
    const V c = LoadRows(row + 64 * stride, stride), e = LoadRows(row + 96 * stride, stride);
    const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
    const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
    out[r][0] = hn::BitCast(d, hn::InterleaveLower(d64, ab0, ce0));
    out[r][1] = hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ce0));
    out[r][2] = hn::BitCast(d, hn::InterleaveLower(d64, ab1, ce1));
    out[r][3] = hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ce1));
  }
  for (int a = 0; a < 4; ++a, to += atom_bytes)
    for (int r = 0; r < 4 / kRows; ++r) hn::Stream(out[r][a], d, reinterpret_cast<std::uint32_t*>(to + 16 * kRows * r));
}

// 128 rows of 16·quads bytes. Prefetches go past the stripe, to the next one's first tile: a hint, no access.
void SwizzleStripe(const std::uint8_t* from, std::ptrdiff_t stride, std::int64_t quads, std::uint8_t* to) {
  for (std::int64_t t0 = 0; t0 < quads; t0 += kTileQuads) {
    const std::int64_t t1 = std::min(quads, t0 + kTileQuads);
    const bool last = t1 == quads;
    const std::uint8_t* ahead = last ? from + atom_n * stride : from + 16 * t1;
    const std::int64_t width = 16 * std::min(last ? quads : quads - t1, kTileQuads);
    std::int64_t column = 0;
    for (std::int64_t q0 = t0; q0 < t1; q0 += 4) {
      const std::int64_t q1 = std::min(t1, q0 + 4);
      for (int i = 0; i < 32; i += 4) {
        for (std::int64_t q = q0; q < q1; ++q) {
          for (int line = 0; line < 4; ++line) {  // 16 rows × 16 bytes are read here: as much is fetched
            hwy::Prefetch(ahead + column);
            column += 64;
            if (column >= width) column = 0, ahead += stride;
          }
          SwizzleLines(from + i * stride + 16 * q, stride, to + 4 * q * atom_bytes + 16 * i);
        }
      }
    }
  }
}
#endif
}  // namespace swordfish::sm1xx::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swordfish::sm1xx {

HWY_EXPORT(SwizzleStripe);

void swizzle_scales(const std::uint8_t* from, std::ptrdiff_t stride, std::int64_t n, std::int64_t s, std::uint8_t* to) {
  const std::int64_t atoms = k_atoms(s), quads = s / (4 * atom_s), done = quads * 4 * atom_s;
  const auto stripe = HWY_DYNAMIC_DISPATCH(SwizzleStripe);
  for (std::int64_t n0 = 0; n0 < n; n0 += atom_n, from += atom_n * stride, to += atoms * atom_bytes) {
    const std::int64_t rows = std::min(atom_n, n - n0);
    const bool whole = rows == atom_n;
    if (whole && quads > 0) stripe(from, stride, quads, to);
    // What vectors do not take: atoms that end in the last, partial 16 scales, and all of a partial stripe.
    const std::int64_t s0 = whole ? done : 0;
    if (s0 == s) continue;
    if (!whole || s % atom_s != 0)
      std::memset(to + s0 / atom_s * atom_bytes, 0, static_cast<std::size_t>((atoms - s0 / atom_s) * atom_bytes));
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::uint8_t* row = from + i * stride;
      std::int64_t c = s0;
      for (; c + atom_s <= s; c += atom_s) std::memcpy(to + scale_offset(i, c, atoms), row + c, atom_s);
      if (c < s) std::memcpy(to + scale_offset(i, c, atoms), row + c, static_cast<std::size_t>(s - c));
    }
  }
  hwy::FlushStream();
}

void unswizzle_scales(const std::uint8_t* from, std::int64_t n, std::int64_t s, std::uint8_t* to, std::ptrdiff_t stride) {
  const std::int64_t atoms = k_atoms(s);
  for (std::int64_t i = 0; i < n; ++i, to += stride) {
    std::int64_t c = 0;
    for (; c + atom_s <= s; c += atom_s) std::memcpy(to + c, from + scale_offset(i, c, atoms), atom_s);
    if (c < s) std::memcpy(to + c, from + scale_offset(i, c, atoms), static_cast<std::size_t>(s - c));
  }
}

}  // namespace swordfish::sm1xx
#endif
