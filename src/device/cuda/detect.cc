// Finding GPUs: the driver, the devices, and whether this build has machine code for one. Nothing is timed.
#include <atomic>
#include <mutex>
#include <vector>

#include "device/cuda/runtime.h"

namespace swordfish {
namespace {

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

// What the runtime's count of devices failed with.
std::string no_devices(cudaError_t error, int driver, int runtime) {
  cudaGetLastError();
  if (driver == 0) return "there is no NVIDIA driver on this machine (libcuda.so.1 was not found or does not answer)";
  if (error == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
    return fmt::format("the NVIDIA driver is for CUDA {} and this build needs CUDA {}: update the driver", version(driver),
                       version(runtime));
  if (error == cudaSuccess || error == cudaErrorNoDevice) return "the NVIDIA driver finds no GPU";
  return fmt::format("the NVIDIA driver answers: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

// Makes a context.
std::string probe(const GpuInfo& gpu) {
  if (gpu.arch == 0) return "its properties could not be read";
  const CurrentDevice current({Device::Kind::cuda, gpu.index});
  if (!current.status().ok()) return current.status().message();
  const cudaError_t error = probe_machine_code();
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    return fmt::format("this build has no machine code for its compute capability {}.{} (it has {})", gpu.arch / 10, gpu.arch % 10,
                       SWORDFISH_CUDA_ARCHS);
  return fmt::format("its kernels could not be loaded: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

Gpus find() {
  Gpus all;
  all.machine_code = SWORDFISH_CUDA_ARCHS;
  cudaRuntimeGetVersion(&all.runtime);
  if (cudaDriverGetVersion(&all.driver) != cudaSuccess) all.driver = 0;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    all.none = no_devices(error, all.driver, all.runtime);
    return all;
  }
  for (int i = 0; i < count; ++i) {
    GpuInfo gpu;
    gpu.index = i;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) == cudaSuccess) {
      gpu.name = p.name;
      gpu.arch = 10 * p.major + p.minor;
      gpu.sms = p.multiProcessorCount;
      gpu.memory = static_cast<std::int64_t>(p.totalGlobalMem);
      gpu.l2 = p.l2CacheSize;
      gpu.smem_block = static_cast<std::int64_t>(p.sharedMemPerBlockOptin);
      gpu.smem_sm = static_cast<std::int64_t>(p.sharedMemPerMultiprocessor);
      gpu.reads_host_memory = p.pageableMemoryAccess != 0;
    } else {
      cudaGetLastError();
    }
    all.found.push_back(std::move(gpu));
  }
  return all;
}

std::atomic<bool> found_some{false};

}  // namespace

const Gpus& gpus() {
  static const Gpus all = [] {
    Gpus g = find();
    found_some = !g.found.empty();
    return g;
  }();
  return all;
}
const std::string& why_unusable(int index) {
  struct Outcome {
    std::once_flag once;
    std::string why;
  };
  static std::vector<Outcome> outcomes(gpus().found.size());
  Outcome& outcome = outcomes.at(static_cast<std::size_t>(index));
  std::call_once(outcome.once, [&] { outcome.why = probe(gpus().found[static_cast<std::size_t>(index)]); });
  return outcome.why;
}

bool gpus_in_use() { return found_some; }

}  // namespace swordfish
