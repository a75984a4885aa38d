// What a W4A4 product launches, worked out on the host: which parts of the weight run together, where everything lies in the
// workspace, and the arguments of each GEMM. Plain C++, tested by reading back through CUTLASS's layouts.
//
// A GEMM has one alpha. Neighbouring parts with equal globals are one run where the first ends on a whole atom of 128 rows; a run
// with another global has its own alpha, and is a GEMM of its own (dense) or a group of one launch (grouped). Nothing is folded
// here: fold_globals (pack/sm1xx_pack.h) does that once, at packing, where it is exact.
//
//   workspace   [counters | partial | scale, alpha | x codes [m, k/2] | x scales, atoms | y of 128 rows | CUTLASS's own]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/blockscaled/gemm.h"
#include "swordfish/gemm.h"

namespace swordfish::blockscaled {

// Rows [n0, n0 + n) of the weight under one alpha = global of x · factor.
struct Run {
  std::int64_t n0 = 0, n = 0, block0 = 0;
  float factor = 1;
};
struct Jobs {
  Run run[kMostGroups];
  int count = 0;
  // Byte offsets in the workspace, multiples of 256; the counters lie at 0.
  std::size_t partial = 0, scale = 0, alpha = 0, x_codes = 0, x_scales = 0, y = 0, own = 0;
  std::size_t workspace = 0;
  std::int64_t tile_rows = 128;  // of the y in the workspace, for a y that the GEMM cannot write
};

// Why the block-scaled GEMMs cannot multiply this weight, or empty. Does not look at the GPU.
std::string refuses(const PackedView& w, std::int64_t m, DType y_type);
// The jobs of a weight that is not refused, on a GPU with `sms` multiprocessors; `own` bytes for CUTLASS.
Jobs make_jobs(const PackedView& w, std::int64_t m, int sms, std::size_t own);

// Whether the GEMM can write y itself: it stores 16 bytes at a time.
bool writes_directly(const void* y, std::int64_t ldy);
// The GEMMs of rows [m0, m0 + m) of x, whose quantized form lies in `workspace`; m0 a multiple of 128. y: of row m0.
Groups make_groups(const PackedView& w, const Jobs& jobs, std::int64_t m0, std::int64_t m, const float* bias, void* y,
                   std::int64_t ldy, void* workspace);

}  // namespace swordfish::blockscaled
