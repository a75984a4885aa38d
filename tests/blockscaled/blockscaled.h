// What the tests of the block-scaled layout share: FP4 tensors made from heavy-tailed values, and a product that reads a packed
// weight through any scale layout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pack/packed_weight.h"
#include "pack/sm1xx_pack.h"
#include "quant/nibble_codes.h"
#include "quant/numeric.h"
#include "quant/quantize_activation.h"

namespace swordfish::test {

// One byte a code, [n, k].
class Codes final : public CodeSource {
 public:
  Codes(std::int64_t k, std::vector<std::uint8_t> codes) : k_(k), codes_(std::move(codes)) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + static_cast<std::size_t>(i) * stride, codes_.data() + (n0 + i) * k_ + k0, static_cast<std::size_t>(k));
  }

 private:
  std::int64_t k_;
  std::vector<std::uint8_t> codes_;
};

inline QuantTensor fp4_tensor(std::string name, std::int64_t n, std::int64_t k, std::int64_t group, DType scale_type,
                              std::vector<std::uint8_t> codes, std::vector<std::uint8_t> scales) {
  QuantTensor t;
  t.name = std::move(name);
  t.n = n;
  t.k = k;
  t.code = CodeType::fp4;
  t.zero = 0;
  t.codes = std::make_shared<Codes>(k, std::move(codes));
  t.group_size = group;
  t.rows = (k + group - 1) / group;
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(std::move(scales));
  t.scales = {scale_type, reinterpret_cast<const std::byte*>(bytes->data()), t.rows, 1};
  t.keep_alive.push_back(std::move(bytes));
  return t;
}

// Every code and every scale that hardware knows, at random.
inline QuantTensor random_fp4(std::mt19937_64& random, std::int64_t n, std::int64_t k, std::int64_t group, DType scale_type) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k)), scales(static_cast<std::size_t>(n * ((k + group - 1) / group)));
  for (auto& c : codes) c = static_cast<std::uint8_t>(random() % 16);
  for (auto& s : scales) s = static_cast<std::uint8_t>(random() % (scale_type == DType::f8_e4m3 ? 127 : 255));
  const bool as_stored = random() % 2 == 0;
  std::shared_ptr<const CodeSource> rows = as_stored ? nibble_codes(random, n, k, codes) : nullptr;
  QuantTensor t = fp4_tensor("w", n, k, group, scale_type, std::move(codes), std::move(scales));
  if (as_stored) t.codes = std::move(rows);
  return t;
}

// Student's t with 2 degrees of freedom times a log-normal factor a block: block scales spread over many powers of two.
inline std::vector<std::uint16_t> heavy_tailed(std::mt19937_64& random, std::int64_t n, std::int64_t k) {
  std::student_t_distribution<float> t(2.0f);
  std::normal_distribution<float> spread(0.0f, 1.0f);
  std::vector<std::uint16_t> w(static_cast<std::size_t>(n * k));
  float factor = 1;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i % 32 == 0) factor = 0.02f * std::exp(spread(random));
    w[i] = f32_to_bf16(std::clamp(t(random), -40.0f, 40.0f) * factor);
  }
  return w;
}

// NVFP4 with e4m3 per 16, or MXFP4 with e8m0 per 32, of bf16 values [n, k].
inline QuantTensor quantized(std::string name, const std::vector<std::uint16_t>& w, std::int64_t n, std::int64_t k,
                             std::int64_t group) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k)), scales(static_cast<std::size_t>(n * (k / group)));
  if (group == 16) {
    const float global = activation_global(DType::bf16, w.data(), n, k, k);
    const QuantizedActivations q = std::move(quantize_activations(DType::bf16, w.data(), n, k, k, global)).value();
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = q.codes.as<std::uint8_t>()[i / 2] >> (i % 2 * 4) & 15;
    std::memcpy(scales.data(), q.scales.data(), scales.size());
    QuantTensor t = fp4_tensor(std::move(name), n, k, group, DType::f8_e4m3, std::move(codes), std::move(scales));
    t.global = {global, Global::Op::multiply};
    return t;
  }
  for (std::size_t b = 0; b < scales.size(); ++b) {
    float amax = 0;
    for (std::size_t j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(bf16_to_f32(w[32 * b + j])));
    const int exponent = amax > 0 ? std::ilogb(amax) - 2 : 0;
    scales[b] = static_cast<std::uint8_t>(exponent + 127);
    for (std::size_t j = 0; j < 32; ++j) {
      const float v = std::ldexp(bf16_to_f32(w[32 * b + j]), -exponent);
      int best = 0;
      for (int c = 1; c < 8; ++c)
        if (std::fabs(std::fabs(v) - kE2m1[c]) < std::fabs(std::fabs(v) - kE2m1[best])) best = c;
      codes[32 * b + j] = static_cast<std::uint8_t>(best | (v < 0 ? 8 : 0));
    }
  }
  return fp4_tensor(std::move(name), n, k, group, DType::f8_e8m0, std::move(codes), std::move(scales));
}

