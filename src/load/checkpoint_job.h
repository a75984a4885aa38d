// Loading a checkpoint: each unit's layers are read through their format, cut to this rank, and packed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "load/job.h"
#include "load/plain_tensors.h"
#include "load/plan.h"
#include "load/uploader.h"
#include "swordfish/load.h"

namespace swordfish {

class CheckpointJob {
 public:
  // `checkpoint` and `options` outlive the job.
  static Result<std::unique_ptr<CheckpointJob>> open(const Checkpoint& checkpoint, const LoadOptions& options);
  // Everything goes there instead of host memory. Before a run; outlives the job.
  void upload_to(Uploader& uploader);
  const LoadPlan& plan() const { return plan_; }
  const JobFiles& files() const { return files_; }
  LoadJob job();
  // After a run: the layers in the checkpoint's order, and the notes.
  Status take(LoadedModel& model);
  double pack_seconds() const { return pack_seconds_.sum(); }

 private:
  CheckpointJob(const Checkpoint& checkpoint, const LoadOptions& options) : checkpoint_(checkpoint), options_(options) {}
  // What a unit became: one weight, or one for each member that did not fit the others.
  struct Done {
    std::vector<PackedWeight> weights;                    // in host memory, or
    std::vector<DeviceWeight> device_weights;             // on a GPU
    std::vector<std::optional<std::vector<float>>> bias;  // of each member
  };

  bool is_whole(std::size_t layer) const;  // this rank's cut of it
  Result<std::vector<QuantTensor>> read_parts(const LoadUnit& unit, BufferSlab& scratch, Done& done) const;
  Status process(std::size_t unit, const std::function<void()>& all_read, LoadWorker& worker);
  Status pack_into(BufferSlab& slab, const LoadUnit& unit, const std::vector<QuantTensor>& parts, Done& done);

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  Uploader* uploader_ = nullptr;
  JobFiles files_;
  LoadPlan plan_;
  std::vector<Done> done_;  // of each unit
  PlainTensors plain_;
  std::mutex notes_mutex_;
  SharedSeconds pack_seconds_;
};

}  // namespace swordfish
