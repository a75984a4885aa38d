// CUTLASS's Sm1xxBlockScaledConfig evaluated at every coordinate: the oracle of sm1xx-blockscaled/1. Shares no code with src/pack.
#include "blockscaled/cutlass_layout.h"

#include <cutlass/cutlass.h>

#include <cute/layout.hpp>
#include <cutlass/detail/sm100_blockscaled_layout.hpp>

namespace swordfish::test {
namespace {

template <class Layout>
CutlassLayout evaluate(const Layout& layout, int v, int rows, int k, int batches) {
  CutlassLayout out;
  out.bytes = static_cast<std::int64_t>(cute::cosize(layout));
  for (int l = 0; l < batches; ++l) {
    for (int n = 0; n < rows; ++n) {
      for (int s = 0; s * v < k; ++s) {
        const auto first = static_cast<std::int64_t>(layout(n, s * v, l));
        for (int j = 1; j < v && s * v + j < k; ++j) out.constant_in_blocks &= layout(n, s * v + j, l) == first;
        out.offset.push_back(first);
      }
    }
  }
  return out;
}

template <int v>
CutlassLayout evaluate(char operand, int rows, int k, int batches) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<v>;
  constexpr int kOther = 7;  // the extent of the other operand, which must not matter
  if (operand == 'A')
    return evaluate(Config::tile_atom_to_shape_SFA(cute::make_shape(rows, kOther, k, batches)), v, rows, k, batches);
  return evaluate(Config::tile_atom_to_shape_SFB(cute::make_shape(kOther, rows, k, batches)), v, rows, k, batches);
}

}  // namespace

CutlassLayout cutlass_layout(char operand, int v, int rows, int k, int batches) {
  return v == 16 ? evaluate<16>(operand, rows, k, batches) : evaluate<32>(operand, rows, k, batches);
}

}  // namespace swordfish::test
