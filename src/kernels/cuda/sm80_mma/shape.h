// What host and device agree on about the mma.sync kernels: the kinds of weights, when scales are applied, sizes in shared memory.
#pragma once

#include <cstdint>

namespace swordfish::mma {

enum class Weights : int {
  int4,
  int8,
  fp4,       // e2m1, scales applied in fp32 (middle: any scales, in the fragment)
  fp4_e4m3,  // e2m1 with e4m3 scales, applied in the fragment; no table of rows
  fp4_e8m0,  // with e8m0 scales, applied in the fragment: for bf16 x, rows that cover pairs of slices
};
constexpr bool scaled_in_fragment(Weights weights) { return weights == Weights::fp4_e4m3 || weights == Weights::fp4_e8m0; }
enum class Extra : int { none, zeros, offsets };  // the plane beside the scales

// When the scale is applied.
enum class Flush : int {
  units,   // at the end of a step, which one scale row covers (int8: where a row ends or the warp's share does)
  pairs,   // after every two slices: rows cover whole pairs (fp4_e8m0: rows are in the fragments, one a pair)
  slices,  // after any slice, where the next has another row (fp4_e4m3, middle: rows are in the fragments, one a slice)
};
constexpr Flush folded_flush(Weights weights) { return weights == Weights::fp4_e8m0 ? Flush::pairs : Flush::slices; }

// What a template instance of the decode kernel costs and holds; the host plans with the same numbers. A step is kUnits units.
template <Weights weights, int kM8, Flush kFlush, int kUnits>
struct DecodeShape {
  static constexpr bool sums = weights == Weights::int4 || weights == Weights::int8;  // Σx is needed
  static constexpr int slices = kUnits * (weights == Weights::int8 ? 2 : 4);          // k16 slices of a step
  static constexpr int chunks = 2 * slices;                                           // 16-byte pieces of x a token and step
  static constexpr int code_bytes = 2048 * kUnits;
  static constexpr int x_bytes = 8 * kM8 * 16 * chunks;
  static constexpr int scale_rows = kFlush == Flush::slices ? slices : kFlush == Flush::pairs ? slices / 2 : 1;
  static constexpr int token_stride = 68;  // floats; 8t + g: no bank conflicts
  static constexpr int piece_bytes = 8 * kM8 * token_stride * 4;
  // Zero points of one byte start the sums, by the tensor core.
  static constexpr bool zeros_by_mma = weights == Weights::int4 && kM8 == 1 && kFlush == Flush::units;
  // A warp's, outside of the ring: scales as 16-bit numbers; zero points, and as many constants.
  static constexpr int converted_bytes = scaled_in_fragment(weights) ? 128 * scale_rows : zeros_by_mma ? 256 : 0;
};
// Bytes of a ring slot (a multiple of 128, which the swizzle of x needs), for planes of 2^scale_shift and 2^extra_shift bytes an
// element; extra_shift < 0: no plane.
template <class Shape>
constexpr int slot_bytes(int scale_shift, int extra_shift) {
  const int rows = (Shape::scale_rows * 64 << scale_shift) + (extra_shift < 0 ? 0 : Shape::scale_rows * 64 << extra_shift);
  const int bytes = Shape::code_bytes + Shape::x_bytes + rows, least = Shape::piece_bytes;
  return ((bytes > least ? bytes : least) + 127) / 128 * 128;
}

// The same of the middle kernel: a unit holds 64 k (int8: 32) of kColumns columns, with the x and the rows of planes that they
// share.
template <Weights weights, int kM16, Flush kFlush, int kColumns>
struct MiddleShape {
  static constexpr int slices = weights == Weights::int8 ? 2 : 4;
  static constexpr int chunks = 2 * slices;
  static constexpr int tokens = 16 * kM16;
  static constexpr int halves = kM16 > 4 ? 2 : 1;  // warps that share a column: registers hold 64 × 64 or 32 × 128 sums
  static constexpr int warps = kColumns * halves;  // of a group
  static constexpr int x_bytes = tokens * 16 * chunks;
  static constexpr int scale_rows = kFlush == Flush::slices ? slices : 1;
  static constexpr int round = kM16 >= 3 && weights != Weights::int8 ? 16 : 8;  // tokens that leave through shared memory at a time
  static constexpr int token_stride = 68;
  static constexpr int piece_bytes = round * token_stride * 4;  // a column
  static constexpr int row_bytes(int scale_shift, int extra_shift) {
    return (scale_rows * 64 << scale_shift) + (extra_shift < 0 ? 0 : scale_rows * 64 << extra_shift);
  }
  static constexpr int unit_bytes(int scale_shift, int extra_shift) {
    const int bytes = kColumns * (2048 + row_bytes(scale_shift, extra_shift)) + x_bytes, least = kColumns * piece_bytes;
    return ((bytes > least ? bytes : least) + 127) / 128 * 128;
  }
};
inline constexpr int kMiddleWarps = 8;       // of a CTA: what registers allow
inline constexpr int kConvertedBytes = 512;  // a warp of the middle kernel: four planes of 64 16-bit numbers

// Warps and ring slots, by what registers and shared memory allow: a block may have 99 KB, 163 KB or 227 KB of it.
enum class SharedMemory { small, medium, large };
constexpr SharedMemory shared_memory(int arch) {
  if (arch == 86 || arch == 89 || arch >= 120) return SharedMemory::small;
  return arch < 90 ? SharedMemory::medium : SharedMemory::large;
}
#if defined(__CUDA_ARCH__)
inline constexpr SharedMemory kSharedMemory = shared_memory(__CUDA_ARCH__ / 10);
#else
inline constexpr SharedMemory kSharedMemory = SharedMemory::large;
#endif
constexpr int decode_warps(Weights weights, int m8, Flush flush, SharedMemory shared) {
  if (shared == SharedMemory::small) return 8;
  if (m8 == 2 && shared == SharedMemory::medium) return 12;
  if (m8 == 1 || scaled_in_fragment(weights) || flush == Flush::units) return 16;
  return flush == Flush::pairs && weights == Weights::int4 ? 16 : 12;
}
// Two units a step halve what a loop costs beside its arithmetic; x of 16 tokens leaves no room for them.
constexpr int decode_units(Weights weights, int m8, Flush flush, SharedMemory shared) {
  if (shared != SharedMemory::large || m8 != 1) return 1;
  return scaled_in_fragment(weights) || (weights == Weights::int4 && flush == Flush::units) ? 2 : 1;
}
constexpr int decode_stages(int units, SharedMemory shared) { return shared == SharedMemory::large && units == 1 ? 3 : 2; }
// The middle kernel's ring: units of a slot, and slots.
struct MiddleRing {
  int units, stages;
};
template <class Shape>
constexpr MiddleRing middle_ring(Flush flush, SharedMemory shared) {
  if (shared == SharedMemory::small) return {1, 2};
  if (flush != Flush::units || Shape::halves == 2) return {1, 4};
  constexpr int slot = 2 * Shape::unit_bytes(2, 0), groups = kMiddleWarps / Shape::warps;  // with rows of the largest kind
  const int room = (shared == SharedMemory::medium ? 163 : 227) * 1024 - kMiddleWarps * kConvertedBytes;
  const int stages = room / (groups * slot);
  return {2, stages < 2 ? 2 : stages > 4 ? 4 : stages};
}

inline constexpr int kMaxParts = 8;  // of a fused weight

}  // namespace swordfish::mma
