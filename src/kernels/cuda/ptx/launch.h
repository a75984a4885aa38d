// Launching a kernel: the shape of a launch, and the call on a GPU. The model's launch of the same shape is in tests/emulator.
#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/config.h"

namespace swordfish::ptx {

struct LaunchShape {
  std::uint32_t grid_x = 1, grid_y = 1, grid_z = 1;
  std::uint32_t threads = 32;      // a CTA, along x
  std::uint32_t cluster_x = 1;     // CTAs of a cluster, along x
  std::uint32_t dynamic_smem = 0;  // bytes a CTA
  bool dependent = false;          // programmatic dependent launch: may start before the kernel ahead of it in the stream ends
};

}  // namespace swordfish::ptx

#if SF_ON_DEVICE
#include <cuda_runtime.h>

namespace swordfish::ptx {

// More than 48 KB of dynamic shared memory needs cudaFuncAttributeMaxDynamicSharedMemorySize set once for the kernel.
template <class... Parameters>
inline cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, Parameters... arguments) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid_x, shape.grid_y, shape.grid_z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.dynamic_smem;
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster_x > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {shape.cluster_x, 1, 1};
  }
  if (shape.dependent) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace swordfish::ptx
#endif
