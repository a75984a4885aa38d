// KOrder: how the columns of K are arranged in a packed weight, so that every k16 slice has exactly one scale row.
//
// When each run of 16 columns from a multiple of 16 already lies in one scale row, columns stay where they are. Otherwise
// (act-order, groups that are no multiple of 16, a cut inside a group) columns are sorted by scale row, stably, and the run of each
// row is padded to a multiple of 16:
//
//     scale row of column    2 0 0 1 0 2 ...                  gather   1  2  4 -1 … -1 | 3 -1 … -1 | 0  5 -1 … -1
//     column                 0 1 2 3 4 5 ...        ==>       slice    row 0           | row 1     | row 2
#pragma once

#include <cstdint>
#include <vector>

#include "swordfish/quant_tensor.h"
#include "swordfish/status.h"

namespace swordfish {

struct KOrder {
  std::int64_t packed_k = 0;            // a multiple of the block's columns
  std::vector<std::int32_t> gather;     // [packed_k] column or −1; empty: identity
  std::vector<std::int32_t> slice_row;  // [packed_k / 16] scale row of each slice, always filled
  std::int64_t group_size = 0;          // of PackedView where `regular`
  bool regular = false;                 // slice s has row min(16·s / group_size, rows−1), and PackedView needs no row_of_slice
  friend bool operator==(const KOrder&, const KOrder&) = default;
};

// Refuses a tensor whose r(k) is not in [0, rows), or with 2^31 or more columns.
Result<KOrder> k_order(const QuantTensor& tensor);

}  // namespace swordfish
