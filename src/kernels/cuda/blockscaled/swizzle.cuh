// swizzle_scales: block scales of a weight, row-major [n, s] bytes, into the atoms of sm1xx-blockscaled/1 (pack/sm1xx.h). Moves
// every byte once; bound by memory.
//
// Partition. A thread takes 16 bytes of the rows i, i+32, i+64, i+96 of a 128-row stripe and writes 16 bytes (row i) of four atoms:
// the transpose of 4×4 words is only a choice of registers. A warp takes 8 rows i × 64 bytes, so that it reads whole 32-byte
// sectors of a row and writes 128 bytes of an atom at a time:
//
//   lane = 4·(i % 8) + chunk        reads   row i + 32j:   chunk 0 | 1 | 2 | 3        64 bytes, j = 0..3
//   warp % 4 = i / 8                writes  atom 4·chunk + a:  lanes of 8 rows i       8 × 16 bytes, a = 0..3
//
// A CTA of 8 warps makes 2 × 16 whole atoms. Bytes past n or s are written as zero. Budget: 256 threads, no shared memory, 64
// bytes in flight a thread.
#pragma once

#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/registers.h"
#include "pack/sm1xx.h"

namespace swordfish::cuda {

struct SwizzleArgs {
  ptx::gptr<const std::uint8_t> from;
  std::int64_t stride = 0;  // bytes from row to row
  std::int64_t n = 0, s = 0;
  ptx::gptr<std::uint8_t> to;  // ceil(n/128) · ceil(s/4) atoms, 16-byte aligned
};

inline constexpr std::int64_t kSwizzleStrip = 128;  // source bytes of a row that a CTA takes

inline ptx::LaunchShape swizzle_shape(std::int64_t n, std::int64_t s) {
  const std::int64_t ctas = (n + sm1xx::atom_n - 1) / sm1xx::atom_n * ((s + kSwizzleStrip - 1) / kSwizzleStrip);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(ctas);
  shape.threads = 256;
  return shape;
}

// Up to 16 bytes of a row in loads of kUnit bytes (1, 4 or 16: what base and stride are multiples of); zero past `bytes`.
template <int kUnit>
SF_DEVICE ptx::U32x4 load_scales(ptx::gptr<const std::uint8_t> p, std::int64_t bytes) {
  ptx::U32x4 v{0, 0, 0, 0};
  if constexpr (kUnit == 16) {
    if (bytes >= 16) return ptx::ld_nc<ptx::U32x4>(p);
  }
  std::uint32_t* word = &v.x;
  SF_UNROLL
  for (int w = 0; w < 4; ++w) {
    if (kUnit >= 4 && bytes >= 4 * w + 4) {
      word[w] = ptx::ld_nc<std::uint32_t>(p + 4 * w);
    } else {
      SF_UNROLL
      for (int b = 0; b < 4; ++b) {
        if (bytes > 4 * w + b) {
          const std::uint8_t byte = p[4 * w + b];
          word[w] |= std::uint32_t{byte} << (8 * b);
        }
      }
    }
  }
  return v;
}

template <int kUnit>
SF_KERNEL void SF_LAUNCH_BOUNDS(256) swizzle_scales(const SwizzleArgs a) {
  const std::int64_t strips = (a.s + kSwizzleStrip - 1) / kSwizzleStrip, atoms = sm1xx::k_atoms(a.s);
  const std::int64_t stripe = ptx::ctaid_x() / strips, strip = ptx::ctaid_x() % strips;
  const std::uint32_t thread = ptx::tid_x();
  const std::int64_t i = 8 * (thread / 32 % 4) + thread % 32 / 4;
  const std::int64_t s0 = kSwizzleStrip * strip + 64 * (thread / 128) + 16 * (thread % 4);
  if (s0 >= a.s) return;
  ptx::U32x4 v[4];
  SF_UNROLL
  for (int j = 0; j < 4; ++j) {
    const std::int64_t row = sm1xx::atom_n * stripe + i + 32 * j;
    v[j] = load_scales<kUnit>(a.from + row * a.stride + s0, row < a.n ? a.s - s0 : 0);
  }
  const ptx::gptr<std::uint8_t> to = a.to + sm1xx::atom_bytes * (stripe * atoms + s0 / 4) + 16 * i;
  SF_UNROLL
  for (int k = 0; k < 4; ++k) {
    const auto word = [&](int j) { return k == 0 ? v[j].x : k == 1 ? v[j].y : k == 2 ? v[j].z : v[j].w; };
    if (s0 + 4 * k < a.s) ptx::st(to + sm1xx::atom_bytes * k, ptx::U32x4{word(0), word(1), word(2), word(3)});
  }
}

}  // namespace swordfish::cuda
