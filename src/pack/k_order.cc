// Decides between columns as they are and columns sorted by scale row.
#include "pack/k_order.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "pack/mma64.h"
#include "pack/packed_weight.h"

namespace swordfish {
namespace {

constexpr std::int64_t slice_k = mma64::slice_k;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The scale row of each slice when columns stay where they are; empty when some slice has two.
std::vector<std::int32_t> rows_in_place(const QuantTensor& tensor) {
  std::vector<std::int32_t> rows;
  for (std::int64_t k0 = 0; k0 < tensor.k; k0 += slice_k) {
    const std::int64_t end = std::min(tensor.k, k0 + slice_k), row = tensor.row(k0);
    for (std::int64_t k = k0 + 1; k < end; ++k) {
      if (tensor.row(k) != row) return {};
    }
    rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

// Counting sort by scale row; each row's run starts at a multiple of 16.
void sort_columns(const QuantTensor& tensor, KOrder& order) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(tensor.rows) + 1);
  for (std::int64_t k = 0; k < tensor.k; ++k) ++next[static_cast<std::size_t>(tensor.row(k)) + 1];
  for (std::size_t r = 1; r < next.size(); ++r) {
    const std::int64_t slices = (next[r] + slice_k - 1) / slice_k;
    order.slice_row.insert(order.slice_row.end(), static_cast<std::size_t>(slices), static_cast<std::int32_t>(r - 1));
    next[r] = next[r - 1] + slices * slice_k;
  }
  order.gather.assign(order.slice_row.size() * slice_k, -1);
  for (std::int64_t k = 0; k < tensor.k; ++k) {
    order.gather[static_cast<std::size_t>(next[static_cast<std::size_t>(tensor.row(k))]++)] = static_cast<std::int32_t>(k);
  }
}

// Finds the group size that makes `row_of_slice` needless, if there is one.
void find_regular(std::int64_t rows, KOrder& order) {
  const auto& row = order.slice_row;
  if (rows == 1) {
    order.regular = true;
    order.group_size = order.packed_k;
    return;
  }
  const auto change = std::find_if(row.begin(), row.end(), [&](std::int32_t r) { return r != row.front(); });
  const std::int64_t group = change == row.end()
                                 ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(order.packed_k)))
                                 : slice_k * (change - row.begin());
  if (!std::has_single_bit(static_cast<std::uint64_t>(group))) return;
  for (std::size_t s = 0; s < row.size(); ++s) {
    if (row[s] != std::min(slice_k * static_cast<std::int64_t>(s) / group, rows - 1)) return;
  }
  order.regular = true;
  order.group_size = group;
}

}  // namespace

Result<KOrder> k_order(const QuantTensor& tensor) {
  if (tensor.k < 1 || tensor.k > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("{}: K = {}; packing takes 1 to 2^31 - 1 columns", tensor.name, tensor.k);
  }
  if (tensor.rows < 1 || tensor.rows > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("{}: {} scale rows; packing takes 1 to 2^31 - 1", tensor.name, tensor.rows);
  }
  if (tensor.row_of_k.empty()) {
    if (tensor.group_size < 1 || (tensor.k - 1) / tensor.group_size >= tensor.rows) {
      return invalid_argument("{}: group size {} with {} scale rows does not cover K = {}", tensor.name, tensor.group_size,
                              tensor.rows, tensor.k);
    }
  } else if (static_cast<std::int64_t>(tensor.row_of_k.size()) != tensor.k) {
    return invalid_argument("{}: row_of_k has {} entries, expected K = {}", tensor.name, tensor.row_of_k.size(), tensor.k);
  } else {
    for (std::int64_t k = 0; k < tensor.k; ++k) {
      if (tensor.row(k) < 0 || tensor.row(k) >= tensor.rows) {
        return invalid_argument("{}: column {} has scale row {}, expected 0 to {}", tensor.name, k, tensor.row(k), tensor.rows - 1);
      }
    }
  }

  KOrder order;
  order.slice_row = rows_in_place(tensor);
  if (order.slice_row.empty()) sort_columns(tensor, order);
  const std::int64_t used = static_cast<std::int64_t>(order.slice_row.size()) * slice_k;
  order.packed_k = round_up(used, mma64::block_k(code_bits(tensor.code)));
  if (order.packed_k > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("{}: K = {} takes {} columns once sorted and padded; packing takes fewer than 2^31", tensor.name,
                            tensor.k, order.packed_k);
  }
  // Slices of padding go on in the last row, but where the regular formula gives the next one: they are free, so prefer it.
  const std::int32_t last = order.slice_row.back();
  find_regular(tensor.rows, order);
  while (static_cast<std::int64_t>(order.slice_row.size()) * slice_k < order.packed_k) {
    const std::int64_t s = static_cast<std::int64_t>(order.slice_row.size());
    order.slice_row.push_back(order.regular ? static_cast<std::int32_t>(std::min(slice_k * s / order.group_size, tensor.rows - 1))
                                            : last);
  }
  if (!order.gather.empty()) order.gather.resize(static_cast<std::size_t>(order.packed_k), -1);
  return order;
}

}  // namespace swordfish
