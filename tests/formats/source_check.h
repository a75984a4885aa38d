// Checks a CodeSource against a formula: whole tiles, odd ranges, rows and columns in the middle, and that nothing beside the
// requested codes is written.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "swordfish/quant_tensor.h"

namespace swordfish {

inline void check_source(const CodeSource& source, std::int64_t rows, std::int64_t columns,
                         const std::function<int(std::int64_t n, std::int64_t k)>& expected) {
  const std::vector<std::int64_t> lengths = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 191, 256, columns};
  for (const std::int64_t n0 : {std::int64_t{0}, std::int64_t{1}, rows / 2}) {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{9}, std::int64_t{64}, rows}) {
      for (const std::int64_t k0 : {0, 1, 2, 15, 16, 31, 32, 64, 65, 100, 128}) {
        for (const std::int64_t k : lengths) {
          if (n0 + n > rows || k0 + k > columns) continue;
          const std::size_t stride = static_cast<std::size_t>(k) + 3;
          std::vector<std::uint8_t> out(static_cast<std::size_t>(n) * stride, 0xee);
          source.read(n0, n, k0, k, out.data(), stride);
          for (std::int64_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < stride; ++j) {
              const bool inside = j < static_cast<std::size_t>(k);
              const int want = inside ? expected(n0 + i, k0 + static_cast<std::int64_t>(j)) : 0xee;
              const int got = out[static_cast<std::size_t>(i) * stride + j];
              ASSERT_EQ(got, want) << "n0 " << n0 << " n " << n << " k0 " << k0 << " k " << k << " at row " << i << " column " << j;
            }
          }
        }
      }
    }
  }
}

}  // namespace swordfish