inline std::vector<float> gaussian(std::mt19937_64& random, std::int64_t m, std::int64_t k) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (float& v : x) v = bf16_to_f32(f32_to_bf16(normal(random)));
  return x;
}

// y[m, n] in fp32 from a weight in sm1xx-blockscaled/1 as a kernel would: codes as stored, scale s of row n of a part from byte
// offset(part, n, s) of the part's scales, the part's alpha in the epilogue.
template <class Offset>
std::vector<float> multiply(const PackedView& v, const std::vector<float>& x, std::int64_t m, Offset offset) {
  std::vector<float> y(static_cast<std::size_t>(m * v.n));
  std::vector<float> w(static_cast<std::size_t>(v.k));
  for (std::int64_t p = 0; p < v.n_parts; ++p) {
    const PackedPart& part = v.parts[p];
    const float alpha = part.global.op == Global::Op::multiply ? part.global.value : 1.0f / part.global.value;
    const auto* scales = static_cast<const std::uint8_t*>(v.scales) + part.block0 * v.k_blocks * sm1xx::atom_bytes;
    for (std::int64_t n = 0; n < part.n; ++n) {
      const auto* row = static_cast<const std::uint8_t*>(v.codes) + (part.n0 + n) * ((v.k + 1) / 2);
      for (std::int64_t k = 0; k < v.k; ++k) {
        const std::uint8_t byte = scales[offset(part, n, k / v.group_size)];
        const float scale = v.scale_type == DType::f8_e8m0 ? e8m0_to_f32(byte) : e4m3_to_f32(byte);
        w[static_cast<std::size_t>(k)] = kE2m1[row[k / 2] >> (k % 2 * 4) & 15] * scale;
      }
      for (std::int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (std::int64_t k = 0; k < v.k; ++k) sum += w[static_cast<std::size_t>(k)] * x[static_cast<std::size_t>(i * v.k + k)];
        y[static_cast<std::size_t>(i * v.n + part.n0 + n)] = alpha * sum;
      }
    }
  }
  return y;
}

// The fp32 dequantize reference, summed in double; parts side by side.
inline std::vector<double> reference(const std::vector<QuantTensor>& parts, const std::vector<float>& x, std::int64_t m) {
  std::int64_t total = 0, n0 = 0;
  for (const auto& part : parts) total += part.n;
  std::vector<double> y(static_cast<std::size_t>(m * total));
  for (const auto& part : parts) {
    std::vector<float> w(static_cast<std::size_t>(part.k));
    for (std::int64_t n = 0; n < part.n; ++n) {
      dequantize(part, n, 1, w.data(), part.k);
      for (std::int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < part.k; ++k)
          sum += static_cast<double>(w[static_cast<std::size_t>(k)]) * x[static_cast<std::size_t>(i * part.k + k)];
        y[static_cast<std::size_t>(i * total + n0 + n)] = sum;
      }
    }
    n0 += part.n;
  }
  return y;
}

// max |y − ref| / max |ref|; a NaN in y counts as infinite.
inline double relative_error(const std::vector<float>& y, const std::vector<double>& ref) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    largest = std::max(largest, std::fabs(ref[i]));
    const double e = std::fabs(y[i] - ref[i]);
    worst = std::isnan(e) ? INFINITY : std::max(worst, e);
  }
  return worst / largest;
}

}  // namespace swordfish::test
