// Places that the first part makes, and parts that are read into them.
#include "load/plain_tensors.h"

#include <algorithm>

#include "base/try.h"
#include "io/staging_plan.h"

namespace swordfish {

std::vector<PlainPart> plain_parts(std::size_t tensor, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<PlainPart> parts;
  const std::uint64_t end = offset + bytes;
  std::uint64_t at = offset;
  do {
    const std::uint64_t until = std::min(end, (at + kPlainBytes) / io::kPage * io::kPage);
    parts.push_back({tensor, at - offset, until - at});
    at = until;
  } while (at < end);
  return parts;
}

Status PlainTensors::open(const std::vector<TensorInfo>& tensors) {
  for (const TensorInfo& info : tensors) {
    std::shared_ptr<const io::File>& file = files_[info.file];
    if (!file) {
      SF_ASSIGN(file, io::File::open(info.file));
    }
    LoadedTensor& tensor = tensors_.emplace_back();
    tensor.info = info;
  }
  places_.resize(tensors.size());
  return {};
}

Result<std::byte*> PlainTensors::place(std::size_t number, LoadWorker& worker) {
  const std::lock_guard lock(mutex_);
  std::byte*& place = places_[number];
  if (place != nullptr) return place;
  LoadedTensor& tensor = tensors_[number];
  if (uploader_ == nullptr) {
    const SlabScope scope(worker.slab);
    tensor.bytes = Buffer(static_cast<std::size_t>(tensor.info.bytes));
    place = tensor.bytes.data();
  } else {
    SF_ASSIGN(place, uploader_->reserve(tensor.info.bytes));
    tensor.device = place;
  }
  return place;
}

Status PlainTensors::load(const PlainPart& part, LoadWorker& worker, const Uploader::Seen& seen) {
  const TensorInfo& tensor = info(part.tensor);
  const io::File& file = *files_.at(tensor.file);
  SF_ASSIGN(std::byte* const to, place(part.tensor, worker));
  const std::uint64_t from = tensor.offset + part.begin;
  if (uploader_ != nullptr) return uploader_->upload(worker.number, file, from, part.size, to + part.begin, seen);
  const auto size = static_cast<std::size_t>(part.size);
  SF_TRY(file.read(from, size, to + part.begin));
  if (seen) seen({to + part.begin, size});
  return {};
}

}  // namespace swordfish
