// What the library needs of GPUs beyond the public header: checks of pointers, the planes of an uploaded weight, the current
// device. Implemented in device/cuda, and in device/none for builds without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "swordfish/device.h"

namespace swordfish {

struct NamedPointer {
  const char* what;
  const void* pointer;
};
// Ok when kernels on `device` may use each pointer; null ones are not looked at. Safe while a stream is being captured.
Status check_on_device(Device device, std::initializer_list<NamedPointer> pointers);

// Ok when none of the pointers is memory of a GPU; asks only where GPUs have been looked for in this process.
Status check_on_host(std::initializer_list<NamedPointer> pointers);

// Where the bytes of a host weight go in the memory of its DeviceWeight.
struct PlaneCopy {
  const std::byte* from = nullptr;
  std::size_t offset = 0, size = 0;
};
Result<std::vector<PlaneCopy>> plane_copies(const PackedWeight& weight);

// A host copy of a weight; its name is empty.
Result<PackedWeight> download(const DeviceWeight& weight);
// To host memory; `device` may be the CPU.
Status copy_back(Device device, void* to, const void* from, std::size_t size);

// Makes a device current for the calling thread, and the one that was current again at the end. That one gets no context by it: a
// process that works on cuda:3 alone takes no memory of cuda:0.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  Status status() const;

 private:
  [[maybe_unused]] bool pushed_ = false;  // a build without CUDA has no use for them
  [[maybe_unused]] int error_ = 0;
};

// While it lives, the calling thread may allocate and wait although one of its streams is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  [[maybe_unused]] int mode_ = 0;
};

}  // namespace swordfish
