// Host memory in a GPU's place.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "load/load_device.h"
#include "swordfish/buffer.h"

namespace swordfish::test {

// Copies from page-locked memory happen when their lane is waited for; its memory is fresh and poisoned.
class HostDevice final : public LoadDevice {
 public:
  Device device() const override { return {}; }
  Result<std::byte*> allocate(std::size_t size) override {
    if (allocated + size > most) return Status(Code::out_of_memory, "the device is full");
    allocated += size;
    Buffer& buffer = memory_.emplace_back(size + 256);
    std::memset(buffer.data(), 0xee, buffer.size());
    const auto at = reinterpret_cast<std::uintptr_t>(buffer.data());
    return buffer.data() + (256 - at % 256) % 256;
  }
  std::vector<DeviceBuffer> take_memory() override { return {}; }
  Result<std::span<std::byte>> page_locked(std::size_t size) override {
    locked_ = Buffer(size);
    return std::span(locked_.data(), size);
  }
  Status copy(unsigned lane, std::byte* to, const std::byte* from, std::size_t size) override {
    const std::lock_guard lock(mutex_);
    if (++copies == failing_copy) return {Code::unavailable, "the copy failed"};
    if (from < locked_.data() || from >= locked_.data() + locked_.size()) {
      run(lane);
      std::memcpy(to, from, size);
    } else {
      ++late;
      pending_[lane].push_back([=] { std::memcpy(to, from, size); });
    }
    return {};
  }
  Status wait(unsigned lane) override {
    const std::lock_guard lock(mutex_);
    run(lane);
    return {};
  }

  std::size_t allocated = 0, most = std::size_t{1} << 40;
  int copies = 0, late = 0, failing_copy = 0;

 private:
  void run(unsigned lane) {
    for (const auto& copy : pending_[lane]) copy();
    pending_[lane].clear();
  }
  std::mutex mutex_;
  std::map<unsigned, std::vector<std::function<void()>>> pending_;
  std::vector<Buffer> memory_;
  Buffer locked_;
};

}  // namespace swordfish::test
