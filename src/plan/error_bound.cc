// The magnitudes that the error bound sums up.
#include "plan/error_bound.h"

#include <vector>

#include "quant/numeric.h"

namespace swordfish {

void added_magnitude(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, double* out, std::int64_t ld) {
  const double code = tensor.code == CodeType::int4 ? 128 + 15 : tensor.code == CodeType::int8 ? 255 : 6;
  const double value = std::abs(static_cast<double>(tensor.global.value));
  const double global = tensor.global.op == Global::Op::divide ? 1 / value : value;
  std::vector<double> of_row(static_cast<std::size_t>(tensor.rows));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t r = 0; r < tensor.rows; ++r) {
      const auto at = [&](const Plane& plane) {
        return std::abs(static_cast<double>(plane_value(plane.type, plane.at(n0 + i, r))));
      };
      const double zero = tensor.zeros ? at(tensor.zeros) : tensor.zero;
      of_row[static_cast<std::size_t>(r)] =
          global * (at(tensor.scales) * (code + zero) + (tensor.offsets ? at(tensor.offsets) : 0));
    }
    for (std::int64_t k = 0; k < tensor.k; ++k) out[i * ld + k] = of_row[static_cast<std::size_t>(tensor.row(k))];
  }
}

}  // namespace swordfish
