// CUTLASS's own scale layouts, evaluated on the host (built only where its headers and the CUDA toolkit's are found).
#pragma once

#include <cstdint>
#include <vector>

namespace swordfish::test {

struct CutlassLayout {
  std::vector<std::int64_t> offset;  // [batches, rows, ceil(k/v)]: byte offset of each scale
  std::int64_t bytes = 0;            // of the whole layout (its cosize)
  bool constant_in_blocks = true;    // all v columns of a block have one offset
};
// `operand` 'A': Sm1xxBlockScaledConfig<v>::tile_atom_to_shape_SFA of a problem with M = rows; 'B': SFB with N = rows. v: 16, 32.
CutlassLayout cutlass_layout(char operand, int v, int rows, int k, int batches);

}  // namespace swordfish::test
