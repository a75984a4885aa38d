// Matrix fragments: ldmatrix, stmatrix and mma.sync.
//
// wgmma and tcgen05 come with their kernels: wgmma.h, tcgen05.h beside this file, and their models beside mma.cc in tests/emulator.
#pragma once

#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::ptx {

// ldmatrix.sync.aligned.m8n8.xN.b16 (PTX ISA, "Warp Level Matrix Instructions: ldmatrix"): lane l hands in the 16-byte-aligned
// address of row l % 8 of matrix l / 8; lane l gets elements 2(l%4), 2(l%4)+1 of row l/4 of each matrix (transposed: of column
// l/4). For count 1 and 2 the addresses of lanes from 8·count on are ignored.
template <int count, bool transpose = false, class T>
SF_DEVICE void ldmatrix(std::uint32_t (&out)[count], sptr<T> row SF_AT) {
  static_assert(count == 1 || count == 2 || count == 4);
#if SF_ON_DEVICE
  const std::uint32_t address = shared_u32(row);
  if constexpr (count == 1) {
    if constexpr (transpose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(out[0]) : "r"(address) : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(out[0]) : "r"(address) : "memory");
  } else if constexpr (count == 2) {
    if constexpr (transpose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(out[0]), "=r"(out[1])
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(out[0]), "=r"(out[1])
                   : "r"(address)
                   : "memory");
  } else {
    if constexpr (transpose)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                   : "r"(address)
                   : "memory");
  }
#else
  emu::load_matrix(out, row.address(), count, transpose, at);
#endif
}

// stmatrix.sync.aligned.m8n8.xN.b16 (PTX ISA, "stmatrix"), sm_90 and up: the inverse of ldmatrix.
template <int count, bool transpose = false, class T>
SF_DEVICE void stmatrix(sptr<T> row, const std::uint32_t (&in)[count] SF_AT) {
  static_assert(count == 1 || count == 2 || count == 4);
#if SF_ON_DEVICE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  asm volatile("trap;");
#else
  const std::uint32_t address = shared_u32(row);
  if constexpr (count == 1) {
    if constexpr (transpose)
      asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(in[0]) : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(in[0]) : "memory");
  } else if constexpr (count == 2) {
    if constexpr (transpose)
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(in[0]), "r"(in[1])
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(in[0]), "r"(in[1]) : "memory");
  } else {
    if constexpr (transpose)
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(in[0]), "r"(in[1]),
                   "r"(in[2]), "r"(in[3])
                   : "memory");
    else
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(in[0]), "r"(in[1]),
                   "r"(in[2]), "r"(in[3])
                   : "memory");
  }
#endif
#else
  emu::store_matrix(in, row.address(), count, transpose, at);
#endif
}

// mma.sync.aligned.m16n8k16.row.col.f32.{f16,bf16}.{f16,bf16}.f32 (PTX ISA, "Warp Level Matrix Instructions: mma"): d = a·b + c.
// With g = lane/4, t = lane%4: a[i] holds row g + 8(i&1), k = 2t + 8(i>>1) and that + 1; b[i] holds column g, k = 2t + 8i and that
// + 1; c[i], d[i] hold row g + 8(i>>1), column 2t + (i&1).
template <Half type>
SF_DEVICE void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4] SF_AT) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
#else
  emu::mma_m16n8k16(d, a, b, c, type == Half::bf16, at);
#endif
}
// The same, adding to d.
template <Half type>
SF_DEVICE void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2] SF_AT) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  emu::mma_m16n8k16(d, a, b, d, type == Half::bf16, at);
#endif
}

}  // namespace swordfish::ptx
