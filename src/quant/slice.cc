// slice(): rows n0, n0+step, ... and a column range of a QuantTensor as a view; only the map of scale rows is ever written anew.
#include <utility>

#include "base/error.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {
namespace {

class SlicedCodes final : public CodeSource {
 public:
  SlicedCodes(std::shared_ptr<const CodeSource> base, std::int64_t n0, std::int64_t step, std::int64_t k0)
      : base_(std::move(base)), n0_(n0), step_(step), k0_(k0) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    if (step_ == 1) return base_->read(n0_ + n0, n, k0_ + k0, k, out, stride);
    for (std::int64_t i = 0; i < n; ++i) {
      base_->read(n0_ + (n0 + i) * step_, 1, k0_ + k0, k, out + static_cast<std::size_t>(i) * stride, stride);
    }
  }

  StoredRows stored_rows() const override {
    const StoredRows base = base_->stored_rows();
    if (base.data == nullptr || k0_ % 2 != 0) return {};
    return {base.data + static_cast<std::size_t>(n0_) * base.row_bytes + k0_ / 2, static_cast<std::size_t>(step_) * base.row_bytes};
  }

 private:
  std::shared_ptr<const CodeSource> base_;
  std::int64_t n0_, step_, k0_;
};

Plane slice_plane(Plane plane, std::int64_t n0, std::int64_t step, std::int64_t r0) {
  if (!plane) return plane;
  plane.data = plane.at(n0, r0);
  plane.stride_n *= step;
  return plane;
}

}  // namespace

Result<QuantTensor> slice(const QuantTensor& tensor, std::int64_t n0, std::int64_t n, std::int64_t step, std::int64_t k0,
                          std::int64_t k) {
  if (step < 1) return invalid_argument("{}: slice with row step {}; expected 1 or more", tensor.name, step);
  // The last row, n0 + (n−1)·step, without overflow.
  if (n0 < 0 || n < 1 || n0 >= tensor.n || n - 1 > (tensor.n - 1 - n0) / step) {
    return invalid_argument("{}: slice of {} rows from {} with step {}; the matrix has {} rows", tensor.name, n, n0, step,
                            tensor.n);
  }
  if (k0 < 0 || k < 1 || k0 >= tensor.k || k > tensor.k - k0) {
    return invalid_argument("{}: slice of {} columns from {}; the matrix has {} columns", tensor.name, k, k0, tensor.k);
  }
  QuantTensor result = tensor;
  result.n = n;
  result.k = k;
  result.codes = std::make_shared<SlicedCodes>(tensor.codes, n0, step, k0);

  std::int64_t r0 = 0;  // first scale row of the slice
  if (!tensor.row_of_k.empty()) {
    // Scattered groups: columns can refer to any row, so all rows stay.
    result.row_of_k.assign(tensor.row_of_k.begin() + k0, tensor.row_of_k.begin() + k0 + k);
  } else {
    const std::int64_t g = tensor.group_size;
    r0 = k0 / g;
    result.rows = (k0 + k - 1) / g - r0 + 1;
    if (result.rows == 1) {
      result.group_size = k;
    } else if (k0 % g != 0) {
      result.row_of_k.resize(static_cast<std::size_t>(k));
      for (std::int64_t j = 0; j < k; ++j)
        result.row_of_k[static_cast<std::size_t>(j)] = static_cast<std::int32_t>((k0 + j) / g - r0);
    }
  }
  result.scales = slice_plane(tensor.scales, n0, step, r0);
  result.zeros = slice_plane(tensor.zeros, n0, step, r0);
  result.offsets = slice_plane(tensor.offsets, n0, step, r0);
  return result;
}

}  // namespace swordfish
