// CUTLASS's block-scaled GEMM for a group of products in one launch, each with its own extents, pointers and alpha. A unit beside
// this file instantiates it once. Not run: no Blackwell GPU has been at hand; MEASURED.md says
// which units have been compiled.
//
// CUTLASS reads its arguments from arrays in device memory, in types of its own. `write_groups` makes them there from the Groups
// that it gets by value, so that a launch copies nothing from the host and can be captured in a graph.
#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda/blockscaled/cutlass/arguments.h"
#include "kernels/cuda/blockscaled/cutlass/types.cuh"

namespace swordfish::blockscaled {

// The arrays, one entry a group.
template <class Types>
struct GroupArrays {
  typename Types::Shape shape[kMostGroups];
  const typename Types::Code* x_codes[kMostGroups];
  const typename Types::Code* w_codes[kMostGroups];
  const typename Types::Scale* x_scales[kMostGroups];
  const typename Types::Scale* w_scales[kMostGroups];
  typename Types::Output* y[kMostGroups];
  const float* alpha[kMostGroups];
  typename Types::StrideX stride_x[kMostGroups];
  typename Types::StrideW stride_w[kMostGroups];
  typename Types::StrideY stride_y[kMostGroups];
  typename Types::LayoutX layout_x[kMostGroups];
  typename Types::LayoutW layout_w[kMostGroups];
};

template <int block, class Types>
__global__ void __launch_bounds__(32) write_groups(const __grid_constant__ Groups groups, GroupArrays<Types>* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= groups.count) return;
  const Gemm& g = groups.group[i];
  to->shape[i] = cute::make_shape(g.m, g.n, g.k);
  to->x_codes[i] = reinterpret_cast<const typename Types::Code*>(g.x_codes);
  to->w_codes[i] = reinterpret_cast<const typename Types::Code*>(g.w_codes);
  to->x_scales[i] = reinterpret_cast<const typename Types::Scale*>(g.x_scales);
  to->w_scales[i] = reinterpret_cast<const typename Types::Scale*>(g.w_scales);
  to->y[i] = static_cast<typename Types::Output*>(g.y);
  to->alpha[i] = g.alpha;
  to->stride_x[i] = stride_x<typename Types::StrideX>(g);
  to->stride_w[i] = stride_w<typename Types::StrideW>(g);
  to->stride_y[i] = stride_y<typename Types::StrideY>(g);
  to->layout_x[i] = layout_x_scales<block>(g);
  to->layout_w[i] = layout_w_scales<block>(g);
}

template <Family family, int block, class Output_>
struct Grouped {
  using Config = KernelTypes<family, block, true>;
  using Operand = typename Config::Operand;
  using RowMajor = cutlass::layout::RowMajor;
  using ColumnMajor = cutlass::layout::ColumnMajor;
  static constexpr int kAlignCodes = 32, kAlignY = 8;  // 16 bytes

  // C is not read; it has y's type because CUTLASS's grouped epilogues want one.
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      typename Config::Arch, cutlass::arch::OpClassBlockScaledTensorOp, typename Config::Tile, typename Config::Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Output_, RowMajor*, kAlignY, Output_, RowMajor*, kAlignY,
      typename Config::EpilogueSchedule>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      typename Config::Arch, cutlass::arch::OpClassBlockScaledTensorOp, Operand, RowMajor*, kAlignCodes, Operand, ColumnMajor*,
      kAlignCodes, float, typename Config::Tile, typename Config::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Config::Schedule>::CollectiveOp;
  using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  struct Types {
    using Shape = typename Problem::UnderlyingProblemShape;
    using Code = typename Mainloop::ArrayElementA;
    using Scale = typename Mainloop::ElementSF;
    using Output = Output_;
    using StrideX = typename Kernel::InternalStrideA;
    using StrideW = typename Kernel::InternalStrideB;
    using StrideY = typename Kernel::InternalStrideD;
    using LayoutX = typename Mainloop::InternalLayoutSFA;
    using LayoutW = typename Mainloop::InternalLayoutSFB;
  };
  using Arrays = GroupArrays<Types>;
  static constexpr std::size_t kArrayBytes = (sizeof(Arrays) + 255) / 256 * 256;

  static typename Adapter::Arguments arguments(int count, Arrays* a, int sms, int device) {
    typename Adapter::Arguments to{};
    to.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    to.problem_shape = {count, a->shape, nullptr};
    to.mainloop.ptr_A = a->x_codes;
    to.mainloop.dA = a->stride_x;
    to.mainloop.ptr_B = a->w_codes;
    to.mainloop.dB = a->stride_w;
    to.mainloop.ptr_SFA = a->x_scales;
    to.mainloop.layout_SFA = a->layout_x;
    to.mainloop.ptr_SFB = a->w_scales;
    to.mainloop.layout_SFB = a->layout_w;
    to.epilogue.thread.alpha_ptr_array = a->alpha;
    to.epilogue.thread.dAlpha = {cute::_0{}, cute::_0{}, 1};
    to.epilogue.thread.beta = 0;
    to.epilogue.ptr_C = nullptr;
    to.epilogue.dC = a->stride_y;
    to.epilogue.ptr_D = a->y;
    to.epilogue.dD = a->stride_y;
    to.hw_info.device_id = device;
    to.hw_info.sm_count = sms;
    return to;
  }

  // The addresses inside `a` are not read on the host.
  static std::size_t workspace(int sms) {
    return kArrayBytes + Adapter::get_workspace_size(arguments(kMostGroups, static_cast<Arrays*>(nullptr), sms, 0));
  }
  static Status launch(const Groups& groups, int sms, int device, void* workspace, void* stream) {
    const auto on = static_cast<cudaStream_t>(stream);
    auto* const arrays = static_cast<Arrays*>(workspace);
    write_groups<block, Types><<<1, 32, 0, on>>>(groups, arrays);
    if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess)
      return {Code::unavailable, std::string("the arguments of a grouped GEMM: ") + cudaGetErrorString(e)};
    const auto a = arguments(groups.count, arrays, sms, device);
    Adapter adapter;
    SF_CUTLASS("a grouped block-scaled GEMM cannot run this problem", Adapter::can_implement(a));
    SF_CUTLASS("a grouped block-scaled GEMM cannot be prepared",
               adapter.initialize(a, static_cast<std::uint8_t*>(workspace) + kArrayBytes, on));
    SF_CUTLASS("a grouped block-scaled GEMM cannot be launched", adapter.run(on));
    return {};
  }
  static Instance instance(DType y_type) { return {family, block, y_type, {}, workspace, nullptr, launch}; }
};

}  // namespace swordfish::blockscaled
