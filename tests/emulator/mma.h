// The arithmetic of mma.sync m16n8k16 with 16-bit inputs and an fp32 accumulator, as tensor cores do it.
//
// The summation model (how it was found: tests/data/conformance/README.md). For each element of d, the exact products of `block`
// neighbouring k and the accumulator are aligned to the largest exponent among them, cut off (toward zero) below `extra` bits under
// the 24 of fp32, added exactly, and the sum is cut off to fp32. Blocks follow each other, low k first.
#pragma once

#include <cstdint>

namespace swordfish::emu {

struct MmaModel {
  int block;  // products summed at once
  int extra;  // bits kept below fp32's last one, relative to the largest exponent
};
inline constexpr MmaModel kHopperMma{16, 2};

// d = a·bᵀ + c; b by columns. `bf16`: else f16.
void mma_16x8x16(float (&d)[16][8], const std::uint16_t (&a)[16][16], const std::uint16_t (&b)[8][16], const float (&c)[16][8],
                 bool bf16, MmaModel model = kHopperMma);

}  // namespace swordfish::emu
