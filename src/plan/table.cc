// The kernel table, in priority order: the first row that can run a problem is chosen, and the last can run everything on the CPU.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/kernel.h"

namespace swordfish {
namespace {

constexpr std::string_view kWeights = "int4 int8 fp4", kZeros = "constant integers offsets",
                           kGroups = "multiple of 16, channelwise, act-order, any row map", kActivations = "bf16 f16",
                           kLayout = "mma64/1", kVectors = "run: SSE4, AVX2, AVX-512; under qemu-user: NEON";

// W4A4, by CUTLASS: chosen by layout alone.
constexpr std::string_view kFp4Groups = "16 (e4m3), 32 (e8m0)", kQuantized = "bf16 f16, quantized to FP4",
                           kFp4Layout = "sm1xx-blockscaled/1";

constexpr Kernel kTable[] = {
    {{"sm80_mma_middle", "cuda sm_80+", "M > 16", kWeights, "constant integers (u8)", kGroups, "bf16 f16 (scales f16, e4m3)",
      kLayout, "run: sm_90a (one H200)"},
     Device::Kind::cuda,
     cuda::middle_can_run,
     cuda::middle_plan,
     cuda::middle_launch,
     cuda::mma_init},
    {{"sm80_mma_decode", "cuda sm_80+", "any M; made for M <= 16", kWeights, kZeros, kGroups, kActivations, kLayout,
      "run: sm_90a (one H200)"},
     Device::Kind::cuda,
     cuda::decode_can_run,
     cuda::decode_plan,
     cuda::decode_launch,
     cuda::mma_init},
    {{"sm100_blockscaled_grouped", "cuda sm_100a, 103a, 110a", "any M; parts with other globals", "fp4", "constant", kFp4Groups,
      kQuantized, kFp4Layout, "compiled for sm_100f, 110a; not run"},
     Device::Kind::cuda,
     blockscaled::can_run<blockscaled::Family::tcgen05, true>,
     blockscaled::plan<blockscaled::Family::tcgen05, true>,
     blockscaled::launch<blockscaled::Family::tcgen05, true>,
     cuda::mma_init},
    {{"sm100_blockscaled", "cuda sm_100a, 103a, 110a", "any M", "fp4", "constant", kFp4Groups, kQuantized, kFp4Layout,
      "compiled for sm_100f, 110a; not run"},
     Device::Kind::cuda,
     blockscaled::can_run<blockscaled::Family::tcgen05, false>,
     blockscaled::plan<blockscaled::Family::tcgen05, false>,
     blockscaled::launch<blockscaled::Family::tcgen05, false>,
     cuda::mma_init},
    {{"sm120_blockscaled_grouped", "cuda sm_120a, 121a", "any M; parts with other globals", "fp4", "constant", kFp4Groups,
      kQuantized, kFp4Layout, "compiled for sm_120f; not run"},
     Device::Kind::cuda,
     blockscaled::can_run<blockscaled::Family::warp, true>,
     blockscaled::plan<blockscaled::Family::warp, true>,
     blockscaled::launch<blockscaled::Family::warp, true>,
     cuda::mma_init},
    {{"sm120_blockscaled", "cuda sm_120a, 121a", "any M", "fp4", "constant", kFp4Groups, kQuantized, kFp4Layout,
      "compiled for sm_120f; not run"},
     Device::Kind::cuda,
     blockscaled::can_run<blockscaled::Family::warp, false>,
     blockscaled::plan<blockscaled::Family::warp, false>,
     blockscaled::launch<blockscaled::Family::warp, false>,
     cuda::mma_init},
    {{"cpu_decode", "cpu (SSE4, AVX2, AVX-512, NEON)", "M <= 8", kWeights, kZeros, kGroups, kActivations, kLayout, kVectors},
     Device::Kind::cpu,
     cpu::decode_can_run,
     cpu::decode_plan,
     cpu::decode_launch,
     nullptr},
    {{"cpu_gemm", "cpu (SSE4, AVX2, AVX-512, NEON)", "any M", kWeights, kZeros, kGroups, kActivations, kLayout, kVectors},
     Device::Kind::cpu,
     cpu::gemm_can_run,
     cpu::gemm_plan,
     cpu::gemm_launch,
     nullptr},
    {{"reference", "cpu", "any M", kWeights, kZeros, kGroups, kActivations, kLayout, "run: x86-64"},
     Device::Kind::cpu,
     reference::can_run,
     reference::plan,
     reference::launch,
     nullptr},
};

}  // namespace

std::span<const Kernel> kernel_table() { return kTable; }

std::vector<KernelInfo> kernels() {
  std::vector<KernelInfo> rows;
  for (const Kernel& kernel : kTable) rows.push_back(kernel.info);
  return rows;
}

}  // namespace swordfish
