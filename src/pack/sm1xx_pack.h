// Packing into sm1xx-blockscaled/1 (pack/sm1xx.h), back, to and from other layouts, and what kernels with a single global need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pack/sm1xx.h"
#include "swordfish/pack.h"

namespace swordfish::sm1xx {

// Scales of a row-major plane [n, s] to atoms: source row i begins at from + i·stride (bytes; any alignment; s readable bytes
// each), `to` has ceil(n/128)·ceil(s/4) atoms, 64-byte aligned, every byte of which is written. Any n, s ≥ 1. One thread.
void swizzle_scales(const std::uint8_t* from, std::ptrdiff_t stride, std::int64_t n, std::int64_t s, std::uint8_t* to);
// The inverse; to + i·stride receives s bytes.
void unswizzle_scales(const std::uint8_t* from, std::int64_t n, std::int64_t s, std::uint8_t* to, std::ptrdiff_t stride);

}  // namespace swordfish::sm1xx

namespace swordfish {

// Packs the FP4 parts of one weight into sm1xx-blockscaled/1. They must have K, group size (16 or 32) and scale type in common, no
// zero points, offsets or act-order. Globals stay as stored, one a part. `threads`: 0 uses all cores. Throws std::bad_alloc.
Result<PackedWeight> pack_blockscaled(std::span<const QuantTensor> parts, std::string name, int threads = 0);
// One part as a QuantTensor again (what unpack() does for this layout).
Result<QuantTensor> unpack_blockscaled(const PackedView& weight, std::int64_t part);
// The same weight in another layout, through QuantTensors: exact in both directions, but for a scale of −0, which becomes 0.
Result<PackedWeight> convert(const PackedView& weight, Layout layout, std::string name, int threads = 0);

// One part as a weight of its own, for a kernel that knows a single global: parts run apart, each writing its columns
// [n0, n0+n) of y. Points into `weight`; `entry` becomes its part table and must live as long as the view.
PackedView single_part(const PackedView& weight, std::int64_t part, PackedPart& entry);
// Gives all parts one global by multiplying the block scales of some by a power of two, if that changes no weight: every ratio is a
// power of two, all divide or all multiply, and no scale leaves the range in which the shift is exact. Otherwise false, and the
// weight is as it was (its parts then need their own alpha, or run apart). `weight` is of this layout.
bool fold_globals(PackedWeight& weight);

}  // namespace swordfish
