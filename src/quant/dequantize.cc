// dequantize(): the meaning of a QuantTensor, evaluated in double and rounded once to fp32.
//
// Why double is enough for "the exact value, rounded once":
// * scale · (q − zero): 24 significant bits at most times an integer of at most 17 bits (i16 zero points): 41 bits, exact.
// * scale · q + offset: F16 pairs (Q4_1, Q5_1) are multiples of 2^-24 below 2^25, so the sum has at most 49 bits; the F32 products
// of
//   Q4_K and Q5_K are F16 times a 6-bit integer, the sum a multiple of 2^-24 below 2^28: 52 bits. Exact.
// * e2m1 · e4m3 has 6 significant bits, e2m1 · e8m0 two; times a global of 24 bits: 30 bits, exact.
// * a divided global rounds to double first. With x of 6 bits and D of 24, a point half way between two floats (subnormal ones
//   included) is some m of at most 25 bits; x/D ≠ m implies |x/D − m| ≥ 2^-49 · m, while rounding to double moves the quotient by
//   at most 2^-53 of itself: it cannot cross or reach m, so the second rounding decides as the exact quotient would.
// A product of zero keeps the sign that IEEE gives it (−0 from code 8 or a negative scale); an e4m3 scale of −0 counts as +0.
#include <algorithm>
#include <array>
#include <vector>

#include "quant/numeric.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileColumns = 1024;

// What one scale row means for one output row.
struct Affine {
  double scale, zero, offset;
};

Affine affine(const QuantTensor& t, std::int64_t n, std::int64_t r) {
  double scale = plane_value(t.scales.type, t.scales.at(n, r));
  if (scale == 0 && t.scales.type == DType::f8_e4m3) scale = 0;
  return {scale, t.zeros ? plane_value(t.zeros.type, t.zeros.at(n, r)) : static_cast<double>(t.zero),
          t.offsets ? plane_value(t.offsets.type, t.offsets.at(n, r)) : 0.0};
}

// The value that each code stands for before scales: the e2m1 table, or the integer itself.
std::array<double, 256> code_values(CodeType type) {
  std::array<double, 256> values;
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = type == CodeType::fp4 ? kE2m1[c & 15] : static_cast<double>(c);
  return values;
}

template <class T>
void dequantize_rows(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, T* out, std::int64_t ld) {
  const std::array<double, 256> values = code_values(tensor.code);
  const double global = tensor.global.value;
  const bool divide = tensor.global.op == Global::Op::divide;
  const bool has_offset = static_cast<bool>(tensor.offsets);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(std::min(n, kTileRows) * std::min(tensor.k, kTileColumns)));

  for (std::int64_t i0 = 0; i0 < n; i0 += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, n - i0);
    for (std::int64_t k0 = 0; k0 < tensor.k; k0 += kTileColumns) {
      const std::int64_t columns = std::min(kTileColumns, tensor.k - k0);
      tensor.codes->read(n0 + i0, rows, k0, columns, codes.data(), static_cast<std::size_t>(columns));
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::uint8_t* q = codes.data() + i * columns;
        T* y = out + (i0 + i) * ld + k0;
        for (std::int64_t j = 0; j < columns;) {
          // A run of columns that share a scale row.
          const std::int64_t r = tensor.row(k0 + j);
          std::int64_t end = j + 1;
          if (tensor.row_of_k.empty()) {
            end = std::min(columns, (r + 1) * tensor.group_size - k0);
          } else {
            while (end < columns && tensor.row(k0 + end) == r) ++end;
          }
          const Affine a = affine(tensor, n0 + i0 + i, r);
          for (; j < end; ++j) {
            // Adding an absent offset would turn −0 into +0; a zero point is subtracted exactly.
            double w = a.scale * (values[q[j]] - a.zero);
            if (has_offset) w += a.offset;
            y[j] = static_cast<T>(divide ? w / global : w * global);
          }
        }
      }
    }
  }
}

}  // namespace

void dequantize(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, float* out, std::int64_t ld) {
  dequantize_rows(tensor, n0, n, out, ld);
}
void dequantize(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, double* out, std::int64_t ld) {
  dequantize_rows(tensor, n0, n, out, ld);
}

}  // namespace swordfish
