// What builds with and without CUDA share: choosing a usable GPU, describing one, and where a weight's planes lie in its memory.
#include "swordfish/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "device/device.h"
#include "pack/packed_format.h"
#include "pack/packed_weight.h"

namespace swordfish {
namespace {

// Shared memory by compute capability, bytes a CTA may have and an SM has (CUDA programming guide, "Technical specifications").
struct SharedMemory {
  int arch, block, sm;
};
constexpr std::array kSharedMemory{SharedMemory{80, 163, 164},  SharedMemory{86, 99, 100},   SharedMemory{87, 163, 164},
                                   SharedMemory{89, 99, 100},   SharedMemory{90, 227, 228},  SharedMemory{100, 227, 228},
                                   SharedMemory{103, 227, 228}, SharedMemory{110, 227, 228}, SharedMemory{120, 99, 100},
                                   SharedMemory{121, 99, 100}};

// A plane of the packed weight and the pointer to it in the view.
struct PlacedPlane {
  Buffer PackedWeight::*buffer;
  const void* set;  // null: the weight has none
  std::size_t offset, size;
};

std::vector<PlacedPlane> place(const PackedView& v, std::size_t& end) {
  std::vector<PlacedPlane> placed;
  end = 0;
  for (const PackedPlane& plane : packed_planes(v)) {
    const std::string_view leaf = plane.leaf;
    const bool always = leaf == "codes" || leaf == "scales";
    const void* set = leaf == "zeros"     ? v.zeros
                      : leaf == "offsets" ? v.offsets
                      : leaf == "gather"  ? static_cast<const void*>(v.gather)
                      : always            ? &v
                                          : static_cast<const void*>(v.row_of_slice);
    if (!set) continue;
    const std::size_t size = plane.bytes();
    placed.push_back({plane.buffer, set, end, size});
    end += (size + DeviceWeight::alignment - 1) / DeviceWeight::alignment * DeviceWeight::alignment;
  }
  return placed;
}

}  // namespace

Result<const GpuInfo*> usable_gpu(Device device) {
  const Gpus& all = gpus();
  if (device.kind != Device::Kind::cuda) return invalid_argument("{} is no CUDA device", to_string(device));
  if (all.found.empty()) return unavailable("{} cannot be used: {}", to_string(device), all.none);
  if (device.index < 0 || static_cast<std::size_t>(device.index) >= all.found.size())
    return unavailable("there is no {}: this machine has {} CUDA device{}", to_string(device), all.found.size(),
                       all.found.size() == 1 ? ", cuda:0" : "s");
  const GpuInfo& gpu = all.found[static_cast<std::size_t>(device.index)];
  if (const std::string& why = why_unusable(device.index); !why.empty())
    return unavailable("{} ({}) cannot be used: {}", to_string(device), gpu.name, why);
  return &gpu;
}

Result<GpuInfo> describe_gpu(std::string_view text) {
  GpuInfo gpu;
  const char* end = text.data() + text.size();
  if (text.starts_with("sm_")) {
    const auto arch = std::from_chars(text.data() + 3, end, gpu.arch);
    if (arch.ec == std::errc() && arch.ptr != end && *arch.ptr == ':') {
      const auto sms = std::from_chars(arch.ptr + 1, end, gpu.sms);
      if (sms.ec == std::errc() && sms.ptr == end && gpu.sms > 0 && gpu.sms <= 4096)
        for (const SharedMemory& known : kSharedMemory)
          if (known.arch == gpu.arch) {
            gpu.name = text;
            gpu.smem_block = std::int64_t{known.block} * 1024;
            gpu.smem_sm = std::int64_t{known.sm} * 1024;
            return gpu;
          }
    }
  }
  std::string archs;
  for (const SharedMemory& known : kSharedMemory) archs += fmt::format(" {}", known.arch);
  return invalid_argument("'{}' describes no GPU: give sm_ARCH:SMS, such as sm_90:132; ARCH is one of{}", text, archs);
}

std::size_t DeviceWeight::bytes(const PackedView& weight) {
  std::size_t end = 0;
  place(weight, end);
  return end;
}

Result<DeviceWeight> DeviceWeight::at(const PackedView& like, Device device, void* memory, std::size_t size) {
  std::size_t end = 0;
  const std::vector<PlacedPlane> planes = place(like, end);
  if (!memory) return invalid_argument("the memory for the weight is a null pointer");
  if (reinterpret_cast<std::uintptr_t>(memory) % DeviceWeight::alignment != 0)
    return invalid_argument("the memory for the weight is not {}-byte aligned", DeviceWeight::alignment);
  if (size < end) return invalid_argument("the memory for the weight has {} bytes; it needs {}", size, end);
  if (device.kind == Device::Kind::cuda) SF_TRY(check_on_device(device, {{"the memory for the weight", memory}}));
  DeviceWeight weight;
  weight.device_ = device;
  weight.memory_ = memory;
  weight.parts_.assign(like.parts, like.parts + like.n_parts);
  PackedView& v = weight.view_ = like;
  v.parts = weight.parts_.data();
  v.cuda_device = device.kind == Device::Kind::cuda ? device.index : -1;
  const auto pointer_of = [&](const Buffer PackedWeight::*buffer) -> const void* {
    for (const PlacedPlane& plane : planes)
      if (plane.buffer == buffer) return static_cast<const std::byte*>(memory) + plane.offset;
    return nullptr;
  };
  v.codes = pointer_of(&PackedWeight::codes);
  v.scales = pointer_of(&PackedWeight::scales);
  v.zeros = pointer_of(&PackedWeight::zeros);
  v.offsets = pointer_of(&PackedWeight::offsets);
  v.row_of_slice = static_cast<const std::int32_t*>(pointer_of(&PackedWeight::row_of_slice));
  v.gather = static_cast<const std::int32_t*>(pointer_of(&PackedWeight::gather));
  return weight;
}

Result<std::vector<PlaneCopy>> plane_copies(const PackedWeight& weight) {
  std::size_t end = 0;
  std::vector<PlaneCopy> copies;
  for (const PlacedPlane& plane : place(weight.view, end)) {
    const Buffer& from = weight.*plane.buffer;
    // In the file row_of_slice is rounded up to 16 entries, in host memory it need not be.
    if (from.empty() || from.size() + kRowOfSliceMultiple * sizeof(std::int32_t) <= plane.size)
      return invalid_argument("the packed weight {} has a plane of {} bytes where its shape needs {}", weight.name, from.size(),
                              plane.size);
    copies.push_back({from.data(), plane.offset, std::min(from.size(), plane.size)});
  }
  return copies;
}

Result<DeviceWeight> DeviceWeight::upload(const PackedWeight& weight, Device device, void* memory, std::size_t size, void* stream) {
  SF_TRY(usable_gpu(device).status());
  SF_ASSIGN(DeviceWeight out, at(weight.view, device, memory, size));
  SF_ASSIGN(const std::vector<PlaneCopy> copies, plane_copies(weight));
  for (const PlaneCopy& plane : copies)
    SF_TRY(copy(device, static_cast<std::byte*>(memory) + plane.offset, plane.from, plane.size, stream));
  return out;
}

Status copy_back(Device device, void* to, const void* from, std::size_t size) {
  if (device.kind == Device::Kind::cuda) return copy(device, to, from, size);
  std::memcpy(to, from, size);
  return {};
}

Result<PackedWeight> download(const DeviceWeight& weight) {
  const PackedView& v = weight.view();
  PackedWeight out;
  out.view = v;
  out.view.cuda_device = -1;
  out.parts.assign(v.parts, v.parts + v.n_parts);
  std::size_t end = 0;
  for (const PlacedPlane& plane : place(v, end)) {
    Buffer& to = out.*plane.buffer;
    to = Buffer(plane.size);
    SF_TRY(copy_back(weight.device(), to.data(), static_cast<const std::byte*>(weight.memory()) + plane.offset, plane.size));
  }
  bind(out);
  return out;
}

Result<DeviceWeight> DeviceWeight::upload(const PackedWeight& weight, Device device, void* stream) {
  SF_ASSIGN(DeviceBuffer memory, DeviceBuffer::allocate(device, bytes(weight.view)));
  SF_ASSIGN(DeviceWeight out, upload(weight, device, memory.data(), memory.size(), stream));
  out.own_ = std::move(memory);
  return out;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  return *this;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void* DeviceBuffer::release() {
  size_ = 0;
  return std::exchange(data_, nullptr);
}
DeviceBuffer DeviceBuffer::adopt(Device device, void* data) {
  DeviceBuffer buffer;
  buffer.data_ = data;
  buffer.device_ = device;
  return buffer;
}

Stream::Stream(Stream&& other) noexcept { *this = std::move(other); }
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(device_, other.device_);
  return *this;
}

void* Stream::release() { return std::exchange(stream_, nullptr); }
Stream Stream::adopt(Device device, void* stream) {
  Stream adopted;
  adopted.stream_ = stream;
  adopted.device_ = device;
  return adopted;
}

}  // namespace swordfish
