// Block scales to and from Sm1xx atoms: a transpose of 32-bit words, done in blocks that stream.
//
// The words of rows i, i+32, i+64, i+96 that belong to one atom are 16 neighbouring bytes there, so rows i … i+3 of the four row
// groups give whole 64-byte lines of an atom, written past the caches: nothing is read in order to be overwritten. A tile is eight
// rows of each group, four runs of the source: while one is made, each step prefetches its share of the next, run by run, and the
// lines that it needs itself two steps later, which L1 does not hold from tile to tile. Figures in MEASURED.md
// (bench/swizzle_bench.cc).
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
// Rows of each group in a tile. At S = 1,792 a tile and the one ahead take 114 KiB; all 32 rows at once were 1.8 times slower there
// (Zen 3, an L2 of 512 KiB that others use too), columns cut instead of rows 2 times.
constexpr int kTileRows = 8;

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

// 128 rows of 16·quads bytes. Prefetches go past a row's end and past the stripe, to the next one's first tile: hints, no accesses.
void SwizzleStripe(const std::uint8_t* from, std::ptrdiff_t stride, std::int64_t quads, std::uint8_t* to) {
  for (int i0 = 0; i0 < 32; i0 += kTileRows) {
    const std::uint8_t* ahead = i0 + kTileRows < 32 ? from + (i0 + kTileRows) * stride : from + atom_n * stride;
    std::int64_t column = 0;
    int row = 0;
    for (std::int64_t q0 = 0; q0 < quads; q0 += 4) {
      const std::int64_t q1 = std::min(quads, q0 + 4);
      for (int i = i0; i < i0 + kTileRows; i += 4) {
        for (std::int64_t q = q0; q < q1; ++q) {
          for (int line = 0; line < 4; ++line) {  // 16 rows × 16 bytes are read here: as much is fetched, twice
            hwy::Prefetch(from + (i + q - q0 + 32 * line) * stride + 16 * q0 + 64);
            hwy::Prefetch(ahead + column);
            column += 64;
            if (column < 16 * quads) continue;
            column = 0, ahead += stride;
            if (++row % kTileRows == 0) ahead += (32 - kTileRows) * stride;
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
