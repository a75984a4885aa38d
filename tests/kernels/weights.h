// Random weights for kernel tests: QuantTensors with their codes and planes in plain arrays, their packed form, and exact values.
//
// The expected values come from the arrays below by the formula of quant_tensor.h, in fp64, and never through pack or unpack.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "quant/numeric.h"
#include "swordfish/gemm.h"
#include "swordfish/pack.h"

namespace swordfish::test {

enum class Zeros { constant, u8, i16, offsets };

// What a weight looks like. `exact`: scales are powers of two in 1/4..2, offsets small integers, globals powers of two, so that
// small-integer products have no rounding anywhere.
struct Shape {
  CodeType code = CodeType::int4;
  Zeros zeros = Zeros::constant;
  DType scale_type = DType::f16;
  DType offset_type = DType::f16;
  std::vector<std::int64_t> part_n = {100};
  std::int64_t k = 200;
  std::int64_t group = 128;  // 0: channelwise
  bool act_order = false;
  bool globals = false;
  bool exact = false;
  float scale_value = 0, global_value = 0;  // for every scale and global; 0: random ones

  std::string text() const {
    std::string s = std::string(name(code)) + " zeros " + std::to_string(static_cast<int>(zeros)) + " scales " +
                    std::string(swordfish::name(scale_type)) + " k " + std::to_string(k) + " group " + std::to_string(group);
    for (const auto n : part_n) s += " n " + std::to_string(n);
    if (act_order) s += " act-order";
    if (globals) s += " globals";
    return s;
  }
};

inline float from_bits(DType type, std::uint16_t b) { return type == DType::bf16 ? bf16_to_f32(b) : f16_to_f32(b); }
inline std::uint16_t to_bits(DType type, float f) { return type == DType::bf16 ? f32_to_bf16(f) : f32_to_f16(f); }

class Codes : public CodeSource {
 public:
  Codes(std::vector<std::uint8_t> q, std::int64_t k) : q_(std::move(q)), k_(k) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + static_cast<std::size_t>(i) * stride, &q_[static_cast<std::size_t>((n0 + i) * k_ + k0)],
                  static_cast<std::size_t>(k));
  }

 private:
  std::vector<std::uint8_t> q_;
  std::int64_t k_;
};

// One scale, zero and code of the formula.
struct Element {
  double scale, value, zero, offset;
  Global global;
  std::int64_t row;
};

class Weight {
 public:
  explicit Weight(const Shape& s, unsigned seed = 1) : shape(s), random_(seed) {
    for (std::size_t p = 0; p < s.part_n.size(); ++p) add_part(s.part_n[p], static_cast<int>(p));
    auto packed_or = pack(tensors, "test", 1);
    EXPECT_TRUE(packed_or.ok()) << packed_or.status().message();
    if (packed_or.ok()) packed = std::move(packed_or).value();
    for (const auto n : s.part_n) rows_n += n;
  }

  std::int64_t n() const { return rows_n; }
  std::int64_t k() const { return shape.k; }

  Element at(std::int64_t row, std::int64_t k) const {
    std::size_t p = 0;
    while (row >= tensors[p].n) row -= tensors[p++].n;
    const QuantTensor& t = tensors[p];
    const std::int64_t r = t.row(k);
    const std::uint8_t q = codes_[p][static_cast<std::size_t>(row * t.k + k)];
    Element e{};
    e.scale = plane_value(t.scales.type, t.scales.at(row, r));
    e.value = t.code == CodeType::fp4 ? kE2m1[q] : q;
    e.zero = t.zeros ? plane_value(t.zeros.type, t.zeros.at(row, r)) : t.zero;
    e.offset = t.offsets ? plane_value(t.offsets.type, t.offsets.at(row, r)) : 0.0;
    e.global = t.global;
    e.row = r;
    return e;
  }

  Shape shape;
  std::vector<QuantTensor> tensors;
  PackedWeight packed;

