// quantize_fp4: activations x[m, k] (bf16, fp16) to FP4 codes and swizzled scales in one pass, bit-equal to
// quant/quantize_activation.h (NVFP4: 16 columns a scale, MXFP4: 32); activation_amax: the global of that definition, and the
// alphas of a product; set_scales: the same for a global that is given. All but the last bound by memory.
//
// Partition. A lane takes one block of 16 (32) columns at a time. A warp takes 4 blocks (one atom) of the 8 rows i, i+1 (+ 32j): it
// reads whole 128-byte lines of x, writes whole 32-byte sectors of codes, and its 32 scale bytes are neighbours in the atom.
//
//   lane = 16·(i % 2) + 4·j + block        scale byte: atom + 16·i + 4·j + block = (atom + 16·(i − i % 2)) + lane
//
// NVFP4: it takes two such pairs of rows, i … i+3, all loads ahead of the arithmetic (one pair: 5–9 % slower on an H200). A CTA of
// 8 warps takes 8 neighbouring atoms of those rows. Rows past m and blocks past k get scale 0 and no code.
//
// e2m1 without an instruction for it. With v = |x|·r the code is the least of round(2v), round(v) + 2, round(v/2) + 4 and 7: the
// table is linear in steps of 1/2, 1 and 2 up to 2, 4 and 6, and even codes are even integers in all three. Each is one FMA onto
// 2^23, where a float's last bit counts 1, so the product is rounded once. Comparisons and integer instructions run at half the
// rate of FMAs on sm_90 and decide the speed: an element takes 3 FMAs, 2 minima and 2 others. The 7 matters only where v may reach
// 7 (a saturated or subnormal scale), a branch for the whole block.
// Budget: 256 threads; 64 bytes in flight a thread.
#pragma once

#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/pairs.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/registers.h"
#include "kernels/cuda/ptx/warp.h"
#include "pack/sm1xx.h"

