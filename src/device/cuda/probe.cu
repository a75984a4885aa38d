// A kernel that does nothing: the driver tells whether it finds machine code for a device in what nvcc built here. Every unit of
// the library is compiled for the same architectures.
#include <cuda_runtime.h>

namespace swordfish {
namespace {
__global__ void probe() {}
}  // namespace

cudaError_t probe_machine_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe);
}

}  // namespace swordfish
