// Units of a packed file are its entries; each is read, compared with its checksum, and kept as it is.
#include "load/packed_job.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"
#include "device/device.h"
#include "io/page_cache.h"
#include "io/read_scope.h"
#include "pack/packed_format.h"

namespace swordfish {
namespace {

class Sum {
 public:
  void add(const void* data, std::size_t size) { value_ = XXH3_64bits_withSeed(data, size, value_ ^ size); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace

std::uint64_t sum_of(const PackedWeight& weight, const float* bias, std::size_t bias_size) {
  Sum sum;
  const std::size_t slices =
      weight.view.row_of_slice == nullptr ? 0 : static_cast<std::size_t>(weight.view.packed_k() / mma64::slice_k);
  for (const Buffer* buffer : {&weight.codes, &weight.scales, &weight.zeros, &weight.offsets, &weight.gather})
    sum.add(buffer->data(), buffer->size());
  sum.add(weight.row_of_slice.data(), slices * sizeof(std::int32_t));  // without the file's padding
  sum.add(bias, bias_size * sizeof(float));
  return sum.value();
}

namespace {

// Of a part that comes in pieces.
class PartSum {
 public:
  explicit PartSum(std::uint64_t size) {
    XXH3_INITSTATE(&state_);
    XXH3_64bits_reset_withSeed(&state_, size);
  }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

std::uint64_t sum_of_parts(const std::vector<std::uint64_t>& sums) {
  return XXH3_64bits(sums.data(), sums.size() * sizeof(std::uint64_t));
}

}  // namespace

std::uint64_t sum_of(std::span<const std::byte> tensor) {
  std::vector<std::uint64_t> sums;
  for (const PlainPart& part : plain_parts(0, 0, tensor.size())) {
    PartSum sum(part.size);
    sum.add(tensor.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size)));
    sums.push_back(sum.value());
  }
  return sum_of_parts(sums);
}

Result<std::unique_ptr<PackedJob>> PackedJob::open(const std::string& packed, const std::string& plain, const PackedSums* sums) {
  SF_ASSIGN(PackedFile file, PackedFile::open(packed));
  Container tensors;
  if (!plain.empty()) {
    SF_ASSIGN(tensors, open_safetensors_file(plain));
  }
  const auto damaged = [&](const std::string& path, std::size_t expected, std::size_t found) {
    return malformed("{}: damaged: expected {} entries by its checksums, found {}", path, expected, found);
  };
  if (sums != nullptr) {
    if (sums->weights.size() != file.layers().size()) return damaged(packed, sums->weights.size(), file.layers().size());
    if (sums->tensors.size() != tensors.tensors.size()) return damaged(plain, sums->tensors.size(), tensors.tensors.size());
  }
  std::unique_ptr<PackedJob> job(new PackedJob(std::move(file), std::move(tensors), sums));
  for (const Container* container : {&job->packed_, &job->plain_file_})
    for (const auto& shard : container->files) job->files_.add(shard->path());
  for (std::size_t l = 0; l < job->file_.layers().size(); ++l) {
    const PackedFile::Layer& layer = job->file_.layers()[l];
    const std::int64_t entries = std::max<std::int64_t>(1, layer.experts);
    if (sums != nullptr && sums->weights[l].size() != static_cast<std::size_t>(entries))
      return damaged(packed, sums->weights[l].size(), static_cast<std::size_t>(entries));
    LoadedLayer loaded;
    loaded.name = layer.name;
    loaded.scheme = layer.scheme;
    loaded.weight_names = layer.weight_names;
    loaded.experts = layer.experts;
    loaded.weights.resize(static_cast<std::size_t>(entries));
    if (!layer.bias.empty()) loaded.bias.resize(static_cast<std::size_t>(entries * layer.shape.n));
    job->model_.layers.push_back(std::move(loaded));
    for (std::int64_t e = 0; e < entries; ++e) job->units_.push_back({std::nullopt, l, e});
  }
  std::vector<TensorInfo> infos;
  for (const Tensor& tensor : job->plain_file_.tensors) {
    const std::vector<PlainPart> parts = plain_parts(infos.size(), 0, tensor.bytes);
    for (const PlainPart& part : parts) job->units_.push_back({part});
    job->part_sums_.push_back({std::vector<std::uint64_t>(parts.size()), parts.size()});
    infos.push_back({tensor.name, type_name(tensor), tensor.shape, job->plain_file_.path_of(tensor), tensor.offset, tensor.bytes});
  }
  SF_TRY(job->plain_.open(infos));
  return job;
}

void PackedJob::upload_to(Uploader& uploader) {
  uploader_ = &uploader;
  plain_.upload_to(uploader);
  for (LoadedLayer& layer : model_.layers) layer.device_weights.resize(layer.weights.size());
}

// The planes in file order, which is the device's; `size`: of its place there.
std::vector<PlacedRange> PackedJob::planes_of(const Unit& unit, std::uint64_t& size) const {
  if (unit.plain) {
    const TensorInfo& tensor = plain_.info(unit.plain->tensor);
    size = unit.plain->size;
    return {{files_.numbers.at(tensor.file), tensor.offset + unit.plain->begin, size, 0}};
  }
  std::vector<PlacedRange> planes;
  size = 0;
  const PackedFile::Layer& layer = file_.layers()[unit.layer];
  const std::string entry = entry_name(layer.name, layer.experts, unit.expert) + '.';
  for (const PackedPlane& packed : packed_planes(layer.shape)) {
    const Tensor* tensor = packed_.find(entry + packed.leaf);
    if (tensor == nullptr) continue;
    planes.push_back({files_.numbers.at(packed_.path_of(*tensor)), tensor->offset, tensor->bytes, size});
    size = (size + tensor->bytes + DeviceWeight::alignment - 1) / DeviceWeight::alignment * DeviceWeight::alignment;
  }
  return planes;
}

LoadJob PackedJob::job() {
  LoadJob job;
  job.files = files_;
  std::vector<std::size_t> left;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    if (unit.done) continue;
    left.push_back(u);
    io::StagedUnit& staged = job.units.emplace_back();
    std::uint64_t size = 0;
    for (const PlacedRange& plane : planes_of(unit, size)) staged.ranges.push_back({plane.file, plane.offset, plane.size});
    if (unit.plain || file_.layers()[unit.layer].bias.empty()) continue;
    const PackedFile::Layer& layer = file_.layers()[unit.layer];
    const Tensor& bias = *packed_.find(layer.bias);
    const std::uint64_t bytes = static_cast<std::uint64_t>(layer.shape.n) * sizeof(float);
    staged.ranges.push_back(
        {job.files.numbers.at(packed_.path_of(bias)), bias.offset + static_cast<std::uint64_t>(unit.expert) * bytes, bytes});
  }
  job.describe = [this, paths = job.files.paths](std::size_t file, std::uint64_t offset) -> std::string {
    for (const Container* container : {&packed_, &plain_file_})
      for (const Tensor& t : container->tensors)
        if (container->path_of(t) == paths[file] && offset >= t.offset && offset - t.offset < t.bytes)
          return fmt::format("tensor '{}'", printable(t.name));
    return {};
  };
  job.process = [this, left = std::move(left)](std::size_t unit, const std::function<void()>& all_read, LoadWorker& worker) {
    return process(units_[left[unit]], all_read, worker);
  };
  return job;
}

namespace {

Status check_sum(const std::string& path, const std::string& what, std::uint64_t expected, std::uint64_t found) {
  if (expected == found) return {};
  return malformed("{}: {}: damaged: checksum {:016x}, expected {:016x}", path, printable(what), found, expected);
}

}  // namespace

Status PackedJob::process_plain(const PlainPart& part, LoadWorker& worker) {
  PartSum sum(part.size);
  SF_TRY(plain_.load(part, worker, [&](std::span<const std::byte> bytes) { sum.add(bytes); }));
  return check_part(part, sum.value());
}

// Compares a tensor's checksum when the last of its parts is there.
Status PackedJob::check_part(const PlainPart& part, std::uint64_t sum) {
  if (sums_ == nullptr) return {};
  const std::lock_guard lock(sums_mutex_);
  PartSums& parts = part_sums_[part.tensor];
  parts.sums[static_cast<std::size_t>(part.begin / kPlainBytes)] = sum;
  if (--parts.missing > 0) return {};
  const TensorInfo& tensor = plain_.info(part.tensor);
  return check_sum(tensor.file, tensor.name, sums_->tensors[part.tensor], sum_of_parts(parts.sums));
}

Status PackedJob::process(const Unit& unit, const std::function<void()>& all_read, LoadWorker& worker) {
  if (unit.plain) return process_plain(*unit.plain, worker);
  LoadedLayer& layer = model_.layers[unit.layer];
  const auto e = static_cast<std::size_t>(unit.expert);
  std::optional<Uploader::Admission> admission;
  std::optional<BufferSlab> chunk;
  if (uploader_ != nullptr) {
    admission.emplace(*uploader_, file_.layers()[unit.layer].bytes / layer.weights.size(), 0);
    SF_ASSIGN(const std::span<std::byte> memory, uploader_->chunk(worker.number));
    chunk.emplace(memory);
  }
  const SlabScope scope(chunk ? *chunk : worker.slab);
  SF_ASSIGN(PackedWeight weight, file_.load(unit.layer, unit.expert));
  SF_ASSIGN(const auto bias, file_.load_bias(unit.layer, unit.expert));
  all_read();
  const auto n = static_cast<std::size_t>(weight.view.n);
  if (bias) std::copy(bias->begin(), bias->end(), layer.bias.begin() + static_cast<std::ptrdiff_t>(e * n));
  if (sums_ != nullptr) {
    SF_TRY(check_sum(file_.path(), entry_name(layer.name, layer.experts, unit.expert), sums_->weights[unit.layer][e],
                     sum_of(weight, bias ? bias->data() : nullptr, bias ? bias->size() : 0)));
  }
  if (uploader_ == nullptr) {
    layer.weights[e] = std::move(weight);
  } else if (unit.done) {  // it came from there
    SF_ASSIGN(const Device device, uploader_->device());
    SF_ASSIGN(layer.device_weights[e], DeviceWeight::at(weight.view, device, unit.place, DeviceWeight::bytes(weight.view)));
  } else {
    SF_ASSIGN(layer.device_weights[e], uploader_->upload(worker.number, weight, unit.place));
  }
  return {};
}

namespace {

// What a unit reads of its planes comes from its place on the device.
class FetchedPlanes final : public io::ByteSource {
 public:
  FetchedPlanes(Uploader& uploader, unsigned worker, const std::byte* place, const JobFiles& files, std::vector<PlacedRange> planes)
      : uploader_(uploader), worker_(worker), place_(place), files_(files), planes_(std::move(planes)) {}
  Status read(std::size_t file, std::uint64_t offset, std::size_t size, void* out) const override {
    for (const PlacedRange& plane : planes_) {
      if (plane.file != file || offset < plane.offset || offset + size > plane.offset + plane.size) continue;
      return uploader_.fetch(worker_, static_cast<std::byte*>(out), place_ + plane.place + (offset - plane.offset), size);
    }
    SF_ASSIGN(const auto opened, io::File::open(files_.paths[file]));  // a bias
    const auto missing = io::missing_from_cache(opened->fd(), offset, size);
    Status status = opened->read(offset, size, out);
    io::drop_from_cache(opened->fd(), missing);
    return status;
  }