namespace swordfish::cuda {

struct QuantizeArgs {
  ptx::gptr<const std::uint16_t> x;
  std::int64_t m = 0, k = 0, ldx = 0;  // elements
  ptx::gptr<const float> scale;        // NVFP4: global, inv, c of the definition (activation_scale)
  ptx::gptr<std::uint8_t> codes;       // [m, ceil(k/2)]
  ptx::gptr<std::uint8_t> scales;      // ceil(m/128) · ceil(ceil(k/block)/4) atoms
};

// What a product multiplies its sums by: alpha[i] = global of x · factor[i], factor[i] the global of a part of the weight.
inline constexpr int kMostAlphas = 8;
struct AlphaArgs {
  ptx::gptr<float> alpha;  // `count` words
  float factor[kMostAlphas] = {};
  int count = 0;
};
struct SetArgs {
  float scale[3] = {1, 1, 1};  // global, inv, c
  ptx::gptr<float> to;         // the same three in device memory
  AlphaArgs alphas;
};

struct AmaxArgs {
  ptx::gptr<const std::uint16_t> x;
  std::int64_t m = 0, k = 0, ldx = 0;
  ptx::gptr<std::uint32_t> partial;  // one word a CTA; content before and after is of no meaning
  ptx::gptr<std::uint32_t> counter;  // zero before, zero after
  ptx::gptr<float> scale;            // the result: global, inv, c
  AlphaArgs alphas;
};

inline constexpr int kAmaxThreads = 256;

// Pairs of rows i that a thread takes, of the 16 of a stripe. `block`: columns a scale, 16 or 32.
constexpr std::uint32_t pairs_a_thread(int block) { return block == 16 ? 2 : 1; }
inline ptx::LaunchShape quantize_shape(std::int64_t m, std::int64_t k, int block) {
  const std::int64_t columns = 8 * sm1xx::atom_s * block;  // of a CTA
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>((m + 127) / 128) * (16 / pairs_a_thread(block));
  shape.grid_y = static_cast<std::uint32_t>((k + columns - 1) / columns);
  shape.threads = 256;
  return shape;
}

// Infinity of a 16-bit type: magnitudes at or above it are not finite.
template <ptx::Half type>
constexpr std::uint32_t infinity_bits() {
  return type == ptx::Half::bf16 ? 0x7f80u : 0x7c00u;
}

// v in [0, 448] to e4m3, nearest even.
SF_DEVICE std::uint32_t e4m3_from_f32(float v) {
  if (v < 0x1p-6f) {  // steps of 2^-9: 2^14 has that step as its last bit
    return ptx::bits_as<std::uint32_t>(ptx::add_f32(v, 0x1p14f)) - ptx::bits_as<std::uint32_t>(0x1p14f);
  }
  const std::uint32_t u = ptx::bits_as<std::uint32_t>(v);
  return (u + 0x7ffffu + (u >> 20 & 1u) - (120u << 23)) >> 20;
}
SF_DEVICE float e4m3_to_f32_positive(std::uint32_t b) {
  if (b < 8) return ptx::mul_f32(static_cast<float>(b), 0x1p-9f);
  return ptx::bits_as<float>((b << 20) + (120u << 23));
}

// 8 columns (4 words) to 8 nibbles. kClamp: v may be 7 or more.
template <ptx::Half type, bool kClamp>
SF_DEVICE std::uint32_t encode_e2m1(const std::uint32_t (&w)[4], float r) {
  constexpr float kOne = 0x1p23f;  // its last bit
  const float r2 = ptx::mul_f32(r, 2), half_r = ptx::mul_f32(r, 0.5f);
  std::uint32_t codes = 0;
  SF_UNROLL
  for (int e = 7; e >= 0; --e) {
    const float x = ptx::to_f32<type>(w[e / 2] & 0x7fff7fffu, e % 2);
    const float by_half = ptx::fma_f32(x, r2, kOne), by_one = ptx::fma_f32(x, r, kOne + 2),
                by_two = ptx::fma_f32(x, half_r, kOne + 4);
    float code = ptx::min_f32(ptx::min_f32(by_half, by_one), by_two);
    if (kClamp) code = ptx::min_f32(code, kOne + 7);
    codes = codes * 16 + ptx::bits_as<std::uint32_t>(code);
  }
  codes -= 0x4b000000u * 0x11111111u;  // the bits of 2^23, once a column
  // The high bytes of even and of odd columns hold the signs.
  const std::uint32_t a = ptx::prmt(w[0], w[1], 0x7351), b = ptx::prmt(w[2], w[3], 0x7351);
  const std::uint32_t even = ptx::prmt(a, b, 0x5410), odd = ptx::prmt(a, b, 0x7632);
  return codes | (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
}

// One block of a row from `x`, of which `columns` are there; zero behind them. kVector: 16-byte loads. A block of 32 takes two
// sectors, each in two loads: those go through L1 (5 % of MXFP4's time on an H200).
template <int kBlock, bool kVector>
SF_DEVICE void load_block(ptx::gptr<const std::uint16_t> x, std::int64_t columns, std::uint32_t (&w)[kBlock / 8][4]) {
  if constexpr (kVector) {
    SF_UNROLL
    for (int h = 0; h < kBlock / 8; ++h) {
      const ptx::U32x4 v = kBlock == 32 ? ptx::ld<ptx::U32x4>(x + 8 * h) : ptx::ld_nc<ptx::U32x4>(x + 8 * h);
      w[h][0] = v.x, w[h][1] = v.y, w[h][2] = v.z, w[h][3] = v.w;
    }
  } else {
    SF_UNROLL
    for (int e = 0; e < kBlock; ++e) {
      if (e < columns) {
        const std::uint16_t v = x[e];
        w[e / 8][e % 8 / 2] |= std::uint32_t{v} << (16 * (e % 2));
      }
    }
  }
}

// A block's scale byte, and what its elements are multiplied by; 0: all codes are 0.
struct BlockScale {
  std::uint32_t byte = 0;
  float r = 0;
};
template <ptx::Half type, int kBlock>
SF_DEVICE BlockScale block_scale(std::uint32_t top, float largest, float inv, float c) {
  const bool finite = top < infinity_bits<type>();
  BlockScale scale;
  if constexpr (kBlock == 16) {
    scale.byte = finite ? e4m3_from_f32(ptx::min_f32(ptx::mul_f32(largest, c), 448.0f)) : 0x7f;
    if (finite && scale.byte != 0) scale.r = ptx::div_f32(inv, e4m3_to_f32_positive(scale.byte));
  } else {
    const std::uint32_t exponent = ptx::bits_as<std::uint32_t>(largest) >> 23;
    scale.byte = finite ? (exponent > 3 ? exponent - 2 : 1) : 0xff;
    if (finite) scale.r = ptx::bits_as<float>((254 - scale.byte) << 23);
  }
  return scale;
}

// kVector: x is 16-byte aligned, ldx a multiple of 8, k of kBlock.
template <ptx::Half type, int kBlock, bool kVector>
SF_KERNEL void SF_LAUNCH_BOUNDS(256, 6) quantize_fp4(const QuantizeArgs a) {
  constexpr int kRuns = kBlock / 8;  // of 8 columns
  constexpr std::uint32_t kPairs = pairs_a_thread(kBlock), kSteps = 16 / kPairs;
  const auto blocks = static_cast<std::uint32_t>((a.k + kBlock - 1) / kBlock), atoms = (blocks + 3) / 4;
  const std::uint32_t thread = ptx::tid_x(), lane = thread % 32, stripe = ptx::ctaid_x() / kSteps;
  const std::uint32_t pair = kPairs * (ptx::ctaid_x() % kSteps);
  const std::uint32_t atom = 8 * ptx::ctaid_y() + thread / 32, block = 4 * atom + lane % 4;
  if (atom >= atoms) return;
  const std::int64_t row = std::int64_t{128} * stripe + (2 * pair + lane / 16 + 32 * (lane / 4 % 4));
  const std::int64_t column = std::int64_t{kBlock} * block;
  const auto inside = [&](std::uint32_t p) { return row + 2 * p < a.m && block < blocks; };

  std::uint32_t w[kPairs][kRuns][4] = {};
  SF_UNROLL
  for (std::uint32_t p = 0; p < kPairs; ++p)
    if (inside(p)) load_block<kBlock, kVector>(a.x + (row + 2 * p) * a.ldx + column, a.k - column, w[p]);
  float inv = 0, c = 0;
  if constexpr (kBlock == 16) inv = a.scale[1], c = a.scale[2];

  SF_UNROLL
  for (std::uint32_t p = 0; p < kPairs; ++p) {
    std::uint32_t top = 0;
    SF_UNROLL
    for (int h = 0; h < kRuns; ++h) SF_UNROLL
    for (int j = 0; j < 4; ++j) top = ptx::max_u16x2(top, w[p][h][j] & 0x7fff7fffu);
    top = top >> 16 > (top & 0xffffu) ? top >> 16 : top & 0xffffu;
    const float largest = ptx::to_f32<type>(top, 0);
    const BlockScale scale = block_scale<type, kBlock>(top, largest, inv, c);
    a.scales[sm1xx::atom_bytes * (std::int64_t{stripe} * atoms + atom) + (32 * (pair + p) + lane)] =
        static_cast<std::uint8_t>(inside(p) ? scale.byte : 0);
    if (!inside(p)) continue;

    std::uint32_t codes[kRuns] = {};
    if (scale.r != 0) {
      if (ptx::mul_f32(largest, scale.r) < 6.9f) {
        SF_UNROLL
        for (int h = 0; h < kRuns; ++h) codes[h] = encode_e2m1<type, false>(w[p][h], scale.r);
      } else {
        SF_UNROLL
        for (int h = 0; h < kRuns; ++h) codes[h] = encode_e2m1<type, true>(w[p][h], scale.r);
      }
    }
    const ptx::gptr<std::uint8_t> to = a.codes + (row + 2 * p) * ((a.k + 1) / 2) + column / 2;
    if constexpr (kVector && kBlock == 16) {
      ptx::st(to, ptx::U32x2{codes[0], codes[1]});
    } else if constexpr (kVector) {
      ptx::st(to, ptx::U32x4{codes[0], codes[1], codes[2], codes[3]});
    } else {
      SF_UNROLL
      for (int b = 0; b < kBlock / 2; ++b)
        if (column + 2 * b < a.k) to[b] = static_cast<std::uint8_t>(codes[b / 4] >> (8 * (b % 4)));
    }
  }
}

// Magnitudes for a maximum of finite ones: moved so that the others fall below zero as 16-bit numbers with a sign.
template <ptx::Half type>
SF_DEVICE std::uint32_t moved(std::uint32_t pair) {
  return (pair & 0x7fff7fffu) + (0x8000u - infinity_bits<type>()) * 0x10001u;
}

// The largest of the CTA, in every thread of warp 0.
SF_DEVICE std::uint32_t cta_max(std::uint32_t top, ptx::sptr<std::uint32_t> scratch) {
  SF_UNROLL
  for (std::uint32_t lanes = 16; lanes > 0; lanes /= 2) {
    const std::uint32_t other = ptx::shfl_bfly(top, lanes);
    top = other > top ? other : top;
  }
  const std::uint32_t warp = ptx::tid_x() / 32, lane = ptx::tid_x() % 32;
  if (lane == 0) scratch[warp] = top;
  ptx::bar_sync(0);
  if (warp == 0) {
    top = 0;
    if (lane < kAmaxThreads / 32) top = scratch[lane];
    SF_UNROLL
    for (std::uint32_t lanes = kAmaxThreads / 64; lanes > 0; lanes /= 2) {
      const std::uint32_t other = ptx::shfl_bfly(top, lanes);
      top = other > top ? other : top;
    }
  }
  ptx::bar_sync(0);
  return top;
}

SF_DEVICE void write_alphas(const AlphaArgs& a, float global) {
  SF_UNROLL
  for (int i = 0; i < kMostAlphas; ++i)
    if (i < a.count) a.alpha[i] = ptx::mul_f32(global, a.factor[i]);
}

// Any grid; CTAs share the rows' chunks of 2,048 columns. The last CTA to end reduces the others' words: a maximum does not depend
// on the order. kVector: x and ldx are multiples of 16 bytes, k of 8 columns.
template <ptx::Half type, bool kVector>
SF_KERNEL void SF_LAUNCH_BOUNDS(kAmaxThreads) activation_amax(const AmaxArgs a) {
  auto cursor = ptx::dyn_smem();
  const auto scratch = ptx::carve<std::uint32_t>(cursor, kAmaxThreads / 32 + 1);
  const std::uint32_t thread = ptx::tid_x();
  const std::int64_t chunks = (a.k + 2047) / 2048, step_rows = ptx::nctaid_x() / chunks, step_chunks = ptx::nctaid_x() % chunks;
  std::int64_t row = ptx::ctaid_x() / chunks, chunk = ptx::ctaid_x() % chunks;
  constexpr std::uint32_t kMove = 0x8000u - infinity_bits<type>();
  std::uint32_t tops = kMove * 0x10001u;
  while (row < a.m) {
    std::uint32_t w[2][1][4] = {};
    SF_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int64_t column = chunk * 2048 + 8 * thread;
      if (row < a.m && column < a.k) load_block<8, kVector>(a.x + row * a.ldx + column, a.k - column, w[i]);
      row += step_rows, chunk += step_chunks;
      if (chunk >= chunks) chunk -= chunks, ++row;
    }
    SF_UNROLL
    for (int i = 0; i < 8; ++i) tops = ptx::max_s16x2(tops, moved<type>(w[i / 4][0][i % 4]));
  }
  std::uint32_t top = (tops >> 16 > (tops & 0xffffu) ? tops >> 16 : tops & 0xffffu) - kMove;
  top = cta_max(top, scratch);
  if (thread == 0) {
    ptx::st_relaxed(a.partial + ptx::ctaid_x(), top);
    scratch[kAmaxThreads / 32] = ptx::atom_inc_acq_rel(a.counter, ptx::nctaid_x() - 1);
  }
  ptx::bar_sync(0);
  const std::uint32_t arrived = scratch[kAmaxThreads / 32];
  if (arrived != ptx::nctaid_x() - 1) return;
  top = 0;
  for (std::uint32_t i = thread; i < ptx::nctaid_x(); i += kAmaxThreads) {
    const std::uint32_t other = ptx::ld_relaxed(a.partial + i);
    top = other > top ? other : top;
  }
  top = cta_max(top, scratch);
  if (thread == 0) {
    const float global = ptx::max_f32(ptx::div_f32(ptx::to_f32<type>(top, 0), 2688.0f), 0x1p-90f), inv = ptx::div_f32(1, global);
    a.scale[0] = global;
    a.scale[1] = inv;
    a.scale[2] = ptx::mul_f32(inv, 1.0f / 6.0f);
    write_alphas(a.alphas, global);
  }
}

// One thread.
[[maybe_unused]] static SF_KERNEL void SF_LAUNCH_BOUNDS(32) set_scales(const SetArgs a) {
  if (ptx::tid_x() != 0) return;
  SF_UNROLL
  for (int i = 0; i < 3; ++i) a.to[i] = a.scale[i];
  write_alphas(a.alphas, a.scale[0]);
}

}  // namespace swordfish::cuda
