// Round-to-nearest quantization of one dense matrix, row by row.
//
// Integers: w ≈ s·(q − z). Symmetric: z is the middle code c (8 or 128) and s the smallest with max ≤ (c−1)·s and −min ≤ c·s.
// Asymmetric: the range [min(0, min), max(0, max)] is divided into 2^bits − 1 steps, z = round(−min/s). s is rounded up to its
// type, so nothing is clipped by more than the half step that rounding z costs. FP4: the largest element of a block is scaled to 6,
// the largest code. Scales are rounded to nearest, and up where the largest element would lie beyond 7: up to there, being cut to 6
// costs no more than half of the step between 4 and 6.
#include "quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "quant/numeric.h"

namespace swordfish {
namespace {

constexpr std::int64_t kTaskRows = 32;  // rows of one task: whole words of packed zero points

void read_row(const DenseMatrix& w, std::int64_t n, float* out) {
  const std::byte* row = w.data + n * w.k * (bits(w.type) / 8);
  switch (w.type) {
    case DType::bf16:
      for (std::int64_t k = 0; k < w.k; ++k) out[k] = bf16_to_f32(load_unaligned<std::uint16_t>(row + 2 * k));
      return;
    case DType::f16:
      for (std::int64_t k = 0; k < w.k; ++k) out[k] = f16_to_f32(load_unaligned<std::uint16_t>(row + 2 * k));
      return;
    default: std::memcpy(out, row, static_cast<std::size_t>(w.k) * sizeof(float));
  }
}

// fn(n, row) for every row, on all threads.
template <class F>
void for_each_row(const DenseMatrix& w, ThreadPool& pool, F fn) {
  std::vector<std::vector<float>> scratch(static_cast<std::size_t>(pool.threads()),
                                          std::vector<float>(static_cast<std::size_t>(w.k)));
  pool.parallel_for((w.n + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int worker) {
    float* row = scratch[static_cast<std::size_t>(worker)].data();
    for (std::int64_t n = task * kTaskRows; n < std::min(w.n, (task + 1) * kTaskRows); ++n) {
      read_row(w, n, row);
      fn(n, static_cast<const float*>(row), worker);
    }
  });
}

// Nearest integer, ties to even, for |x| < 2^51: as fast as an addition, unlike std::nearbyint without SSE4.1.
double round_even(double x) {
  constexpr double magic = 0x1.8p52;
  return (x + magic) - magic;
}

float max_abs(const float* w, std::int64_t count) {
  float amax = 0;
  for (std::int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(w[i]));
  return amax;
}

// Stores the smallest value of `type` that is at least `scale` (> 0) and returns it.
double store_scale_up(double scale, DType type, std::byte* out) {
  if (type == DType::f32) {
    auto v = static_cast<float>(scale);
    if (static_cast<double>(v) < scale) v = std::nextafter(v, std::numeric_limits<float>::infinity());
    std::memcpy(out, &v, sizeof v);
    return v;
  }
  const auto near = static_cast<float>(scale);
  std::uint16_t half = f32_to_half(type, near);
  const auto value = [type](std::uint16_t h) { return static_cast<double>(half_to_f32(type, h)); };
  if (value(half) < scale) ++half;  // the next one up: positive values are ordered like their bits
  std::memcpy(out, &half, sizeof half);
  return value(half);
}

// Nearest e2m1 code of a value, ties to the even code; −0 becomes 0.
std::uint8_t e2m1_code(double x) {
  const std::uint8_t code = round_to_e2m1(std::fabs(x));
  return static_cast<std::uint8_t>(x < 0 && code != 0 ? code + 8 : code);
}

// Codes of `count` (even) weights, two a byte, low nibble first.
void store_e2m1(const float* w, std::int64_t count, double scale, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; i += 2) {
    out[i / 2] = static_cast<std::uint8_t>(e2m1_code(w[i] / scale) | e2m1_code(w[i + 1] / scale) << 4);
  }
}

}  // namespace

double largest_magnitude(const DenseMatrix& w, ThreadPool& pool) {
  std::vector<float> largest(static_cast<std::size_t>(pool.threads()), 0.0f);
  for_each_row(w, pool, [&](std::int64_t, const float* row, int worker) {
    float& mine = largest[static_cast<std::size_t>(worker)];
    mine = std::max(mine, max_abs(row, w.k));
  });
  return *std::max_element(largest.begin(), largest.end());
}

