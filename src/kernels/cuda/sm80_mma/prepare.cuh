// x as the decode kernels read it: [m, packed K], columns gathered (activation order), zero where a packed column has none, rows
// aligned. One thread an element.
#pragma once

#include "kernels/cuda/ptx/dependency.h"
#include "kernels/cuda/ptx/pointers.h"
#include "kernels/cuda/ptx/registers.h"

namespace swordfish::mma {

struct PrepareArgs {
  ptx::gptr<const std::uint16_t> x;
  ptx::gptr<std::uint16_t> out;
  ptx::gptr<const std::int32_t> gather;  // [packed_k] column of x or −1; null: identity
  std::int64_t ldx;
  std::int32_t m, k, packed_k;
};

// grid.x = m · ⌈packed_k / threads⌉.
SF_KERNEL void SF_LAUNCH_BOUNDS(256, 1) prepare_x(const SF_GRID_CONSTANT PrepareArgs a) {
  ptx::griddep_launch_dependents();
  const auto each = static_cast<std::int32_t>((static_cast<std::uint32_t>(a.packed_k) + ptx::ntid_x() - 1) / ptx::ntid_x());
  const auto block = static_cast<std::int32_t>(ptx::ctaid_x());
  const std::int32_t row = block / each;
  const std::int32_t column =
      (block - row * each) * static_cast<std::int32_t>(ptx::ntid_x()) + static_cast<std::int32_t>(ptx::tid_x());
  if (column >= a.packed_k) return;
  std::int32_t from = column < a.k ? column : -1;
  if (a.gather) from = a.gather[column];
  ptx::griddep_wait();
  std::uint16_t v = 0;
  if (from >= 0) v = a.x[row * a.ldx + from];
  a.out[static_cast<std::int64_t>(row) * a.packed_k + column] = v;
}

}  // namespace swordfish::mma
