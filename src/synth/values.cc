// Draws Student-t values (4 degrees of freedom, by their quantile function) and quantizes them group by group.
#include "synth/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "quant/numeric.h"

namespace swordfish {
namespace {

constexpr std::size_t kCodeBytes = std::size_t{8} << 20;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
constexpr std::size_t kQuantiles = 1 << 16;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class HeavyTail {
 public:
  explicit HeavyTail(std::uint64_t seed) : state_(seed), quantile_(kQuantiles) {
    for (std::size_t i = 0; i < kQuantiles; ++i) {
      const double u = (static_cast<double>(i) + 0.5) / kQuantiles, a = 4 * u * (1 - u), root = std::sqrt(a);
      const double x = 2 * std::sqrt(std::max(0.0, std::cos(std::acos(root) / 3) / root - 1));
      quantile_[i] = static_cast<float>(u < 0.5 ? -x : x);
    }
  }
  std::uint64_t bits() { return mix(state_++); }
  // Four values a draw.
  void fill(std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); i += 4) {
      const std::uint64_t r = bits();
      for (std::size_t j = 0; j < 4 && i + j < out.size(); ++j) out[i + j] = quantile_[(r >> (16 * j)) & 0xffff];
    }
  }

 private:
  std::uint64_t state_;
  std::vector<float> quantile_;
};

float largest(std::span<const float> values) {
  float most = 0;
  for (const float v : values) most = std::max(most, std::abs(v));
  return std::max(most, 1e-3f);
}

std::uint8_t e2m1_code(float v) { return static_cast<std::uint8_t>(round_to_e2m1(std::abs(v)) | (std::signbit(v) ? 8u : 0u)); }

}  // namespace

SynthPools::SynthPools(std::uint64_t seed) {
  HeavyTail tail(mix(seed));
  const auto pool = [&](Pool which, std::size_t size) {
    return (pools_[static_cast<std::size_t>(which)] = Buffer(size)).as<std::uint8_t>();
  };
  auto* fp4 = pool(Pool::fp4_codes, kCodeBytes);
  auto* e4m3 = pool(Pool::e4m3_scales, kSmallBytes);
  auto* int4 = pool(Pool::int4_codes, kCodeBytes);
  auto* f16 = reinterpret_cast<std::uint16_t*>(pool(Pool::f16_scales, kSmallBytes));
  auto* bf16 = reinterpret_cast<std::uint16_t*>(pool(Pool::bf16_scales, kSmallBytes));
  auto* zeros = pool(Pool::int4_zeros, kSmallBytes);
  auto* dense = reinterpret_cast<std::uint16_t*>(pool(Pool::bf16_weights, kCodeBytes));

  constexpr float kWidest = 60;  // the largest |value| that a tensor of this size is likely to hold
  std::array<float, 16> block{};
  for (std::size_t b = 0; b < kSmallBytes; ++b) {
    tail.fill(block);
    const float most = largest(block);
    e4m3[b] = std::max<std::uint8_t>(round_to_e4m3(448 * most / kWidest), 1);
    for (std::size_t i = 0; i < 8; ++i) {
      const unsigned low = e2m1_code(block[2 * i] * 6 / most), high = e2m1_code(block[2 * i + 1] * 6 / most);
      fp4[8 * b + i] = static_cast<std::uint8_t>(low | high << 4);
    }
  }
  std::array<float, 128> group{};
  for (std::size_t g = 0; g < kCodeBytes / 64; ++g) {
    tail.fill(group);
    const float most = largest(group);
    for (std::size_t i = 0; i < 64; ++i) {
      const auto code = [&](float v) { return static_cast<unsigned>(8 + std::lround(v * 7 / most)); };
      int4[64 * g + i] = static_cast<std::uint8_t>(code(group[2 * i]) | code(group[2 * i + 1]) << 4);
    }
    if (g < kSmallBytes / 2) f16[g] = f32_to_f16(most * 0.003f), bf16[g] = f32_to_bf16(most * 0.003f);
  }
  for (std::size_t g = kCodeBytes / 64; g < kSmallBytes / 2; ++g)
    f16[g] = f16[g % (kCodeBytes / 64)], bf16[g] = bf16[g % (kCodeBytes / 64)];
  for (std::size_t i = 0; i < kSmallBytes; ++i) {
    const std::uint64_t r = tail.bits();
    zeros[i] = static_cast<std::uint8_t>(5 + r % 6 + ((5 + (r >> 8) % 6) << 4));
  }
  for (std::size_t i = 0; i < kCodeBytes / 2; i += group.size()) {
    tail.fill(group);
    for (std::size_t j = 0; j < group.size(); ++j) dense[i + j] = f32_to_bf16(group[j] * 0.02f);
  }
}

std::span<const std::byte> SynthPools::bytes(Pool which, std::uint64_t tensor, std::uint64_t offset, std::uint64_t size) const {
  const std::span<const std::byte> pool = pools_[static_cast<std::size_t>(which)].bytes();
  const std::uint64_t half = pool.size() / 2;
  const std::uint64_t at = mix(tensor * 0x10001 + offset / half) % half / 64 * 64;
  const std::uint64_t into = offset % half;
  return pool.subspan(at + into, std::min(size, half - into));
}

}  // namespace swordfish
