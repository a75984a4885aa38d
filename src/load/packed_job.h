// Loading what is packed already: a file of packed weights, and beside it (in a packed cache) plain tensors and checksums.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/container.h"
#include "load/direct.h"
#include "load/job.h"
#include "load/uploader.h"
#include "pack/packed_format.h"
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
  const JobFiles& files() const { return files_; }
  // Reads what it can straight into the device's memory (after upload_to()); job() is then of what is left. What has come is
  // fetched once and checked as if it had been read here.
  Status read_direct(DirectFiles& files, const LoadOptions& options, LoadReport& report);
  LoadJob job();
  // After a run: the layers and tensors that were read. PackedJob is then of no further use.
  Status take(LoadedModel& model);

 private:
  PackedJob(PackedFile file, Container plain, const PackedSums* sums)
      : file_(std::move(file)), packed_(PackedFileAccess::tensors(file_)), plain_(std::move(plain)), sums_(sums) {}
  struct Unit {
    bool plain = false;
    std::size_t layer = 0;  // or the tensor
    std::int64_t expert = 0;
    std::byte* place = nullptr;  // on the device, once reserved
    bool done = false;           // read straight into it
  };
  // A tensor of a unit, and where it goes from the unit's place on.
  struct UnitPlane {
    const Container* container = nullptr;
    const Tensor* tensor = nullptr;
    std::uint64_t place = 0;
  };
  std::vector<UnitPlane> planes_of(const Unit& unit, std::uint64_t& size) const;
  Status process_plain(const Unit& unit, LoadWorker& worker);
  Status process(const Unit& unit, const std::function<void()>& all_read, LoadWorker& worker);
  Status process_direct(DirectFiles& files, Unit& unit, LoadWorker& worker);
  PackedFile file_;
  const Container& packed_;  // where file_'s planes lie
  const Container plain_;
  JobFiles files_;
  const PackedSums* sums_;
  Uploader* uploader_ = nullptr;
  std::vector<Unit> units_;
  LoadedModel model_;
};

}  // namespace swordfish
