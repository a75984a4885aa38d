// Which bytes a part of a tensor is: index ranges along one or two dimensions, as runs of the stored bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/page_cache.h"
#include "swordfish/checkpoint.h"

namespace swordfish {

// Indices [begin, end) of one dimension.
struct AxisRange {
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0;
};

// The bytes of a row-major tensor whose index lies in every range (of different axes), as runs in order that do not touch.
// `min_run`: when the runs would be shorter than that, and there are several, one run from the first to the last of them is
// given instead: reading is then faster than seeking. A shape that does not divide `bytes` evenly gives the whole tensor; an empty
// range gives nothing. Ranges lie inside the shape.
std::vector<io::ByteRange> slice_runs(std::span<const std::int64_t> shape, std::uint64_t bytes, std::span<const AxisRange> ranges,
                                      std::uint64_t min_run);
std::uint64_t total_bytes(const std::vector<io::ByteRange>& runs);
// Sorted, and what overlaps or touches made one.
std::vector<io::ByteRange> merge_runs(std::vector<io::ByteRange> runs);

// The part of a layer that a rank holds.
struct LayerCut {
  struct Rows {
    std::int64_t n0 = 0, n = 0;
  };
  std::vector<Rows> rows;      // in order; several where the tensor holds several projections, one of each
  std::int64_t n = 0;          // all of them
  std::int64_t k0 = 0, k = 0;  // columns
  bool bias = true;            // row-parallel layers: only rank 0 adds it
};

// Which dimension of a layer's tensor runs along its rows (N) and which along its columns (K); −1: none, or not to be relied on.
// `step` is how many rows or columns one index stands for.
struct TensorAxes {
  int n_axis = -1, k_axis = -1;
  std::int64_t n_step = 1, k_step = 1;
};
// By the tensor's name and shape, for code and scale tensors of every format; anything else has no axes and is read whole. `shape`
// is without the dimension of experts.
TensorAxes axes_of(const LayerInfo& layer, std::string_view tensor, std::span<const std::int64_t> shape);

}  // namespace swordfish
