// PlainTensors: what belongs to no layer and is loaded as stored, in parts, so that all threads copy a large tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/file.h"
#include "load/job.h"
#include "load/uploader.h"
#include "swordfish/load.h"

namespace swordfish {

struct PlainPart {
  std::size_t tensor = 0;  // its number among the plain ones
  std::uint64_t begin = 0, size = 0;
};

// Of one part, or of several small tensors that are loaded together.
inline constexpr std::uint64_t kPlainBytes = std::uint64_t{8} << 20;

// The parts of a tensor of `bytes` bytes, one at least; they end at whole pages of a file in which it begins at `offset`.
std::vector<PlainPart> plain_parts(std::size_t tensor, std::uint64_t offset, std::uint64_t bytes);

class PlainTensors {
 public:
  Status open(const std::vector<TensorInfo>& tensors);
  // They go there instead of host memory. Before the first part; outlives them.
  void upload_to(Uploader& uploader) { uploader_ = &uploader; }
  const TensorInfo& info(std::size_t tensor) const { return tensors_[tensor].info; }
  // Where its bytes go; made when it is first asked for. Thread-safe, like load().
  Result<std::byte*> place(std::size_t tensor, LoadWorker& worker);
  // Reads a part (through File, which is served from the ring); `seen`, if set, is called with its bytes, in order.
  Status load(const PlainPart& part, LoadWorker& worker, const Uploader::Seen& seen = {});
  // When every part of every tensor has been loaded.
  std::vector<LoadedTensor> take() { return std::move(tensors_); }

 private:
  Uploader* uploader_ = nullptr;
  std::map<std::string, std::shared_ptr<const io::File>> files_;
  std::vector<LoadedTensor> tensors_;
  std::mutex mutex_;
  std::vector<std::byte*> places_;  // null: not made
};

}  // namespace swordfish