 private:
  Uploader& uploader_;
  const unsigned worker_;
  const std::byte* const place_;
  const JobFiles& files_;
  const std::vector<PlacedRange> planes_;
};

}  // namespace

Status PackedJob::process_direct(DirectFiles& files, Unit& unit, LoadWorker& worker) {
  std::uint64_t size = 0;
  std::vector<PlacedRange> planes = planes_of(unit, size);
  {
    SF_ASSIGN(const Device device, uploader_->device());
    std::optional<CurrentDevice> current;
    if (device.kind == Device::Kind::cuda) SF_TRY(current.emplace(device).status());
    for (const PlacedRange& plane : planes)
      if (!files.read(plane.file, plane.offset, static_cast<std::size_t>(plane.size), unit.place + plane.place)) return {};
  }
  unit.done = true;
  if (!unit.plain) {
    const FetchedPlanes source(*uploader_, worker.number, unit.place, files_, std::move(planes));
    const io::ReadScope scope(source, files_.numbers);
    return process(
        unit, [] {}, worker);
  }
  PartSum sum(size);
  SF_ASSIGN(const std::span<std::byte> chunk, uploader_->chunk(worker.number));
  for (std::uint64_t at = 0; at < size; at += chunk.size()) {
    const std::span<std::byte> piece = chunk.first(static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), size - at)));
    SF_TRY(uploader_->fetch(worker.number, piece.data(), unit.place + at, piece.size()));
    sum.add(piece);
  }
  return check_part(*unit.plain, sum.value());
}

