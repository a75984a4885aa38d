// A QuantTensor whose planes are plain arrays, with the formula of its elements written out independently in long double.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "swordfish/quant_tensor.h"

namespace swordfish {

// One byte a code, row-major.
class PlainCodes final : public CodeSource {
 public:
  PlainCodes(std::vector<std::uint8_t> codes, std::int64_t k) : codes_(std::move(codes)), k_(k) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i) {
      std::memcpy(out + static_cast<std::size_t>(i) * stride, &codes_[static_cast<std::size_t>((n0 + i) * k_ + k0)],
                  static_cast<std::size_t>(k));
    }
  }
  int at(std::int64_t n, std::int64_t k) const { return codes_[static_cast<std::size_t>(n * k_ + k)]; }

 private:
  std::vector<std::uint8_t> codes_;
  std::int64_t k_;
};

class PlainTensor {
 public:
  // Random codes and scales; a last group may be partial.
  PlainTensor(CodeType code, std::int64_t n, std::int64_t k, std::int64_t group, DType scale, unsigned seed) : random_(seed) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k));
    for (auto& c : codes) c = static_cast<std::uint8_t>(random_() % (code == CodeType::int8 ? 256 : 16));
    codes_ = std::make_shared<PlainCodes>(std::move(codes), k);
    tensor.name = "plain";
    tensor.n = n;
    tensor.k = k;
    tensor.code = code;
    tensor.codes = codes_;
    tensor.group_size = group;
    tensor.rows = (k + group - 1) / group;
    tensor.zero = default_zero(code);
    tensor.scales = random_plane(scale);
  }

  QuantTensor tensor;

  void add_zeros(DType type) { tensor.zeros = random_plane(type); }
  void add_offsets(DType type) {
    tensor.zero = 0;
    tensor.offsets = random_plane(type);
  }
  // F32 planes that are products of an F16 and a 6-bit integer.
  void make_k_quant() {
    tensor.zero = 0;
    const auto product = [&](bool negative) {
      std::vector<float> values(count());
      for (float& v : values)
        v = std::ldexp(static_cast<float>(random_() % 2048), -24 + static_cast<int>(random_() % 29)) *
            static_cast<float>(random_() % 64);
      if (negative) {
        for (float& v : values) v = -v;
      }
      return keep(DType::f32, values);
    };
    tensor.scales = product(false);
    tensor.offsets = product(true);
  }
  void scatter_rows() {
    tensor.row_of_k.resize(static_cast<std::size_t>(tensor.k));
    for (auto& row : tensor.row_of_k) row = static_cast<std::int32_t>(random_() % static_cast<unsigned>(tensor.rows));
  }

  int code(std::int64_t n, std::int64_t k) const { return codes_->at(n, k); }
  // scale · (code − zero) + offset; every term is exact in long double for the values that random_plane makes.
  long double without_global(std::int64_t n, std::int64_t k) const {
    const std::int64_t r = tensor.row_of_k.empty() ? k / tensor.group_size : tensor.row_of_k[static_cast<std::size_t>(k)];
    long double q = code(n, k);
    if (tensor.code == CodeType::fp4) {
      const long double magnitudes[] = {0, 0.5L, 1, 1.5L, 2, 3, 4, 6};
      q = code(n, k) < 8 ? magnitudes[code(n, k)] : -magnitudes[code(n, k) - 8];
    }
    const long double zero = tensor.zeros ? element(tensor.zeros, n, r) : tensor.zero;
    long double w = element(tensor.scales, n, r) * (q - zero);
    if (tensor.offsets) w += element(tensor.offsets, n, r);
    return w;
  }
  float expected(std::int64_t n, std::int64_t k) const {
    const auto global = static_cast<long double>(tensor.global.value);
    const long double w = without_global(n, k);
    return static_cast<float>(tensor.global.op == Global::Op::divide ? w / global : w * global);
  }

 private:
  std::size_t count() const { return static_cast<std::size_t>(tensor.n * tensor.rows); }

  template <class T>
  Plane keep(DType type, const std::vector<T>& values) {
    auto owned = std::make_shared<std::vector<T>>(values);
    tensor.keep_alive.push_back(owned);
    const auto size = static_cast<std::int64_t>(sizeof(T));
    return {type, reinterpret_cast<const std::byte*>(owned->data()), tensor.rows * size, size};
  }

  Plane random_plane(DType type) {
    if (type == DType::u8 || type == DType::f8_e4m3 || type == DType::f8_e8m0) {
      std::vector<std::uint8_t> values(count());
      const unsigned limit = type == DType::u8 ? 256 : type == DType::f8_e4m3 ? 0x7f : 0xfd;
      for (auto& v : values) v = static_cast<std::uint8_t>(random_() % limit);
      return keep(type, values);
    }
    if (type == DType::i16) {
      std::vector<std::int16_t> values(count());
      for (auto& v : values) v = static_cast<std::int16_t>(random_());
      return keep(type, values);
    }
    if (type == DType::f32) {
      std::vector<float> values(count());
      for (auto& v : values) v = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random_() % (1u << 25)) - (1 << 24)), -30);
      return keep(type, values);
    }
    std::vector<std::uint16_t> values(count());
    for (auto& v : values)
      v = static_cast<std::uint16_t>(type == DType::f16 ? random_() % 0x7c00 | (random_() & 0x8000) : 0x3000 + random_() % 0x1000);
    return keep(type, values);
  }

  // Decoded by the definition of each format, not by src/quant.
  static long double element(const Plane& plane, std::int64_t n, std::int64_t r) {
    const std::byte* p = plane.data + n * plane.stride_n + r * plane.stride_r;
    const auto read = [p](auto v) {
      std::memcpy(&v, p, sizeof v);
      return v;
    };
    const auto binary = [](unsigned bits, int exponent_bits, int mantissa_bits) {
      const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
                bias = (1 << (exponent_bits - 1)) - 1;
      const long double mantissa = bits & ((1u << mantissa_bits) - 1), one = std::ldexp(1.0L, mantissa_bits);
      const long double v = exponent == 0 ? std::ldexp(mantissa / one, 1 - bias) : std::ldexp(1 + mantissa / one, exponent - bias);
      return (bits >> (exponent_bits + mantissa_bits)) & 1 ? -v : v;
    };
    switch (plane.type) {
      case DType::u8: return read(std::uint8_t{});
      case DType::i16: return read(std::int16_t{});
      case DType::f32: return read(float{});
      case DType::f16: return binary(read(std::uint16_t{}), 5, 10);
      case DType::bf16: return binary(read(std::uint16_t{}), 8, 7);
      case DType::f8_e4m3: return binary(read(std::uint8_t{}), 4, 3);
      default: return std::ldexp(1.0L, read(std::uint8_t{}) - 127);  // e8m0
    }
  }

  std::mt19937 random_;
  std::shared_ptr<const PlainCodes> codes_;
};

}  // namespace swordfish
