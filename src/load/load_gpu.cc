// LoadDevice on a GPU: a stream a lane.
#include <utility>

#include "base/try.h"
#include "load/load_device.h"

namespace swordfish {
namespace {

class Gpu final : public LoadDevice {
 public:
  Gpu(Device device, std::vector<Stream> streams) : device_(device), streams_(std::move(streams)) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() override {
    for (unsigned lane = 0; lane < streams_.size(); ++lane) (void)wait(lane);  // before the memory goes
  }

  Device device() const override { return device_; }
  Result<std::byte*> allocate(std::size_t size) override {
    SF_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device_, size));
    memory_.push_back(std::move(buffer));
    return static_cast<std::byte*>(memory_.back().data());
  }
  std::vector<DeviceBuffer> take_memory() override { return std::exchange(memory_, {}); }
  Result<std::span<std::byte>> page_locked(std::size_t size) override {
    SF_ASSIGN(PinnedBuffer buffer, PinnedBuffer::allocate(device_, size));
    pinned_.push_back(std::move(buffer));
    return std::span(pinned_.back().data(), size);
  }
  Status copy(unsigned lane, std::byte* to, const std::byte* from, std::size_t size) override {
    return copy_async(device_, to, from, size, streams_[lane].get());
  }
  Status wait(unsigned lane) override { return synchronize(device_, streams_[lane].get()); }

 private:
  Device device_;
  std::vector<DeviceBuffer> memory_;
  std::vector<PinnedBuffer> pinned_;
  std::vector<Stream> streams_;
};

}  // namespace

Result<std::unique_ptr<LoadDevice>> make_load_gpu(Device device, unsigned lanes) {
  SF_TRY(usable_gpu(device).status());
  std::vector<Stream> streams;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    SF_ASSIGN(Stream stream, Stream::create(device));
    streams.push_back(std::move(stream));
  }
  return std::unique_ptr<LoadDevice>(std::make_unique<Gpu>(device, std::move(streams)));
}

}  // namespace swordfish
