// Memory and streams of a GPU.
#include "device/cuda/runtime.h"

#include "base/try.h"

namespace swordfish {

RelaxedCapture::RelaxedCapture() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  mode_ = mode;
}
RelaxedCapture::~RelaxedCapture() {
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

Result<DeviceBuffer> DeviceBuffer::allocate(Device device, std::size_t size) {
  SF_TRY(usable_gpu(device).status());
  const CurrentDevice current(device);
  SF_TRY(current.status());
  DeviceBuffer buffer;
  buffer.device_ = device;
  if (size == 0) return buffer;
  SF_CUDA(fmt::format("allocating {} bytes on {}", size, to_string(device)), cudaMalloc(&buffer.data_, size));
  buffer.size_ = size;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  const CurrentDevice current(device_);
  cudaFree(data_);
}

Result<PinnedBuffer> PinnedBuffer::allocate(Device device, std::size_t size) {
  SF_TRY(usable_gpu(device).status());
  const CurrentDevice current(device);
  SF_TRY(current.status());
  PinnedBuffer buffer;
  void* data = nullptr;
  SF_CUDA(fmt::format("page-locking {} bytes of host memory", size), cudaHostAlloc(&data, size, cudaHostAllocPortable));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) cudaFreeHost(data_);
}

Result<Stream> Stream::create(Device device) {
  SF_TRY(usable_gpu(device).status());
  const CurrentDevice current(device);
  SF_TRY(current.status());
  cudaStream_t made = nullptr;
  SF_CUDA(fmt::format("creating a stream on {}", to_string(device)), cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  Stream stream;
  stream.stream_ = made;
  stream.device_ = device;
  return stream;
}

Stream::~Stream() {
  if (!stream_) return;
  const CurrentDevice current(device_);
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

Status copy_async(Device device, void* to, const void* from, std::size_t size, void* stream) {
  SF_TRY(usable_gpu(device).status());
  if (size == 0) return {};
  if (!to || !from) return invalid_argument("copying {} bytes: a null pointer", size);
  const CurrentDevice current(device);
  SF_TRY(current.status());
  SF_CUDA(fmt::format("copying {} bytes", size),
          cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
  return {};
}

Status copy(Device device, void* to, const void* from, std::size_t size, void* stream) {
  SF_TRY(copy_async(device, to, from, size, stream));
  return size == 0 ? Status() : synchronize(device, stream);
}

Status fill(Device device, void* to, int byte, std::size_t size, void* stream) {
  SF_TRY(usable_gpu(device).status());
  if (size == 0) return {};
  if (!to) return invalid_argument("filling {} bytes: a null pointer", size);
  const CurrentDevice current(device);
  SF_TRY(current.status());
  SF_CUDA(fmt::format("filling {} bytes", size), cudaMemsetAsync(to, byte, size, static_cast<cudaStream_t>(stream)));
  return {};
}

Status synchronize(Device device, void* stream) {
  SF_TRY(usable_gpu(device).status());
  const CurrentDevice current(device);
  SF_TRY(current.status());
  SF_CUDA("waiting for the stream", cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  return {};
}

Status check_on_device(Device device, std::initializer_list<NamedPointer> pointers) {
  SF_ASSIGN(const GpuInfo* gpu, usable_gpu(device));
  for (const NamedPointer& p : pointers) {
    if (!p.pointer) continue;
    cudaPointerAttributes attributes;
    SF_CUDA(fmt::format("{} cannot be looked up", p.what), cudaPointerGetAttributes(&attributes, p.pointer));
    if (attributes.type == cudaMemoryTypeUnregistered && !gpu->reads_host_memory)
      return invalid_argument("{} is in host memory; {} needs it in memory of its own (or registered with CUDA)", p.what,
                              to_string(device));
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != device.index)
      return invalid_argument("{} is in memory of cuda:{}; the problem is on {}", p.what, attributes.device, to_string(device));
  }
  return {};
}

Status check_on_host(std::initializer_list<NamedPointer> pointers) {
  if (!gpus_in_use()) return {};
  for (const NamedPointer& p : pointers) {
    cudaPointerAttributes attributes;
    if (!p.pointer) continue;
    if (cudaPointerGetAttributes(&attributes, p.pointer) != cudaSuccess) {
      cudaGetLastError();  // no later call shall report it
      continue;
    }
    if (attributes.type == cudaMemoryTypeDevice)
      return invalid_argument("{} is in memory of cuda:{}; the problem is on the CPU", p.what, attributes.device);
  }
  return {};
}

}  // namespace swordfish