 private:
  void add_part(std::int64_t n, int part) {
    const Shape& s = shape;
    QuantTensor t;
    t.name = "part" + std::to_string(part);
    t.n = n;
    t.k = s.k;
    t.code = s.code;
    std::vector<std::uint8_t> q(static_cast<std::size_t>(n * s.k));
    for (auto& c : q) c = static_cast<std::uint8_t>(random_() & (s.code == CodeType::int8 ? 255 : 15));
    codes_.push_back(q);
    t.codes = std::make_shared<Codes>(std::move(q), s.k);
    t.group_size = s.group == 0 ? s.k : s.group;
    t.rows = (s.k + t.group_size - 1) / t.group_size;
    if (s.act_order) {
      if (row_of_k_.empty()) {
        for (std::int64_t k = 0; k < s.k; ++k) row_of_k_.push_back(static_cast<std::int32_t>(k / t.group_size));
        std::shuffle(row_of_k_.begin(), row_of_k_.end(), random_);
      }
      t.row_of_k = row_of_k_;
    }
    t.scales = plane(s.scale_type, n, t.rows, t, [&] { return scale(); });
    t.zero = s.zeros == Zeros::offsets ? 0 : default_zero(s.code);
    const int top = s.code == CodeType::int8 ? 255 : 15;
    if (s.zeros == Zeros::u8) t.zeros = plane(DType::u8, n, t.rows, t, [&] { return static_cast<float>(random_() % (top + 1u)); });
    if (s.zeros == Zeros::i16)
      t.zeros = plane(DType::i16, n, t.rows, t, [&] { return static_cast<float>(random_() % (top + 2u)); });
    if (s.zeros == Zeros::offsets) t.offsets = plane(s.offset_type, n, t.rows, t, [&] { return offset(); });
    if (s.global_value != 0) {
      t.global.value = s.global_value;
    } else if (s.globals) {
      t.global.value = s.exact ? std::ldexp(1.0f, part - 1) : 0.37f * static_cast<float>(part + 1);
      t.global.op = part % 2 ? Global::Op::divide : Global::Op::multiply;
    }
    tensors.push_back(std::move(t));
  }

  float scale() {
    if (shape.scale_value != 0) return shape.scale_value;
    if (shape.exact || shape.scale_type == DType::f8_e8m0) return std::ldexp(1.0f, static_cast<int>(random_() % 4) - 2);
    return 0.01f + 0.05f * std::uniform_real_distribution<float>(0, 1)(random_);
  }
  float offset() {
    if (shape.exact) return static_cast<float>(static_cast<int>(random_() % 9) - 4);
    return std::uniform_real_distribution<float>(-0.5f, 0.1f)(random_);
  }

  template <class F>
  Plane plane(DType type, std::int64_t n, std::int64_t rows, QuantTensor& t, F value) {
    const auto bytes = static_cast<std::size_t>(bits(type) / 8);
    auto data = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(n * rows) * bytes);
    for (std::int64_t i = 0; i < n * rows; ++i) put(type, value(), data->data() + static_cast<std::size_t>(i) * bytes);
    t.keep_alive.push_back(data);
    return {type, data->data(), static_cast<std::int64_t>(bytes) * rows, static_cast<std::int64_t>(bytes)};
  }
  static void put(DType type, float f, std::byte* out) {
    const auto store = [&](auto v) { std::memcpy(out, &v, sizeof v); };
    switch (type) {
      case DType::f16: return store(f32_to_f16(f));
      case DType::bf16: return store(f32_to_bf16(f));
      case DType::u8: return store(static_cast<std::uint8_t>(f));
      case DType::i16: return store(static_cast<std::int16_t>(f));
      case DType::f8_e8m0: return store(static_cast<std::uint8_t>(std::ilogb(f) + 127));
      case DType::f8_e4m3: {  // the largest code not above f
        std::uint8_t b = 0x7e;
        while (b > 0 && e4m3_to_f32(b) > f) --b;
        return store(b);
      }
      default: return store(f);
    }
  }

  std::mt19937 random_;
  std::int64_t rows_n = 0;
  std::vector<std::vector<std::uint8_t>> codes_;
  std::vector<std::int32_t> row_of_k_;
};

