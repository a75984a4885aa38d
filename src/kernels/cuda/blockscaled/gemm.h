// A block-scaled product as the kernels of this folder take it: y[m, n] = alpha · x[m, k] · w[n, k]ᵀ (+ bias), both operands FP4
// with scales in atoms (pack/sm1xx.h), and the list of kernels that this build holds. Plain C++ for nvcc and g++.
//
//           x: CUTLASS's A              w: CUTLASS's B              y: CUTLASS's D
//   codes   [m, k/2] bytes              [n, k/2] bytes              [m, n] bf16 or f16, row stride ldy elements
//   scales  atoms of ceil(m/128) rows   atoms of ceil(n/128) rows
//
// alpha is one fp32 in device memory: the global of the weight's part times that of x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace swordfish::blockscaled {

struct Gemm {
  std::int32_t m = 0, n = 0, k = 0;  // k: a multiple of 32; n: of 8
  const std::uint8_t* x_codes = nullptr;
  const std::uint8_t* x_scales = nullptr;
  const std::uint8_t* w_codes = nullptr;
  const std::uint8_t* w_scales = nullptr;
  const float* alpha = nullptr;
  const float* bias = nullptr;  // [n] or null; null in a group
  void* y = nullptr;            // 16-byte aligned
  std::int64_t ldy = 0;         // a multiple of 8
};

// Products of one launch: up to kMostGroups of them, each with an alpha of its own.
inline constexpr int kMostGroups = 8;
struct Groups {
  Gemm group[kMostGroups];
  int count = 0;
};

enum class Family : std::uint8_t { tcgen05, warp };  // sm_100, 103, 110; sm_120, 121
struct Instance {
  Family family{};
  int block = 16;  // columns a scale: 16 NVFP4, 32 MXFP4
  DType y_type = DType::bf16;
  std::string_view archs;  // targets compiled for: "100f 110a"
  // Bytes of workspace for a launch on a GPU with `sms` multiprocessors, 256-byte aligned; of undefined content before and after.
  std::size_t (*workspace)(int sms) = nullptr;
  // One of the two is set. Launches on the current device; allocates nothing.
  Status (*launch)(const Gemm& gemm, int sms, int device, void* workspace, void* stream) = nullptr;
  Status (*launch_grouped)(const Groups& groups, int sms, int device, void* workspace, void* stream) = nullptr;
};
// Whether code for these targets runs on an architecture: an `a` runs on its own, an `f` on those of its family from its own on.
bool has_code(std::string_view targets, int arch);
// What this build holds; empty where it was configured without SWORDFISH_BLOCKSCALED.
std::span<const Instance> instances();

}  // namespace swordfish::blockscaled
