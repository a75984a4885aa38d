// One row of a scale, zero or offset plane (64 elements, rows of an n64 block) read from shared memory as fp32: each lane of an A
// fragment gets the eight values of its rows, n = 16j + 8r + g as out[j][r], g = lane / 4.
#pragma once

#include "kernels/cuda/parts/plane_type.h"
#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::mma {

// Exact. e4m3's NaN codes are not told apart (formats refuse them).
SF_DEVICE float byte_value(PlaneType type, std::uint32_t b) {
  if (type == PlaneType::u8) return static_cast<float>(b);
  if (type == PlaneType::e8m0) return ptx::bits_as<float>(b == 0 ? 0x00400000u : b == 255 ? 0x7fc00000u : b << 23);
  return ptx::mul_f32(ptx::bits_as<float>((b & 0x80u) << 24 | (b & 0x7fu) << 20), 0x1p120f);
}

// Rows of 16-bit elements by one ldmatrix: 16-byte row i of the plane row is n = 8i … 8i+7. Matrix j is fed rows 2j and 2j+1 in
// turn, so that its transposed fragment is {n = 16j+g, n = 16j+8+g} for every t. Where a lane reads:
SF_DEVICE int half_row_offset(int lane) { return 16 * (2 * (lane >> 3) + (lane & 1)); }
// From there, where the type is known.
template <ptx::Half half>
SF_DEVICE void read_half_row(ptx::sptr<const std::byte> at, float (&out)[4][2]) {
  std::uint32_t pair[4];
  ptx::ldmatrix<4, true>(pair, at);
  SF_UNROLL
  for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = ptx::to_f32<half>(pair[i >> 1], i & 1);
}

SF_DEVICE void read_plane_row(PlaneType type, ptx::sptr<const std::byte> row, int lane, float (&out)[4][2]) {
  if (type == PlaneType::bf16 || type == PlaneType::f16 || type == PlaneType::i16) {
    std::uint32_t pair[4];
    ptx::ldmatrix<4, true>(pair, row + half_row_offset(lane));
    // The branches stay outside of the loops: selects between three conversions of each element cost more.
    if (type == PlaneType::bf16) {
      SF_UNROLL
      for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = ptx::to_f32<ptx::Half::bf16>(pair[i >> 1], i & 1);
    } else if (type == PlaneType::f16) {
      SF_UNROLL
      for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = ptx::to_f32<ptx::Half::f16>(pair[i >> 1], i & 1);
    } else {
      SF_UNROLL
      for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = static_cast<float>(static_cast<std::int16_t>(pair[i >> 1] >> 16 * (i & 1)));
    }
  } else if (type == PlaneType::f32) {
    const ptx::sptr<const float> at = ptx::cast<const float>(row) + (lane >> 2);
    SF_UNROLL
    for (int i = 0; i < 8; ++i) out[i >> 1][i & 1] = at[8 * i];
  } else {
    const ptx::sptr<const std::uint8_t> at = ptx::cast<const std::uint8_t>(row) + (lane >> 2);
    SF_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint8_t b = at[8 * i];
      out[i >> 1][i & 1] = byte_value(type, b);
    }
  }
}

}  // namespace swordfish::mma
