// nibble_rows(): the code source of rows with two 4-bit codes a byte along K, low nibble = even column, as compressed-tensors,
// NVFP4, MXFP4 and sm1xx-blockscaled/1 have them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "swordfish/quant_tensor.h"

namespace swordfish {

// Row n begins at data + n * row_bytes; `keep_alive` holds the bytes (null: the caller sees to it).
std::shared_ptr<const CodeSource> nibble_rows(const void* data, std::size_t row_bytes, std::shared_ptr<const void> keep_alive);

// 32 bytes -> 64 codes. The counts are constants, so that the compiler turns this into and/shift/unpack on whole vectors (a 64 x 64
// tile in about 700 cycles with SSE2 alone).
inline void expand_nibbles_32(const void* in, std::uint8_t* out) {
  std::array<std::uint8_t, 32> bytes;
  std::memcpy(bytes.data(), in, bytes.size());
  for (std::size_t j = 0; j < 32; ++j) {
    out[2 * j] = bytes[j] & 15;
    out[2 * j + 1] = bytes[j] >> 4;
  }
}

}  // namespace swordfish
