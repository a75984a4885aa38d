// Random matrices of 4-bit codes as files have them: two a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "quant/nibble_rows.h"

namespace swordfish::test {

// 4-bit codes [n, k] (one a byte) two a byte, as nibble_rows() serves them; what lies between rows, and behind an odd last code, is
// noise.
inline std::shared_ptr<const CodeSource> nibble_codes(std::mt19937_64& random, std::int64_t n, std::int64_t k,
                                                      const std::vector<std::uint8_t>& codes) {
  const auto row_bytes = static_cast<std::size_t>((k + 1) / 2) + random() % 4;
  auto rows = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(n) * row_bytes);
  for (auto& b : *rows) b = static_cast<std::uint8_t>(random());
  for (std::int64_t i = 0; i < n * k; ++i) {
    std::uint8_t& b = (*rows)[static_cast<std::size_t>(i / k) * row_bytes + static_cast<std::size_t>(i % k / 2)];
    const std::uint8_t code = codes[static_cast<std::size_t>(i)];
    b = static_cast<std::uint8_t>(i % k % 2 == 0 ? (b & 0xf0) | code : (b & 0x0f) | code << 4);
  }
  return nibble_rows(rows->data(), row_bytes, rows);
}

}  // namespace swordfish::test
