// Random QuantTensors for the packing tests, and the layout's formula written out as a slow packer that shares no code with
// src/pack.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "quant/nibble_codes.h"
#include "swordfish/pack.h"
#include "swordfish/quant_tensor.h"

namespace swordfish::test {

using Random = std::mt19937_64;

inline std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// One byte a code, [n, k]. Counts nothing, checks everything: a read outside the matrix fails loudly.
class ByteCodes final : public CodeSource {
 public:
  ByteCodes(std::int64_t n, std::int64_t k, std::vector<std::uint8_t> codes) : n_(n), k_(k), codes_(std::move(codes)) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    if (n0 < 0 || n < 0 || k0 < 0 || k < 0 || n0 + n > n_ || k0 + k > k_) std::abort();
    for (std::int64_t i = 0; i < n; ++i) {
      std::memcpy(out + static_cast<std::size_t>(i) * stride, codes_.data() + (n0 + i) * k_ + k0, static_cast<std::size_t>(k));
    }
  }

 private:
  std::int64_t n_, k_;
  std::vector<std::uint8_t> codes_;
};

enum class Zeros { constant, u8, i16, offsets };

struct Shape {
  CodeType code = CodeType::int4;
  std::int64_t n = 64, k = 128, group = 32;
  Zeros zeros = Zeros::constant;
  DType scale_type = DType::f16;
  bool act_order = false;
};

// A plane of random bytes that no element type turns into NaN trouble: packing never looks at values. `by_row` chooses the order.
inline Plane random_plane(Random& random, DType type, std::int64_t n, std::int64_t rows, bool by_row, QuantTensor& tensor,
                          int limit = 255) {
  const std::int64_t element = bits(type) / 8, pad = pick(random, 0, 3);  // strides need not be multiples of anything
  const std::int64_t inner = by_row ? rows : n, outer = by_row ? n : rows, stride = inner * element + pad;
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(outer * stride));
  for (auto& b : *bytes) b = static_cast<std::byte>(pick(random, 0, limit));
  Plane plane{type, bytes->data(), by_row ? stride : element, by_row ? element : stride};
  tensor.keep_alive.push_back(std::move(bytes));
  return plane;
}

inline QuantTensor random_tensor(Random& random, const Shape& shape) {
  QuantTensor t;
  t.name = "layer";
  t.n = shape.n;
  t.k = shape.k;
  t.code = shape.code;
  const int max = shape.code == CodeType::int8 ? 255 : 15;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape.n * shape.k));
  for (auto& c : codes) c = static_cast<std::uint8_t>(pick(random, 0, max));
  if (shape.code != CodeType::int8 && pick(random, 0, 1) == 1) {
    t.codes = nibble_codes(random, shape.n, shape.k, codes);
  } else {
    t.codes = std::make_shared<ByteCodes>(shape.n, shape.k, std::move(codes));
  }
  t.group_size = shape.group;
  t.rows = (shape.k + shape.group - 1) / shape.group;
  if (shape.act_order) {
    for (std::int64_t k = 0; k < shape.k; ++k) t.row_of_k.push_back(static_cast<std::int32_t>(k / shape.group));
    std::shuffle(t.row_of_k.begin(), t.row_of_k.end(), random);
  }
  t.scales = random_plane(random, shape.scale_type, t.n, t.rows, pick(random, 0, 1) == 1, t);
  t.zero = default_zero(shape.code);
  const bool by_row = pick(random, 0, 1) == 1;
  if (shape.zeros == Zeros::u8) t.zeros = random_plane(random, DType::u8, t.n, t.rows, by_row, t, max);
  if (shape.zeros == Zeros::i16) t.zeros = random_plane(random, DType::i16, t.n, t.rows, by_row, t, 1);  // 0, 1, 256, 257
  if (shape.zeros == Zeros::offsets) {
    t.offsets = random_plane(random, shape.scale_type, t.n, t.rows, by_row, t);
    t.zero = 0;
  }
  t.global = {1.5f, Global::Op::divide};
  return t;
}

inline std::uint8_t code_of(const QuantTensor& t, std::int64_t n, std::int64_t k) {
  std::uint8_t code = 0;
  t.codes->read(n, 1, k, 1, &code, 1);
  return code;
}

// One block (2,048 bytes) from q(n, k), by the words of the design: sub-tiles, lanes, words, nibbles or bytes, in that order.
template <class Q>
std::vector<std::uint8_t> slow_block(CodeType code, Q q) {
  std::vector<std::uint8_t> out;
  const auto put = [&](std::uint32_t word) {
    for (int b = 0; b < 4; ++b) out.push_back(static_cast<std::uint8_t>(word >> (8 * b)));
  };
  if (code != CodeType::int8) {
    for (int s = 0; s < 4; ++s) {
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int j = 0; j < 4; ++j) {
          std::uint32_t word = 0;
          for (int i = 0; i < 4; ++i) {
            const int n = 16 * j + g + 8 * (i >> 1), k = 16 * s + 2 * t + 8 * (i & 1);
            word |= static_cast<std::uint32_t>(q(n, k)) << (4 * i);
            word |= static_cast<std::uint32_t>(q(n, k + 1)) << (4 * (i + 4));
          }
          put(word);
        }
      }
    }
  } else {
    for (int s = 0; s < 2; ++s) {
      for (int h = 0; h < 2; ++h) {
        for (int lane = 0; lane < 32; ++lane) {
          const int g = lane / 4, t = lane % 4;
          for (int p = 0; p < 2; ++p) {
            for (int r = 0; r < 2; ++r) {
              const int n = 16 * (2 * h + p) + g + 8 * r, k = 16 * s + 2 * t;
              put(static_cast<std::uint32_t>(q(n, k)) | static_cast<std::uint32_t>(q(n, k + 8)) << 8 |
                  static_cast<std::uint32_t>(q(n, k + 1)) << 16 | static_cast<std::uint32_t>(q(n, k + 9)) << 24);
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace swordfish::test