inline std::vector<std::uint16_t> gaussian(std::int64_t count, DType type, unsigned seed, float mean = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<std::uint16_t> x(static_cast<std::size_t>(count));
  for (auto& v : x) v = to_bits(type, normal(random));
  return x;
}

// One call with everything around it poisoned.
struct Call {
  std::string kernel;  // empty: as planned
  DType x_type = DType::bf16, y_type = DType::f32;
  std::int64_t pad_x = 0, pad_y = 0;  // elements of stride gap
  bool bias = false;
};

// x[m][k] as stored bits; y as fp64 (exact). Checks that nothing outside [m, n] is written and that no gap of x is read.
inline std::vector<double> run(Context& context, const PackedView& w, std::int64_t m, const std::vector<std::uint16_t>& x,
                               const Call& c, const std::vector<float>& bias = {}, std::string* chosen = nullptr) {
  const std::int64_t n = w.n, k = w.k, ldx = k + c.pad_x, ldy = n + c.pad_y;
  Problem p;
  p.weight = &w;
  p.m = m;
  p.x_type = c.x_type;
  p.y_type = c.y_type;
  p.has_bias = c.bias;
  p.threads = context.threads();
  const auto planned = plan(p, {c.kernel});
  EXPECT_TRUE(planned.ok()) << planned.status().message();
  if (!planned.ok()) return {};
  if (chosen) *chosen = planned->kernel_name;

  constexpr std::uint16_t kNan16 = 0x7fff;  // NaN in bf16 and f16
  // The last row ends with the allocation, so that a sanitizer sees any read past it.
  std::vector<std::uint16_t> xs(static_cast<std::size_t>((m - 1) * ldx + k), kNan16);
  for (std::int64_t i = 0; i < m; ++i) std::copy_n(x.begin() + i * k, k, xs.begin() + i * ldx);
  const std::size_t y_bytes = static_cast<std::size_t>(bits(c.y_type)) / 8;
  constexpr std::int64_t kGuard = 64;
  Buffer ys(static_cast<std::size_t>(m * ldy + 2 * kGuard) * y_bytes), workspace(planned->workspace + 64);
  std::memset(ys.data(), 0xff, ys.size());
  std::memset(workspace.data(), 0xff, workspace.size());
  EXPECT_TRUE(workspace_init(*planned, p.device, workspace.data(), planned->workspace).ok());

  RunArgs a;
  a.x = xs.data();
  a.ldx = ldx;
  a.y = ys.data() + kGuard * y_bytes;
  a.ldy = ldy;
  a.bias = c.bias ? bias.data() : nullptr;
  a.workspace = workspace.data();
  a.workspace_size = planned->workspace;
  const Status status = run(context, p, *planned, a);
  EXPECT_TRUE(status.ok()) << status.message();

  for (std::size_t i = planned->workspace; i < workspace.size(); ++i)
    EXPECT_EQ(workspace.data()[i], std::byte{0xff}) << "past the workspace";
  std::vector<double> y(static_cast<std::size_t>(m * n));
  bool clean = true;
  for (std::int64_t i = -kGuard; i < m * ldy + kGuard; ++i) {
    const std::byte* e = ys.data() + static_cast<std::size_t>(i + kGuard) * y_bytes;
    const bool inside = i >= 0 && i < m * ldy && i % ldy < n;
    if (inside) {
      y[static_cast<std::size_t>(i / ldy * n + i % ldy)] =
          c.y_type == DType::f32 ? load_unaligned<float>(e) : from_bits(c.y_type, load_unaligned<std::uint16_t>(e));
    } else {
      for (std::size_t b = 0; b < y_bytes; ++b) clean = clean && e[b] == std::byte{0xff};
    }
  }
  EXPECT_TRUE(clean) << "wrote outside of y";
  return y;
}
inline std::vector<double> run(Context& context, const Weight& w, std::int64_t m, const std::vector<std::uint16_t>& x,
                               const Call& c, const std::vector<float>& bias = {}, std::string* chosen = nullptr) {
  return run(context, w.packed.view, m, x, c, bias, chosen);
}

}  // namespace swordfish::test
