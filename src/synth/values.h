// Pools of random tensor bytes: drawn once, then any tensor is a walk through one of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "swordfish/buffer.h"

namespace swordfish {

class SynthPools {
 public:
  enum class Pool : std::uint8_t {
    fp4_codes,    // e2m1 pairs, scaled by their block of 16
    e4m3_scales,  // of those blocks, against the tensor's largest
    int4_codes,   // 8 in a word, symmetric about 8, scaled by their group of 128
    f16_scales,   // of those groups
    bf16_scales,
    int4_zeros,  // zero points between 5 and 10
    bf16_weights,
  };
  explicit SynthPools(std::uint64_t seed);

  // Some bytes of the pool, at most `size`, that depend on `tensor` and `offset`; never none.
  std::span<const std::byte> bytes(Pool which, std::uint64_t tensor, std::uint64_t offset, std::uint64_t size) const;

 private:
  static constexpr std::size_t kPools = 7;
  Buffer pools_[kPools];
};

}  // namespace swordfish
