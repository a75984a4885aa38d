// Chunks in turn, and first fit in the runs on the device.
#include "load/uploader.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "base/timer.h"
#include "base/try.h"
#include "device/device.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t round_up(std::uint64_t size) {
  return (size + DeviceWeight::alignment - 1) / DeviceWeight::alignment * DeviceWeight::alignment;
}

}  // namespace

Uploader::Uploader(MakeDevice make, unsigned workers, std::uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes), workers_(workers) {
  const auto run = [this, made = std::move(make)] {
    const Clock::time_point start = Clock::now();
    Status status;
    try {
      status = make_ready(made);
    } catch (const std::bad_alloc&) {
      status = Status(Code::out_of_memory, "out of memory while making the device ready");
    } catch (const std::exception& e) {
      status = Status(Code::internal, e.what());
    }
    const std::lock_guard lock(mutex_);
    ready_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    problem_ = status;
    ready_ = true;
    readiness_.notify_all();
  };
  try {
    thread_ = std::thread(run);
  } catch (const std::system_error&) {  // no thread
    run();
  }
}
Uploader::~Uploader() {
  if (thread_.joinable()) thread_.join();
}

Status Uploader::make_ready(const MakeDevice& make) {
  SF_ASSIGN(device_, make());
  const auto chunk = static_cast<std::size_t>(chunk_bytes_);
  SF_ASSIGN(std::span<std::byte> memory, device_->page_locked(2 * workers_.size() * chunk));
  for (Worker& worker : workers_) {
    for (std::span<std::byte>& part : worker.chunks) {
      part = memory.first(chunk);
      memory = memory.subspan(chunk);
    }
  }
  return {};
}

Status Uploader::ready() {
  std::unique_lock lock(mutex_);
  readiness_.wait(lock, [&] { return ready_; });
  return problem_;
}

Status Uploader::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

// What does not fit a chunk is packed into memory of its own.
Uploader::Admission::Admission(Uploader& uploader, std::uint64_t packed, std::uint64_t beside)
    : uploader_(uploader), bytes_(beside + (packed > uploader.chunk_bytes_ ? packed : 0)) {
  if (bytes_ == 0) return;
  std::unique_lock lock(uploader_.mutex_);
  uploader_.room_.wait(lock, [&] { return uploader_.admitted_ == 0 || uploader_.admitted_ + bytes_ <= admitted_bytes; });
  uploader_.admitted_ += bytes_;
}
Uploader::Admission::~Admission() {
  if (bytes_ == 0) return;
  {
    const std::lock_guard lock(uploader_.mutex_);
    uploader_.admitted_ -= bytes_;
  }
  uploader_.room_.notify_all();
}

Result<std::span<std::byte>> Uploader::chunk(unsigned worker) {
  Worker& w = workers_[worker];
  SF_TRY(ready());
  const Timer timer(w.seconds);
  w.turn ^= 1;
  SF_TRY(device_->wait(lane(worker)));
  w.left = {};
  return w.chunks[w.turn];
}

Status Uploader::copy(unsigned worker, std::byte* to, const std::byte* from, std::size_t size) {
  const Timer timer(workers_[worker].seconds);
  return device_->copy(lane(worker), to, from, size);
}

Result<std::byte*> Uploader::reserve(std::uint64_t size) {
  SF_TRY(ready());
  size = round_up(size);
  const std::lock_guard lock(mutex_);
  auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return r.left >= size; });
  if (run == runs_.end()) {
    // The last run is as long as what is left, and those after it (packing pads) are short, so that little is wasted.
    const std::uint64_t rest = expected_ > allocated_ ? expected_ - allocated_ : 0;
    const std::uint64_t length = std::max(size, std::min(run_bytes, round_up(std::max(rest, expected_ / 64))));
    SF_ASSIGN(std::byte * memory, device_->allocate(static_cast<std::size_t>(length)));
    allocated_ += length;
    memory_.emplace_back(memory, length);
    runs_.push_back({memory, length});
    run = std::prev(runs_.end());
  }
  std::byte* const place = run->next;
  run->next += size;
  run->left -= size;
  if (run->left < DeviceWeight::alignment) runs_.erase(run);
  return place;
}

Result<DeviceWeight> Uploader::upload(unsigned worker, const PackedWeight& weight, std::byte* place) {
  const std::size_t size = DeviceWeight::bytes(weight.view);
  std::byte* memory = place;
  if (memory == nullptr) {
    SF_ASSIGN(memory, reserve(size));
  }
  SF_ASSIGN(DeviceWeight out, DeviceWeight::at(weight.view, device_->device(), memory, size));
  SF_ASSIGN(const std::vector<PlaneCopy> planes, plane_copies(weight));
  for (const PlaneCopy& plane : planes) SF_TRY(copy(worker, memory + plane.offset, plane.from, plane.size));
  return out;
}

Status Uploader::upload(unsigned worker, const io::File& file, std::uint64_t offset, std::uint64_t size, std::byte* to,
                        const Seen& seen) {
  for (std::uint64_t at = 0; at < size;) {
    if (workers_[worker].left.empty()) {
      SF_ASSIGN(workers_[worker].left, chunk(worker));
    }
    std::span<std::byte>& left = workers_[worker].left;
    const std::span<std::byte> part = left.first(static_cast<std::size_t>(std::min<std::uint64_t>(left.size(), size - at)));
    SF_TRY(file.read(offset + at, part.size(), part.data()));
    if (seen) seen(part);
    SF_TRY(copy(worker, to + at, part.data(), part.size()));
    left = left.subspan(part.size());
    at += part.size();
  }
  return {};
}

Status Uploader::fetch(unsigned worker, std::byte* to, const std::byte* from, std::size_t size) {
  SF_TRY(ready());
  SF_TRY(copy(worker, to, from, size));
  const Timer timer(workers_[worker].seconds);
  return device_->wait(lane(worker));
}

std::vector<std::span<std::byte>> Uploader::memory() {
  const std::lock_guard lock(mutex_);
  return memory_;
}

Result<Device> Uploader::device() {
  SF_TRY(ready());
  return device_->device();
}

Status Uploader::wait() {
  SF_TRY(ready());
  for (unsigned lane = 0; lane < 2 * workers_.size(); ++lane) SF_TRY(device_->wait(lane));
  return {};
}

Status Uploader::forget() {
  SF_TRY(wait());
  (void)device_->take_memory();
  runs_.clear();
  memory_.clear();
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
  model.report.device_seconds = ready_seconds_;
  for (const Worker& worker : workers_) model.report.upload_seconds += worker.seconds;
  model.report.device_bytes = allocated_;
  model.device = device_->device();
  model.device_memory = device_->take_memory();
  return {};
}

}  // namespace swordfish
