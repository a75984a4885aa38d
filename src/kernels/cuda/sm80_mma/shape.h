// What host and device agree on about the decode kernels: the kinds of weights, when scales are applied, sizes in shared memory.
#pragma once

#include <cstdint>

namespace swordfish::mma {

enum class Weights : int {
  int4,
  int8,
  fp4,       // e2m1, scales applied in fp32
  fp4_e4m3,  // e2m1 with e4m3 scales, applied in the fragment
};
enum class Extra : int { none, zeros, offsets };  // the plane beside the scales

// When the scale is applied.
enum class Flush : int {
  units,   // at the end of a unit, where a scale row ends or the warp's share does: rows cover whole units
  pairs,   // after every two slices: rows cover whole pairs
  slices,  // after any slice, where the next has another row (fp4_e4m3: rows are in the fragments, one a slice)
};

// What a template instance costs and holds; the host plans with the same numbers.
template <Weights weights, int kM8, Flush kFlush>
struct DecodeShape {
  static constexpr bool sums = weights == Weights::int4 || weights == Weights::int8;  // Σx is needed
  static constexpr int slices = weights == Weights::int8 ? 2 : 4;                     // k16 slices of a unit
  static constexpr int chunks = 2 * slices;                                           // 16-byte pieces of x a token and unit
  static constexpr int x_bytes = 8 * kM8 * 16 * chunks;
  static constexpr int scale_rows = kFlush == Flush::slices ? slices : kFlush == Flush::pairs ? slices / 2 : 1;
  static constexpr int token_stride = 68;  // floats; 8t + g: no bank conflicts
  static constexpr int piece_bytes = 8 * kM8 * token_stride * 4;
};
// Bytes of a ring slot (a multiple of 128, which the swizzle of x needs), for planes of 2^scale_shift and 2^extra_shift bytes an
// element; extra_shift < 0: no plane.
template <class Shape>
constexpr int slot_bytes(int scale_shift, int extra_shift) {
  const int rows = (Shape::scale_rows * 64 << scale_shift) + (extra_shift < 0 ? 0 : Shape::scale_rows * 64 << extra_shift);
  const int bytes = 2048 + Shape::x_bytes + rows, least = Shape::piece_bytes;
  return ((bytes > least ? bytes : least) + 127) / 128 * 128;
}

inline constexpr int kStages = 3;    // ring slots a warp
inline constexpr int kMaxParts = 8;  // of a fused weight

}  // namespace swordfish::mma
