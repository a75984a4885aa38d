// CUTLASS's block-scaled GEMM for one product. A unit beside this file instantiates it once; it takes a minute and 5 GB or more to
// compile. Not run: no Blackwell GPU has been at hand; MEASURED.md says which units have been compiled.
//
// Tiles are 128 × 128 with 256 columns of K a stage (tcgen05, one CTA an MMA) or 128 (warp-level), one CTA a cluster: the choice
// that CUTLASS offers for every shape, not a measured one.
#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda/blockscaled/cutlass/arguments.h"
#include "kernels/cuda/blockscaled/cutlass/types.cuh"

namespace swordfish::blockscaled {

template <Family family, int block, class Output>
struct Dense {
  using Types = KernelTypes<family, block, false>;
  using Operand = typename Types::Operand;
  using RowMajor = cutlass::layout::RowMajor;
  using ColumnMajor = cutlass::layout::ColumnMajor;
  static constexpr int kAlignCodes = 32, kAlignY = 8;  // 16 bytes

  // y = alpha · acc + bias; C is not read. Biases are aligned to their elements only.
  using Fusion = cutlass::epilogue::fusion::LinCombPerColBias<Output, float, float, void, float, 1>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      typename Types::Arch, cutlass::arch::OpClassBlockScaledTensorOp, typename Types::Tile, typename Types::Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, kAlignY, Output, RowMajor, kAlignY,
      typename Types::EpilogueSchedule, Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      typename Types::Arch, cutlass::arch::OpClassBlockScaledTensorOp, Operand, RowMajor, kAlignCodes, Operand, ColumnMajor,
      kAlignCodes, float, typename Types::Tile, typename Types::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Types::Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue, void>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  static typename Adapter::Arguments arguments(const Gemm& g, int sms, int device) {
    using Code = typename Mainloop::ArrayElementA;
    using Scale = typename Mainloop::ElementSF;
    typename Adapter::Arguments a{};
    a.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    a.problem_shape = cute::make_shape(g.m, g.n, g.k, 1);
    a.mainloop.ptr_A = reinterpret_cast<const Code*>(g.x_codes);
    a.mainloop.dA = stride_x<typename Kernel::StrideA>(g);
    a.mainloop.ptr_B = reinterpret_cast<const Code*>(g.w_codes);
    a.mainloop.dB = stride_w<typename Kernel::StrideB>(g);
    a.mainloop.ptr_SFA = reinterpret_cast<const Scale*>(g.x_scales);
    a.mainloop.layout_SFA = layout_x_scales<block>(g);
    a.mainloop.ptr_SFB = reinterpret_cast<const Scale*>(g.w_scales);
    a.mainloop.layout_SFB = layout_w_scales<block>(g);
    a.epilogue.thread.alpha_ptr = g.alpha;
    a.epilogue.thread.beta = 0;
    a.epilogue.thread.bias_ptr = g.bias;
    a.epilogue.ptr_D = static_cast<Output*>(g.y);
    a.epilogue.dD = stride_y<typename Kernel::StrideD>(g);
    a.hw_info.device_id = device;
    a.hw_info.sm_count = sms;
    return a;
  }

  static std::size_t workspace(int sms) {
    Gemm g;
    g.m = g.n = 128, g.k = 256, g.ldy = 128;
    return Adapter::get_workspace_size(arguments(g, sms, 0));
  }
  static Status launch(const Gemm& g, int sms, int device, void* workspace, void* stream) {
    const auto a = arguments(g, sms, device);
    Adapter adapter;
    const auto on = static_cast<cudaStream_t>(stream);
    SF_CUTLASS("a block-scaled GEMM cannot run this problem", Adapter::can_implement(a));
    SF_CUTLASS("a block-scaled GEMM cannot be prepared", adapter.initialize(a, workspace, on));
    SF_CUTLASS("a block-scaled GEMM cannot be launched", adapter.run(on));
    return {};
  }
  static Instance instance(DType y_type) { return {family, block, y_type, {}, workspace, launch, nullptr}; }
};

}  // namespace swordfish::blockscaled