Status PackedJob::read_direct(DirectFiles& files, const LoadOptions& options, LoadReport& report) {
  LoadJob job;
  for (Unit& unit : units_) {
    std::uint64_t size = 0;
    io::StagedUnit& counted = job.units.emplace_back();  // for progress
    for (const PlacedRange& plane : planes_of(unit, size)) counted.ranges.push_back({0, plane.offset, plane.size});
    SF_ASSIGN(unit.place, place_of(unit, size));
  }
  for (const std::span<std::byte> memory : uploader_->memory()) files.add_memory(memory);
  job.process = [&](std::size_t unit, const std::function<void()>&, LoadWorker& worker) {
    return files.works() ? process_direct(files, units_[unit], worker) : Status();
  };
  SF_TRY(run_unstaged_job(job, options));
  for (std::size_t u = 0; u < units_.size(); ++u)
    for (const io::StagedRange& r : job.units[u].ranges) report.direct_bytes += units_[u].done ? r.size : 0;
  return {};
}

// On the device.
Result<std::byte*> PackedJob::place_of(const Unit& unit, std::uint64_t size) {
  if (!unit.plain) return uploader_->reserve(size);
  LoadWorker nobody;
  SF_ASSIGN(std::byte* const tensor, plain_.place(unit.plain->tensor, nobody));
  return tensor + unit.plain->begin;
}

Status PackedJob::take(LoadedModel& model) {
  model.layers = std::move(model_.layers);
  model.tensors = plain_.take();
  if (uploader_ == nullptr) return {};
  for (LoadedLayer& layer : model.layers) layer.weights.clear();
  return uploader_->finish(model);
}

}  // namespace swordfish
