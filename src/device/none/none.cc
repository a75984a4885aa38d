// The device layer and the launches of a build without CUDA: each says so.
#include "base/error.h"
#include "device/device.h"
#include "device/measure.h"
#include "kernels/cuda/blockscaled/launch.h"
#include "kernels/cuda/sm80_mma/decode.h"

namespace swordfish {
namespace {

Status no_cuda() { return unavailable("{}", gpus().none); }

}  // namespace

const Gpus& gpus() {
  static const Gpus none = [] {
    Gpus g;
    g.none = "this build has no CUDA kernels: build on a machine with nvcc 13";
    return g;
  }();
  return none;
}

const std::string& why_unusable(int) { return gpus().none; }

Result<DeviceBuffer> DeviceBuffer::allocate(Device, std::size_t) { return no_cuda(); }
DeviceBuffer::~DeviceBuffer() {}  // these own something in the other build
Result<PinnedBuffer> PinnedBuffer::allocate(Device, std::size_t) { return no_cuda(); }
PinnedBuffer::~PinnedBuffer() {}
Result<Stream> Stream::create(Device) { return no_cuda(); }
Stream::~Stream() {}
Status copy(Device, void*, const void*, std::size_t, void*) { return no_cuda(); }
Status copy_async(Device, void*, const void*, std::size_t, void*) { return no_cuda(); }
Status fill(Device, void*, int, std::size_t, void*) { return no_cuda(); }
Status synchronize(Device, void*) { return no_cuda(); }
Status check_on_device(Device, std::initializer_list<NamedPointer>) { return no_cuda(); }
Status check_on_host(std::initializer_list<NamedPointer>) { return {}; }
CurrentDevice::CurrentDevice(Device) {}
CurrentDevice::~CurrentDevice() {}
Status CurrentDevice::status() const { return no_cuda(); }
RelaxedCapture::RelaxedCapture() = default;
RelaxedCapture::~RelaxedCapture() = default;
Result<std::vector<Timed>> time_graphs(Device, std::size_t, std::span<const Launch>, double, const std::function<void()>&) {
  return no_cuda();
}

struct Cublas::Impl {};
Cublas::Cublas(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cublas::Cublas(Cublas&&) noexcept = default;
Cublas& Cublas::operator=(Cublas&&) noexcept = default;
Cublas::~Cublas() = default;
Result<Cublas> Cublas::open(Device) { return no_cuda(); }
Status Cublas::multiply(DType, const void*, const void*, void*, std::int64_t, std::int64_t, std::int64_t, void*) {
  return no_cuda();
}
Sensors read_sensors(Device) { return {}; }

namespace mma {
Status launch_decode(const PackedView&, const DecodePlan&, const DecodeCall&) { return no_cuda(); }
Status init_decode_workspace(const DecodePlan&, void*, void*) { return no_cuda(); }
}  // namespace mma

namespace blockscaled {
Status launch_quantize(const QuantizeCall&) { return no_cuda(); }
Status launch_swizzle(const std::uint8_t*, std::int64_t, std::int64_t, std::int64_t, std::uint8_t*, void*) { return no_cuda(); }
Status launch_copy_rows(void*, std::int64_t, const void*, std::int64_t, std::int64_t, std::int64_t, void*) { return no_cuda(); }
}  // namespace blockscaled

}  // namespace swordfish
