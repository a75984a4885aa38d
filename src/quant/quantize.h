// Round-to-nearest quantization of one dense matrix: codes, scales and zero points as the formats of formats.md 4.3, 5.2, 6.3 store
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/parallel.h"
#include "swordfish/buffer.h"
#include "swordfish/dtype.h"

namespace swordfish {

// Row-major [n, k] of bf16, f16 or f32; every element finite.
struct DenseMatrix {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::int64_t n = 0, k = 0;
};
double largest_magnitude(const DenseMatrix& w, ThreadPool& pool);

struct QuantizedMatrix {
  Buffer codes;   // rows padded with zero bits to 32-bit words (integers), or k/2 bytes (FP4)
  Buffer scales;  // [n, groups]
  Buffer zeros;   // asymmetric: 32-bit words [ceil(n·bits/32), groups], packed along n; else empty
};

// bits 4 or 8; `group` divides k. Scales are the smallest value of `scale_type` that clips nothing, so every weight is within half
// a step; 1 for a group of zeros. A scale beyond the range of the type comes out as infinity.
QuantizedMatrix quantize_integers(const DenseMatrix& w, int bits, bool symmetric, std::int64_t group, DType scale_type,
                                  ThreadPool& pool);
// e2m1 with an e4m3 scale per 16 columns, relative to `global`: amax/(6·448) by the usual convention.
QuantizedMatrix quantize_nvfp4(const DenseMatrix& w, float global, ThreadPool& pool);
float nvfp4_global(double amax);
// e2m1 with an e8m0 scale per 32 columns: the smallest power of two for which the largest element is at most 7 (it rounds to 6).
QuantizedMatrix quantize_mxfp4(const DenseMatrix& w, ThreadPool& pool);

}  // namespace swordfish
