// LoadDevice: what loading needs of a GPU. Tests put host memory in its place.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "swordfish/device.h"
#include "swordfish/status.h"

namespace swordfish {

class LoadDevice {
 public:
  virtual ~LoadDevice() = default;
  virtual Device device() const = 0;
  // Memory on it, 256-byte aligned, until it goes or take_memory() hands all of it over.
  virtual Result<std::byte*> allocate(std::size_t size) = 0;
  virtual std::vector<DeviceBuffer> take_memory() = 0;
  // Page-locked host memory, as long as this lives.
  virtual Result<std::span<std::byte>> page_locked(std::size_t size) = 0;
  // Starts a copy from host memory, in order with the lane's others; page-locked memory stays as it is until wait(lane).
  virtual Status copy(unsigned lane, std::byte* to, const std::byte* from, std::size_t size) = 0;
  virtual Status wait(unsigned lane) = 0;
};

// Copies of different lanes run side by side. Safe from several threads, each with lanes of its own; allocate() by one at a time.
Result<std::unique_ptr<LoadDevice>> make_load_gpu(Device device, unsigned lanes);

}  // namespace swordfish
