// Launching the kernels of quantize.cuh and swizzle.cuh: activations to FP4 with swizzled scales, and block scales into atoms.
// Plain C++; in a build without CUDA each says so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace swordfish::blockscaled {

inline constexpr int kMostAlphas = 8;

// Device pointers, unless said otherwise. Quantizes x[m, k], and writes alpha[i] = global of x · factor[i] for a product's
// epilogue.
struct QuantizeCall {
  const void* x = nullptr;
  DType x_type = DType::bf16;  // bf16 or f16
  std::int64_t m = 0, k = 0, ldx = 0;
  int block = 16;                    // columns a scale: 16 NVFP4, 32 MXFP4
  float global = 0;                  // NVFP4: of x, as given; 0: computed from x. MXFP4 has none
  const float* factor = nullptr;     // host memory, `alphas` values
  int alphas = 0;                    // at most kMostAlphas
  std::uint32_t* counter = nullptr;  // 0 before and after
  std::uint32_t* partial = nullptr;  // amax_ctas() words
  float* scale = nullptr;            // 3 words
  float* alpha = nullptr;            // `alphas` words
  std::uint8_t* codes = nullptr;     // [m, ceil(k/2)], 16-byte aligned
  std::uint8_t* scales = nullptr;    // atoms, 16-byte aligned
  int sms = 1;
  void* stream = nullptr;
};
// CTAs, and words of `partial`, that finding the largest of x takes on a GPU with `sms` multiprocessors.
constexpr int amax_ctas(int sms) { return 8 * sms; }
Status launch_quantize(const QuantizeCall& call);

// Scales [n, s] bytes, `stride` bytes from row to row, into atoms (pack/sm1xx.h). Device memory; `to` 16-byte aligned.
Status launch_swizzle(const std::uint8_t* from, std::int64_t stride, std::int64_t n, std::int64_t s, std::uint8_t* to,
                      void* stream);

// `rows` rows of `bytes` bytes in device memory, `to_stride` and `from_stride` bytes apart.
Status launch_copy_rows(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride, std::int64_t bytes,
                        std::int64_t rows, void* stream);

}  // namespace swordfish::blockscaled
