// Runs of bytes from index ranges; and how the formats arrange their tensors.
#include "load/slices.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace swordfish {

std::uint64_t total_bytes(const std::vector<io::ByteRange>& runs) {
  std::uint64_t sum = 0;
  for (const io::ByteRange& run : runs) sum += run.size;
  return sum;
}

std::vector<io::ByteRange> merge_runs(std::vector<io::ByteRange> runs) {
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    io::ByteRange& last = runs[kept];
    if (runs[i].offset <= last.end()) {
      last.size = std::max(last.end(), runs[i].end()) - last.offset;
    } else {
      runs[++kept] = runs[i];
    }
  }
  if (!runs.empty()) runs.resize(kept + 1);
  return runs;
}

std::vector<io::ByteRange> slice_runs(std::span<const std::int64_t> shape, std::uint64_t bytes, std::span<const AxisRange> ranges,
                                      std::uint64_t min_run) {
  if (bytes == 0) return {};
  std::uint64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= static_cast<std::uint64_t>(dim);  // checked by the container against the file
  struct Range {
    std::uint64_t begin, end, dim;
  };
  std::vector<Range> each;
  std::size_t last = 0;  // 1 + the innermost dimension that is not taken whole
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto dim = static_cast<std::uint64_t>(shape[d]);
    Range range{0, dim, dim};
    for (const AxisRange& r : ranges)
      if (r.axis == d) range = {static_cast<std::uint64_t>(r.begin), static_cast<std::uint64_t>(r.end), dim};
    if (range.begin >= range.end) return {};
    if (range.end - range.begin != dim) last = d + 1;
    each.push_back(range);
  }
  if (last == 0) return {{0, bytes}};

  // Everything inside dimension last−1 is one run for each index of the dimensions outside it.
  std::uint64_t inner = 1;
  for (std::size_t d = last; d < each.size(); ++d) inner *= each[d].dim;
  std::uint64_t outer_count = elements / inner;    // times all dimensions outside
  const std::uint64_t unit = bytes / outer_count;  // bytes of one index of dimension last−1
  if (unit * outer_count != bytes) return {{0, bytes}};
  const std::uint64_t run = (each[last - 1].end - each[last - 1].begin) * unit;
  std::uint64_t runs = 1;
  for (std::size_t d = 0; d + 1 < last; ++d) runs *= each[d].end - each[d].begin;

  std::vector<std::uint64_t> index;
  index.reserve(each.size());
  for (const Range& range : each) index.push_back(range.begin);
  const auto offset = [&] {
    std::uint64_t at = 0;
    for (std::size_t d = 0; d < last; ++d) at = at * each[d].dim + index[d];
    return at * unit;
  };
  if (runs > 1 && run < min_run) {
    const std::uint64_t first = offset();
    for (std::size_t d = 0; d + 1 < last; ++d) index[d] = each[d].end - 1;
    return {{first, offset() + run - first}};
  }
  std::vector<io::ByteRange> out;
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::uint64_t at = offset();
    if (!out.empty() && out.back().end() == at) {
      out.back().size += run;
    } else {
      out.push_back({at, run});
    }
    for (std::size_t d = last - 1; d-- > 0;) {
      if (++index[d] < each[d].end) break;
      index[d] = each[d].begin;
    }
  }
  return out;
}

namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> leaves) {
  return std::any_of(leaves.begin(), leaves.end(), [&](std::string_view leaf) { return name.ends_with(leaf); });
}

}  // namespace

TensorAxes axes_of(const LayerInfo& layer, std::string_view tensor, std::span<const std::int64_t> shape) {
  // Zero points decide together whether they are constant, g_idx is a map, globals are a number: all of them whole.
  if (shape.size() < 2 ||
      ends_with_any(tensor, {"qzeros", "zero_point", "g_idx", "weight_shape", "bias", "_scale_2", "global_scale"}))
    return {};
  TensorAxes axes;
  const auto n_dim = shape[layer.k_first ? 1 : 0], k_dim = shape[layer.k_first ? 0 : 1];
  // Every step is one that a format has: a tensor that lies otherwise than was thought does not fit, and is read whole.
  if (n_dim == layer.n || (layer.k_first && 8 * n_dim == layer.n && tensor.ends_with(".qweight"))) {  // AWQ: 8 rows a word
    axes.n_axis = layer.k_first ? 1 : 0;
    axes.n_step = layer.n / n_dim;
  }
  // A scale stands for a group; a code word for 1, 2, 4, 8 or (gpt-oss blocks) 32 columns. The last of a row may be partial.
  const bool scales = tensor.find("scale") != std::string_view::npos;
  const std::vector<std::int64_t> steps =
      scales ? std::vector<std::int64_t>{layer.group_size} : std::vector<std::int64_t>{1, 2, 4, 8, 32};
  for (const std::int64_t step : steps) {
    if (step < 1 || k_dim != (layer.k + step - 1) / step) continue;
    axes.k_axis = layer.k_first ? 0 : 1;
    axes.k_step = step;
    break;
  }
  return axes;
}

}  // namespace swordfish
