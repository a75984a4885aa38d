// A packed weight without data: the shape that planning needs, for `explain` and sf_weight_describe.

#include "base/error.h"
#include "swordfish/pack.h"

namespace swordfish {

Result<PackedWeight> describe(CodeType code, std::int64_t n, std::int64_t k, std::int64_t group_size) {
  constexpr std::int64_t limit = std::int64_t{1} << 40;
  if (n < 1 || k < 1 || n > limit || k > limit) return invalid_argument("a weight of {} x {}: N and K must be 1 to 2^40", n, k);
  if (group_size < 0 || group_size % 16 != 0)
    return invalid_argument("group size {}: give a multiple of 16, or 0 for one scale per output row", group_size);
  PackedWeight weight;
  PackedView& v = weight.view;
  v.code = code;
  v.n = n;
  v.k = k;
  v.n_blocks = (n + 63) / 64;
  v.k_blocks = (k + v.block_k() - 1) / v.block_k();
  const bool one_row = group_size == 0 || group_size >= k;
  v.rows = one_row ? 1 : (k + group_size - 1) / group_size;
  v.group_size = one_row ? v.packed_k() : group_size;
  v.zero = default_zero(code);
  v.scale_type = code == CodeType::fp4 ? (group_size == 32 ? DType::f8_e8m0 : DType::f8_e4m3) : DType::bf16;
  weight.parts.push_back({"", 0, n, 0, {}});
  v.parts = weight.parts.data();
  v.n_parts = 1;
  return weight;
}

}  // namespace swordfish
