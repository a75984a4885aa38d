// Loading what is packed already: a file of packed weights, and beside it (in a packed cache) plain tensors and checksums.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/container.h"
#include "load/direct.h"
#include "load/job.h"
#include "load/plain_tensors.h"
#include "load/uploader.h"
#include "pack/packed_format.h"
#include "swordfish/load.h"
#include "swordfish/pack.h"

namespace swordfish {

// Checksums (XXH3, 64 bits) of everything that is loaded; without them nothing is compared.
struct PackedSums {
  std::vector<std::vector<std::uint64_t>> weights;  // of each layer's entries: planes and bias
  std::vector<std::uint64_t> tensors;               // plain ones
};
std::uint64_t sum_of(const PackedWeight& weight, const float* bias, std::size_t bias_size);
// A plain tensor's is one of its parts', which any thread may have made (plain_parts() with offset 0).
std::uint64_t sum_of(std::span<const std::byte> tensor);

// Bytes of a file, and where they go from a unit's place on.
struct PlacedRange {
  std::size_t file = 0;
  std::uint64_t offset = 0, size = 0, place = 0;
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
  PackedJob(PackedFile file, Container plain_file, const PackedSums* sums)
      : file_(std::move(file)), packed_(PackedFileAccess::tensors(file_)), plain_file_(std::move(plain_file)), sums_(sums) {}
  struct Unit {
    std::optional<PlainPart> plain;  // else an entry:
    std::size_t layer = 0;
    std::int64_t expert = 0;
    std::byte* place = nullptr;  // on the device, once reserved
    bool done = false;           // read straight into it
  };
  struct PartSums {
    std::vector<std::uint64_t> sums;
    std::size_t missing = 0;
  };
  std::vector<PlacedRange> planes_of(const Unit& unit, std::uint64_t& size) const;
  Status process_plain(const PlainPart& part, LoadWorker& worker);
  Status check_part(const PlainPart& part, std::uint64_t sum);
  Status process(const Unit& unit, const std::function<void()>& all_read, LoadWorker& worker);
  Result<std::byte*> place_of(const Unit& unit, std::uint64_t size);
  Status process_direct(DirectFiles& files, Unit& unit, LoadWorker& worker);
  PackedFile file_;
  const Container& packed_;  // where file_'s planes lie
  const Container plain_file_;
  JobFiles files_;
  const PackedSums* sums_;
  Uploader* uploader_ = nullptr;
  std::vector<Unit> units_;
  LoadedModel model_;  // its layers
  PlainTensors plain_;
  std::mutex sums_mutex_;
  std::vector<PartSums> part_sums_;  // of each plain tensor
};

}  // namespace swordfish
