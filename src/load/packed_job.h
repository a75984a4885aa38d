// Loading what is packed already: a file of packed weights, and beside it (in a packed cache) plain tensors and checksums.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/container.h"
#include "load/job.h"
#include "load/uploader.h"
#include "swordfish/load.h"
#include "swordfish/pack.h"

namespace swordfish {

// Checksums (XXH3, 64 bits) of everything that is loaded; without them nothing is compared.
struct PackedSums {
  std::vector<std::vector<std::uint64_t>> weights;  // of each layer's entries: planes and bias
  std::vector<std::uint64_t> tensors;
};
std::uint64_t sum_of(const PackedWeight& weight, const float* bias, std::size_t bias_size);
// Of a plain tensor of `size` bytes, part by part.
class TensorSum {
 public:
  explicit TensorSum(std::uint64_t size);
  ~TensorSum();
  TensorSum(const TensorSum&) = delete;
  TensorSum& operator=(const TensorSum&) = delete;
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class PackedJob {
 public:
  // `plain`: a safetensors file of plain tensors, or empty. `sums` outlives the job.
  static Result<std::unique_ptr<PackedJob>> open(const std::string& packed, const std::string& plain, const PackedSums* sums);
  // Everything goes there instead of host memory. Before a run; outlives the job.
  void upload_to(Uploader& uploader);
  LoadJob job();
  // After a run: the layers and tensors that were read. PackedJob is then of no further use.
  Status take(LoadedModel& model);

 private:
  PackedJob(PackedFile file, Container packed, Container plain, const PackedSums* sums)
      : file_(std::move(file)), packed_(std::move(packed)), plain_(std::move(plain)), sums_(sums) {}
  Status process_plain(std::size_t tensor, LoadWorker& worker);
  Status process(std::size_t unit, const std::function<void()>& all_read, LoadWorker& worker);

  struct Unit {
    bool plain = false;
    std::size_t layer = 0;  // or the first tensor
    std::int64_t expert = 0;
  };
  PackedFile file_;
  Container packed_;  // where file_'s planes lie
  Container plain_;
  const PackedSums* sums_;
  Uploader* uploader_ = nullptr;
  std::vector<Unit> units_;
  LoadedModel model_;
};

}  // namespace swordfish
