// PackedWeight: ownership of the planes that its view points to.
#include "pack/packed_weight.h"

#include <utility>

namespace swordfish {

std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::mma64_1: return "mma64/1";
    case Layout::sm1xx_blockscaled_1: return "sm1xx-blockscaled/1";
  }
  return "unknown";
}

void bind(PackedWeight& weight) {
  PackedView& v = weight.view;
  v.codes = weight.codes.data();
  v.scales = weight.scales.data();
  v.zeros = weight.zeros.data();
  v.offsets = weight.offsets.data();
  v.row_of_slice = weight.row_of_slice.as<std::int32_t>();
  v.gather = weight.gather.as<std::int32_t>();
  v.parts = weight.parts.data();
  v.n_parts = static_cast<std::int64_t>(weight.parts.size());
}

PackedWeight::PackedWeight(PackedWeight&& other) noexcept { *this = std::move(other); }

PackedWeight& PackedWeight::operator=(PackedWeight&& other) noexcept {
  if (this == &other) return *this;
  view = std::exchange(other.view, {});  // buffers and the vector of parts keep their addresses when they move
  codes = std::exchange(other.codes, {});
  scales = std::exchange(other.scales, {});
  zeros = std::exchange(other.zeros, {});
  offsets = std::exchange(other.offsets, {});
  row_of_slice = std::exchange(other.row_of_slice, {});
  gather = std::exchange(other.gather, {});
  parts = std::exchange(other.parts, {});
  name = std::exchange(other.name, {});
  return *this;
}

std::uint64_t PackedWeight::bytes() const {
  std::uint64_t sum = parts.size() * sizeof(PackedPart);
  for (const Buffer* buffer : {&codes, &scales, &zeros, &offsets, &row_of_slice, &gather}) sum += buffer->size();
  return sum;
}

}  // namespace swordfish
