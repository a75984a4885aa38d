// Chunks in turn, and first fit in the runs on the device.
#include "load/uploader.h"

#include <algorithm>
#include <chrono>

#include "base/try.h"
#include "device/device.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time of its scope.
class Timer {
 public:
  explicit Timer(double& sum) : sum_(sum) {}
  ~Timer() { sum_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

constexpr std::uint64_t round_up(std::uint64_t size) {
  return (size + DeviceWeight::alignment - 1) / DeviceWeight::alignment * DeviceWeight::alignment;
}

}  // namespace

Result<std::unique_ptr<Uploader>> Uploader::make(LoadDevice& device, unsigned workers, std::uint64_t chunk_bytes,
                                                 std::uint64_t expected) {
  std::unique_ptr<Uploader> uploader(new Uploader(device, chunk_bytes, expected));
  SF_ASSIGN(const std::span<std::byte> memory, device.page_locked(static_cast<std::size_t>(2 * workers * chunk_bytes)));
  for (unsigned w = 0; w < workers; ++w) {
    Worker& worker = uploader->workers_.emplace_back();
    for (unsigned turn = 0; turn < 2; ++turn)
      worker.chunks[turn] =
          memory.subspan((2 * w + turn) * static_cast<std::size_t>(chunk_bytes), static_cast<std::size_t>(chunk_bytes));
  }
  return uploader;
}

// What does not fit a chunk is packed into memory of its own.
Uploader::Admission::Admission(Uploader& uploader, std::uint64_t unit_bytes)
    : uploader_(uploader), bytes_(unit_bytes > uploader.chunk_bytes_ ? 2 * unit_bytes : unit_bytes) {
  std::unique_lock lock(uploader_.mutex_);
  uploader_.room_.wait(lock, [&] { return uploader_.admitted_ == 0 || uploader_.admitted_ + bytes_ <= admitted_bytes; });
  uploader_.admitted_ += bytes_;
}
Uploader::Admission::~Admission() {
  {
    const std::lock_guard lock(uploader_.mutex_);
    uploader_.admitted_ -= bytes_;
  }
  uploader_.room_.notify_all();
}

Result<std::span<std::byte>> Uploader::chunk(unsigned worker) {
  Worker& w = workers_[worker];
  const Timer timer(w.seconds);
  w.turn ^= 1;
  SF_TRY(device_.wait(lane(worker)));
  w.left = {};
  return w.chunks[w.turn];
}

Status Uploader::copy(unsigned worker, std::byte* to, const std::byte* from, std::size_t size) {
  const Timer timer(workers_[worker].seconds);
  return device_.copy(lane(worker), to, from, size);
}

Result<std::byte*> Uploader::reserve(std::uint64_t size) {
  size = round_up(size);
  const std::lock_guard lock(mutex_);
  auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return r.left >= size; });
  if (run == runs_.end()) {
    // The last run is as long as what is left, and those after it (packing pads) are short, so that little is wasted.
    const std::uint64_t rest = expected_ > allocated_ ? expected_ - allocated_ : 0;
    const std::uint64_t length = std::max(size, std::min(run_bytes, round_up(std::max(rest, expected_ / 64))));
    SF_ASSIGN(std::byte * memory, device_.allocate(static_cast<std::size_t>(length)));
    allocated_ += length;
    runs_.push_back({memory, length});
    run = std::prev(runs_.end());
  }
  std::byte* const place = run->next;
  run->next += size;
  run->left -= size;
  if (run->left < DeviceWeight::alignment) runs_.erase(run);
  return place;
}

Result<DeviceWeight> Uploader::upload(unsigned worker, const PackedWeight& weight) {
  const std::size_t size = DeviceWeight::bytes(weight.view);
  SF_ASSIGN(std::byte* const memory, reserve(size));
  SF_ASSIGN(DeviceWeight out, DeviceWeight::at(weight.view, device_.device(), memory, size));
  SF_ASSIGN(const std::vector<PlaneCopy> planes, plane_copies(weight));
  for (const PlaneCopy& plane : planes) SF_TRY(copy(worker, memory + plane.offset, plane.from, plane.size));
  return out;
}

Result<const std::byte*> Uploader::upload(unsigned worker, const io::File& file, std::uint64_t offset, std::uint64_t size,
                                          const std::function<void(std::span<const std::byte>)>& seen) {
  SF_ASSIGN(std::byte* const memory, reserve(size));
  for (std::uint64_t at = 0; at < size;) {
    if (workers_[worker].left.empty()) {
      SF_ASSIGN(workers_[worker].left, chunk(worker));
    }
    std::span<std::byte>& left = workers_[worker].left;
    const std::span<std::byte> part = left.first(static_cast<std::size_t>(std::min<std::uint64_t>(left.size(), size - at)));
    SF_TRY(file.read(offset + at, part.size(), part.data()));
    if (seen) seen(part);
    SF_TRY(copy(worker, memory + at, part.data(), part.size()));
    left = left.subspan(part.size());
    at += part.size();
  }
  return memory;
}

Status Uploader::wait() {
  for (unsigned lane = 0; lane < 2 * workers_.size(); ++lane) SF_TRY(device_.wait(lane));
  return {};
}

Status Uploader::forget() {
  SF_TRY(wait());
  (void)device_.take_memory();
  runs_.clear();
  allocated_ = 0;
  return {};
}

Status Uploader::finish(LoadedModel& model) {
  for (LoadedLayer& layer : model.layers) {
    if (layer.bias.empty()) continue;
    const std::size_t size = layer.bias.size() * sizeof(float);
    SF_ASSIGN(std::byte* const memory, reserve(size));
    SF_TRY(copy(0, memory, reinterpret_cast<const std::byte*>(layer.bias.data()), size));
    layer.device_bias = reinterpret_cast<const float*>(memory);
  }
  SF_TRY(wait());
  for (const Worker& worker : workers_) model.report.upload_seconds += worker.seconds;
  model.report.device_bytes = allocated_;
  model.device = device_.device();
  model.device_memory = device_.take_memory();
  return {};
}

}  // namespace swordfish
