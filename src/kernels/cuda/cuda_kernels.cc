// What the rows of all CUDA kernels ask of a problem: its GPU, and that what a call names is there.
#include "kernels/cuda/cuda_kernels.h"

#include "base/error.h"
#include "base/try.h"
#include "device/device.h"

namespace swordfish::cuda {

Result<const GpuInfo*> gpu_of(const Problem& p) {
  if (p.described) return p.described;
  return usable_gpu(p.device);
}

Result<const GpuInfo*> gpu_to_run(const Problem& p, const RunArgs& a) {
  if (p.described) return invalid_argument("the problem describes a GPU ({}): it can be planned, not run", p.described->name);
  SF_ASSIGN(const GpuInfo* gpu, gpu_of(p));
  const PackedView& w = *p.weight;
  SF_TRY(check_on_device(p.device, {{"x", a.x},
                                    {"y", a.y},
                                    {"the bias", a.bias},
                                    {"the workspace", a.workspace},
                                    {"the packed weight", w.codes},
                                    {"the packed weight's scales", w.scales}}));
  return gpu;
}

}  // namespace swordfish::cuda
