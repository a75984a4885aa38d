// Activations x[M, K] (bf16, fp16) to NVFP4 and MXFP4: the scalar reference that the GPU kernel equals bit for bit.
//
// NVFP4:
// The result stands for x[m,k] ≈ e2m1(code) · e4m3(scale) · global, one scale per 16 columns. Exactly, in fp32 with every operation
// rounded to nearest even:
//
//   tensor   global  as given, within [2^-90, 2^117]; computed: max(amax / 2688, 2^-90), amax the largest finite |x| (2688 = 6 ·
//   448)
//            inv = 1 / global         c = inv · (1/6 as fp32)
//   block    a = max |x| of its 16 columns (columns past K count as 0)
//            any infinity or NaN in it: scale 0x7f (NaN), codes 0, so that the product is NaN instead of a plausible number
//            scale = min(a · c, 448) rounded to e4m3, nearest even
//            scale 0: codes 0         otherwise r = inv / value(scale)
//   element  the e2m1 value nearest to the exact product |x| · r, ties to the even code, 6 at most; with the sign of x (−0 stays)
//
// With a computed global the largest element of the tensor gets 6 · 448 up to rounding. With a given one, larger blocks saturate.
//
// MXFP4, the same but for (OCP Microscaling Formats 1.0, section 6.3; no global):
//
//   block    a of its 32 columns; infinity or NaN: scale 0xff (NaN), codes 0
//            scale = 2^(floor(log2 a) − 2), at least 2^-126, as e8m0; a below 2^-126 or zero: 2^-126
//   element  as above with r = 1 / scale; what rounds past 6 saturates
#pragma once

#include <cstdint>

#include "swordfish/buffer.h"
#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace swordfish {

inline constexpr std::int64_t kActivationBlock = 16;    // columns a scale
inline constexpr std::int64_t kMxActivationBlock = 32;  // of MXFP4
inline constexpr float kSmallestActivationGlobal = 0x1p-90f;
inline constexpr float kLargestActivationGlobal = 0x1p117f;

struct QuantizedActivations {
  Buffer codes;   // [m, ceil(k/2)] bytes: low nibble column 2j, high nibble 2j+1 (0 past an odd K)
  Buffer scales;  // [m, ceil(k/16)] e4m3, or [m, ceil(k/32)] e8m0, row-major (sm1xx::swizzle_scales puts them into atoms)
  float global = 1;
};

// What the definition derives from a global.
struct ActivationScale {
  float global, inv, c;
};
constexpr ActivationScale activation_scale(float global) { return {global, 1.0f / global, 1.0f / global * (1.0f / 6.0f)}; }

// The computed global of x[m, k], row stride ldx elements. x_type: bf16 or f16.
float activation_global(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx);
// Refuses another x_type, a global out of its range, ldx < k, and m or k below 1.
Result<QuantizedActivations> quantize_activations(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx,
                                                  float global);
// MXFP4. Refuses another x_type, ldx < k, and m or k below 1.
Result<QuantizedActivations> quantize_activations_mx(DType x_type, const void* x, std::int64_t m, std::int64_t k, std::int64_t ldx);

}  // namespace swordfish
