// The launches of launch.h: which instance fits the alignment of a call.
#include "kernels/cuda/blockscaled/launch.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/blockscaled/quantize.cuh"
#include "kernels/cuda/blockscaled/swizzle.cuh"
#include "quant/quantize_activation.h"

namespace swordfish::blockscaled {
namespace {

static_assert(kMostAlphas == cuda::kMostAlphas);

Status failed(const char* what, cudaError_t error) {
  cudaGetLastError();
  return {Code::unavailable, std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")"};
}

bool aligned(const void* p, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(bytes) == 0;
}

template <ptx::Half type>
Status quantize(const QuantizeCall& c) {
  const auto stream = static_cast<cudaStream_t>(c.stream);
  const auto* x = static_cast<const std::uint16_t*>(c.x);
  const bool vectors = aligned(x, 16) && c.ldx % 8 == 0 && c.k % c.block == 0;
  cuda::AlphaArgs alphas;
  alphas.alpha = c.alpha;
  alphas.count = c.alphas;
  std::copy_n(c.factor, c.alphas, alphas.factor);
  if (c.block == 16 && c.global == 0) {
    const std::int64_t pieces = c.m * ((c.k + 2047) / 2048);  // a CTA takes one at a time
    ptx::LaunchShape shape;
    shape.grid_x = static_cast<std::uint32_t>(std::min<std::int64_t>(amax_ctas(c.sms), pieces));
    shape.threads = cuda::kAmaxThreads;
    shape.dynamic_smem = 64;
    const cuda::AmaxArgs a{x, c.m, c.k, c.ldx, c.partial, c.counter, c.scale, alphas};
    const auto kernel = vectors ? cuda::activation_amax<type, true> : cuda::activation_amax<type, false>;
    if (const cudaError_t e = ptx::launch(kernel, shape, stream, a); e != cudaSuccess) return failed("the largest activation", e);
  } else {
    const ActivationScale scale = activation_scale(c.block == 16 ? c.global : 1.0f);
    const cuda::SetArgs a{{scale.global, scale.inv, scale.c}, c.scale, alphas};
    if (const cudaError_t e = ptx::launch(cuda::set_scales, {}, stream, a); e != cudaSuccess) return failed("setting scales", e);
  }
  const cuda::QuantizeArgs a{x, c.m, c.k, c.ldx, c.scale, c.codes, c.scales};
  const auto kernel = c.block == 16 ? (vectors ? cuda::quantize_fp4<type, 16, true> : cuda::quantize_fp4<type, 16, false>)
                                    : (vectors ? cuda::quantize_fp4<type, 32, true> : cuda::quantize_fp4<type, 32, false>);
  if (const cudaError_t e = ptx::launch(kernel, cuda::quantize_shape(c.m, c.k, c.block), stream, a); e != cudaSuccess)
    return failed("quantizing activations", e);
  return {};
}

}  // namespace

Status launch_quantize(const QuantizeCall& call) {
  return call.x_type == DType::bf16 ? quantize<ptx::Half::bf16>(call) : quantize<ptx::Half::f16>(call);
}

Status launch_swizzle(const std::uint8_t* from, std::int64_t stride, std::int64_t n, std::int64_t s, std::uint8_t* to,
                      void* stream) {
  const auto lead = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const auto kernel = lead % 4 == 0 && stride % 4 == 0 ? cuda::swizzle_scales<4> : cuda::swizzle_scales<1>;
  const cudaError_t e = ptx::launch(kernel, cuda::swizzle_shape(n, s), static_cast<cudaStream_t>(stream),
                                    cuda::SwizzleArgs{from, stride, n, s, to, lead});
  return e == cudaSuccess ? Status() : failed("swizzling scales", e);
}

Status launch_copy_rows(void* to, std::int64_t to_stride, const void* from, std::int64_t from_stride, std::int64_t bytes,
                        std::int64_t rows, void* stream) {
  const cudaError_t e = cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_stride), from, static_cast<std::size_t>(from_stride),
                                          static_cast<std::size_t>(bytes), static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice,
                                          static_cast<cudaStream_t>(stream));
  return e == cudaSuccess ? Status() : failed("copying rows", e);
}

}  // namespace swordfish::blockscaled
