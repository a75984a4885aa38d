// What the block-scaled kernels of one architecture family have in common: CUTLASS's tags, tile and schedules.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>

#include "kernels/cuda/blockscaled/gemm.h"

namespace swordfish::blockscaled {

template <Family family, int block, bool grouped>
struct KernelTypes;

template <int block>
using Fp4 =
    cute::conditional_t<block == 16, cutlass::nv_float4_t<cutlass::float_e2m1_t>, cutlass::mx_float4_t<cutlass::float_e2m1_t>>;

template <int block, bool grouped>
struct KernelTypes<Family::tcgen05, block, grouped> {
  using Operand = Fp4<block>;
  using Arch = cutlass::arch::Sm100;
  using Tile = cute::Shape<cute::_128, cute::_128, cute::_256>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using DenseSchedule = cute::conditional_t<block == 16, cutlass::gemm::KernelTmaWarpSpecialized1SmNvf4Sm100,
                                            cutlass::gemm::KernelTmaWarpSpecialized1SmMxf4Sm100>;
  using GroupedSchedule = cute::conditional_t<block == 16, cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmNvf4Sm100,
                                              cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmMxf4Sm100>;
  using Schedule = cute::conditional_t<grouped, GroupedSchedule, DenseSchedule>;
  using EpilogueSchedule =
      cute::conditional_t<grouped, cutlass::epilogue::PtrArrayTmaWarpSpecialized1Sm, cutlass::epilogue::TmaWarpSpecialized1Sm>;
};

template <int block, bool grouped>
struct KernelTypes<Family::warp, block, grouped> {
  using Operand = Fp4<block>;
  using Arch = cutlass::arch::Sm120;
  using Tile = cute::Shape<cute::_128, cute::_128, cute::_128>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Schedule = cutlass::gemm::collective::KernelScheduleAuto;
  using EpilogueSchedule = cutlass::epilogue::collective::EpilogueScheduleAuto;
};

// A failed CUTLASS call as a Status, with the runtime's last error where there is one.
inline Status cutlass_failed(const char* what, cutlass::Status status) {
  const cudaError_t error = cudaGetLastError();
  std::string text = std::string(what) + ": " + cutlassGetStatusString(status);
  if (error != cudaSuccess) text += std::string(" (") + cudaGetErrorString(error) + ")";
  return {Code::unavailable, text};
}

#define SF_CUTLASS(what, call)                                                              \
  do {                                                                                      \
    if (const cutlass::Status sf_status_ = (call); sf_status_ != cutlass::Status::kSuccess) \
      return cutlass_failed(what, sf_status_);                                              \
  } while (0)

}  // namespace swordfish::blockscaled
