// Macros and small types that let one kernel source compile with nvcc (machine code) and with g++ (the model on the CPU).
//
// Under nvcc every wrapper of this folder is inline PTX; elsewhere it calls the machine model declared in model.h. In host builds
// each wrapper takes one more defaulted argument, the place of the call, so that a report can name the kernel's line.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define SF_ON_DEVICE 1
#define SF_KERNEL __global__
#define SF_DEVICE __device__ __forceinline__
#define SF_LAUNCH_BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#define SF_GRID_CONSTANT __grid_constant__
#define SF_UNROLL _Pragma("unroll")
#define SF_NO_UNROLL _Pragma("unroll 1")
#define SF_AT       // in a parameter list: the place of the call (host builds only)
#define SF_AT_ONLY  // the same where it is the only parameter
#define SF_PASS     // in an argument list: hands the place on to a wrapper
#define SF_PASS_ONLY
#else
#include <source_location>
#define SF_ON_DEVICE 0
#define SF_KERNEL
#define SF_DEVICE inline
#define SF_LAUNCH_BOUNDS(...)
#define SF_GRID_CONSTANT
#define SF_UNROLL
#define SF_NO_UNROLL
#define SF_AT , std::source_location at = std::source_location::current()
#define SF_AT_ONLY std::source_location at = std::source_location::current()
#define SF_PASS , at
#define SF_PASS_ONLY at
#endif

namespace swordfish::ptx {

// Vectors of 32-bit words, aligned to their size so that one access moves them.
struct alignas(8) U32x2 {
  std::uint32_t x, y;
};
struct alignas(16) U32x4 {
  std::uint32_t x, y, z, w;
};
struct alignas(8) F32x2 {
  float x, y;
};
struct alignas(16) F32x4 {
  float x, y, z, w;
};

// Whether the target has thread block clusters (the model has).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kClusters = false;
#else
inline constexpr bool kClusters = true;
#endif

// The 16-bit floating-point type of an operand.
enum class Half : int { f16, bf16 };

inline constexpr std::uint32_t kFullWarp = 0xffffffffu;

// A value of another type with the same bits.
template <class To, class From>
SF_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace swordfish::ptx
