// The CUDA runtime as the device layer uses it: errors as Status.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/device.h"

namespace swordfish {

// A failed runtime call; clears the error, so that no later call reports it again.
inline Status cuda_failed(std::string_view what, cudaError_t error) {
  cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::unavailable;
  return {code, fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error))};
}

#define SF_CUDA(what, call)                                                                                  \
  do {                                                                                                       \
    if (const cudaError_t sf_error_ = (call); sf_error_ != cudaSuccess) return cuda_failed(what, sf_error_); \
  } while (0)

// Whether this process has looked for GPUs and found one.
bool gpus_in_use();

// Whether the device code of this build has machine code for the current device.
cudaError_t probe_machine_code();

}  // namespace swordfish
