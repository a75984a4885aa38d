// swizzle_scales: block scales of a weight, row-major [n, s] bytes, into the atoms of sm1xx-blockscaled/1 (pack/sm1xx.h). Moves
// every byte once; bound by memory.
//
// Partition. A CTA takes a strip of up to 256 bytes of 128 rows: it copies the aligned 16-byte chunks that cover it to shared
// memory, and makes whole atoms of it there. A thread reads 16 bytes of the rows i, i+32, i+64, i+96 and writes 16 bytes (row i) of
// four atoms: the transpose of 4×4 words is only a choice of registers. A warp takes 8 rows i × 64 bytes and writes 128 bytes of an
// atom at a time:
//
//   lane = 4·(i % 8) + chunk        reads   row i + 32j:   chunk 0 | 1 | 2 | 3        64 bytes, j = 0..3
//   warp % 4 = i / 8                writes  atom 4·chunk + a:  lanes of 8 rows i       8 × 16 bytes, a = 0..3
//
// Rows may lie at any address: 32 rows are a multiple of 16 bytes, so that the four rows of a thread have one misalignment. Row by
// row an odd number of chunks apart, 8 rows × 64 bytes hit each bank once where rows are odd multiples of 4 bytes. Straight from
// global memory into registers was slower where rows are multiples of 16 bytes (0.85–0.89 of copy rate on an H200, against
// 0.91–0.94) and out of the question elsewhere (0.52: loads of 4 bytes touch each sector several times).
// Bytes past n or s are written as zero. Budget: 256 threads (128 for short rows), at most 34 KB: 6 CTAs an SM, all of it in
// flight.
#pragma once

#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
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
  std::uint32_t lead = 0;      // address of `from` modulo 16
};

// Strips of a row: as even as whole atoms allow.
inline constexpr std::uint32_t kSwizzleStrip = 256;  // bytes at most
struct Strips {
  std::uint32_t count, width;
  std::uint32_t pitch;  // of a row in shared memory
};
constexpr Strips strips_of(std::int64_t s) {
  const auto atoms = static_cast<std::uint32_t>(sm1xx::k_atoms(s));
  const std::uint32_t most = kSwizzleStrip / 4, least = (atoms + most - 1) / most, width = (atoms + least - 1) / least * 4;
  return {(4 * atoms + width - 1) / width, width, 16 * ((width + 30) / 16 | 1)};
}
inline ptx::LaunchShape swizzle_shape(std::int64_t n, std::int64_t s) {
  const Strips strips = strips_of(s);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>((n + sm1xx::atom_n - 1) / sm1xx::atom_n) * strips.count;
  shape.threads = strips.width > 64 ? 256 : 128;
  shape.dynamic_smem = static_cast<std::uint32_t>(sm1xx::atom_n) * strips.pitch;
  return shape;
}

// kUnit: 4 where the rows lie at multiples of 4 bytes, else 1.
template <int kUnit>
SF_KERNEL void SF_LAUNCH_BOUNDS(256) swizzle_scales(const SwizzleArgs a) {
  const Strips strips = strips_of(a.s);
  const std::uint32_t threads = ptx::ntid_x(), thread = ptx::tid_x(), stripe = ptx::ctaid_x() / strips.count;
  const std::int64_t s0 = std::int64_t{strips.width} * (ptx::ctaid_x() % strips.count), row0 = sm1xx::atom_n * stripe;
  const auto bytes = static_cast<std::uint32_t>(s0 + strips.width < a.s ? strips.width : a.s - s0);
  const auto rows = static_cast<std::uint32_t>(a.n - row0 < sm1xx::atom_n ? a.n - row0 : sm1xx::atom_n);
  auto cursor = ptx::dyn_smem();
  const auto staged = ptx::carve<std::uint8_t>(cursor, sm1xx::atom_n * strips.pitch);

  // Positions count from the multiple of 16 at or before the first byte of all; the strip begins at `first` in the stripe's row 0.
  const ptx::gptr<const std::uint8_t> base = a.from - a.lead;
  const std::int64_t first = a.lead + row0 * a.stride + s0, end = a.lead + (a.n - 1) * a.stride + a.s;
  const std::uint32_t chunks = (strips.width + 30) / 16, step_rows = threads / chunks, step_chunks = threads % chunks;
  std::uint32_t row = thread / chunks, chunk = thread % chunks;
  while (row < rows) {
    const std::int64_t begin = first + row * a.stride, at = begin / 16 * 16 + 16 * chunk;
    const auto to = staged + (strips.pitch * row + 16 * chunk);
    if (at >= a.lead && at + 16 <= end) {
      if (at < begin + bytes) ptx::cp_async_cg(to, base + at);
    } else {  // the first and the last chunk of all
      SF_UNROLL
      for (int b = 0; b < 16; ++b) to[b] = at + b >= a.lead && at + b < end ? std::uint8_t{base[at + b]} : std::uint8_t{0};
    }
    row += step_rows, chunk += step_chunks;
    if (chunk >= chunks) chunk -= chunks, ++row;
  }
  ptx::cp_async_wait_all();
  ptx::bar_sync(0);

  const std::uint32_t i = 8 * (thread / 32 % 4) + thread % 32 / 4;
  const auto shift = static_cast<std::uint32_t>((first + i * a.stride) % 16), skip = kUnit == 1 ? shift % 4 : 0;
  const auto from = ptx::cast<const std::uint32_t>(staged + (strips.pitch * i + shift - skip));
  const auto to = a.to + sm1xx::atom_bytes * (stripe * sm1xx::k_atoms(a.s) + s0 / 4) + 16 * i;
  for (std::uint32_t q = 64 * (thread / 128) + 16 * (thread % 4); q < bytes; q += threads / 2) {
    const std::uint32_t take = bytes - q < 16 ? bytes - q : 16;
    const auto read = [&](std::uint32_t j, std::uint32_t k) -> std::uint32_t {
      if (i + 32 * j >= rows || 4 * k >= skip + take) return 0;
      return from[8 * strips.pitch * j + q / 4 + k];
    };
    std::uint32_t word[4], next[4] = {};
    SF_UNROLL
    for (std::uint32_t j = 0; j < 4; ++j) next[j] = read(j, 0);
    SF_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) {
      SF_UNROLL
      for (std::uint32_t j = 0; j < 4; ++j) {
        word[j] = next[j];
        if (k < 3 || kUnit == 1) next[j] = read(j, k + 1);
        if (kUnit == 1) word[j] = ptx::shf_r(word[j], next[j], 8 * skip);
        if (take < 4 * k + 4) word[j] &= take <= 4 * k ? 0 : (1u << (8 * (take - 4 * k))) - 1;
      }
      if (4 * k < take) ptx::st(to + sm1xx::atom_bytes * (q / 4 + k), ptx::U32x4{word[0], word[1], word[2], word[3]});
    }
  }
}

}  // namespace swordfish::cuda