QuantizedMatrix quantize_integers(const DenseMatrix& w, int width, bool symmetric, std::int64_t group, DType scale_type,
                                  ThreadPool& pool) {
  const std::int64_t groups = w.k / group, per_word = 32 / width, words = (w.k + per_word - 1) / per_word;
  const double middle = width == 4 ? 8 : 128, top = 2 * middle - 1;
  const std::int64_t scale_bytes = bits(scale_type) / 8;
  QuantizedMatrix out;
  out.codes = Buffer(static_cast<std::size_t>(w.n * words * 4));
  out.scales = Buffer(static_cast<std::size_t>(w.n * groups * scale_bytes));
  if (!symmetric) {
    out.zeros = Buffer(static_cast<std::size_t>((w.n + per_word - 1) / per_word * groups * 4));
    std::memset(out.zeros.data(), 0, out.zeros.size());
  }
  std::memset(out.codes.data(), 0, out.codes.size());
  for_each_row(w, pool, [&](std::int64_t n, const float* row, int) {
    std::uint8_t* codes = out.codes.as<std::uint8_t>() + n * words * 4;
    for (std::int64_t g = 0; g < groups; ++g) {
      const float* x = row + g * group;
      double low = 0, high = 0;
      for (std::int64_t i = 0; i < group; ++i) {
        low = std::min(low, static_cast<double>(x[i]));
        high = std::max(high, static_cast<double>(x[i]));
      }
      double scale = symmetric ? std::max(high / (middle - 1), -low / middle) : (high - low) / top;
      if (scale == 0) scale = 1;
      scale = store_scale_up(scale, scale_type, out.scales.data() + (n * groups + g) * scale_bytes);
      const double zero = symmetric ? middle : std::clamp(round_even(-low / scale), 0.0, top);
      if (!symmetric) {
        // Rows of one word belong to one task.
        out.zeros.as<std::uint32_t>()[n / per_word * groups + g] |= static_cast<std::uint32_t>(zero) << (width * (n % per_word));
      }
      for (std::int64_t i = 0; i < group; ++i) {
        const auto q = static_cast<std::uint8_t>(std::clamp(round_even(x[i] / scale) + zero, 0.0, top));
        const std::int64_t k = g * group + i;
        if (width == 8) {
          codes[k] = q;
        } else {
          codes[k / 2] = static_cast<std::uint8_t>(codes[k / 2] | q << (4 * (k % 2)));
        }
      }
    }
  });
  return out;
}

float nvfp4_global(double amax) {
  // A tensor of zeros needs some global; the smallest normal float is the smallest whose reciprocal is finite with a margin.
  if (amax == 0) return 1.0f;
  return std::max(static_cast<float>(amax / (6 * 448)), std::numeric_limits<float>::min());
}

QuantizedMatrix quantize_nvfp4(const DenseMatrix& w, float global, ThreadPool& pool) {
  constexpr std::int64_t block = 16;
  const std::int64_t blocks = w.k / block;
  QuantizedMatrix out;
  out.codes = Buffer(static_cast<std::size_t>(w.n * w.k / 2));
  out.scales = Buffer(static_cast<std::size_t>(w.n * blocks));
  for_each_row(w, pool, [&](std::int64_t n, const float* row, int) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double amax = max_abs(row + b * block, block) / static_cast<double>(global);
      std::uint8_t code = amax == 0 ? 0x38 : std::max<std::uint8_t>(round_to_e4m3(amax / 6), 1);  // the smallest but 0
      if (amax > 7 * static_cast<double>(e4m3_to_f32(code)) && code < 0x7e) ++code;
      out.scales.as<std::uint8_t>()[n * blocks + b] = code;
      store_e2m1(row + b * block, block, static_cast<double>(e4m3_to_f32(code)) * global,
                 out.codes.as<std::uint8_t>() + (n * w.k + b * block) / 2);
    }
  });
  return out;
}

QuantizedMatrix quantize_mxfp4(const DenseMatrix& w, ThreadPool& pool) {
  constexpr std::int64_t block = 32;
  const std::int64_t blocks = w.k / block;
  QuantizedMatrix out;
  out.codes = Buffer(static_cast<std::size_t>(w.n * w.k / 2));
  out.scales = Buffer(static_cast<std::size_t>(w.n * blocks));
  for_each_row(w, pool, [&](std::int64_t n, const float* row, int) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const double amax = max_abs(row + b * block, block);
      int exponent = 0;  // of a block of zeros: scale 1
      if (amax > 0) {
        std::frexp(amax, &exponent);
        exponent -= 3;  // amax / 2^exponent in [4, 8)
        if (amax > std::ldexp(7.0, exponent)) ++exponent;
        exponent = std::max(exponent, -127);
      }
      out.scales.as<std::uint8_t>()[n * blocks + b] = static_cast<std::uint8_t>(exponent + 127);
      store_e2m1(row + b * block, block, std::ldexp(1.0, exponent), out.codes.as<std::uint8_t>() + (n * w.k + b * block) / 2);
    }
  });
  return out;
}

}  // namespace swordfish
