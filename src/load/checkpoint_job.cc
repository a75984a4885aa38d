// Units of a checkpoint: QuantTensors to packed weights, and tensors that stay as they are.
#include "load/checkpoint_job.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "pack/sm1xx_pack.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;

Result<PackedWeight> pack_parts(std::span<const QuantTensor> parts, const std::string& name, Layout layout) {
  return layout == Layout::mma64_1 ? pack(parts, name, 1) : pack_blockscaled(parts, name, 1);
}

// The dense weight that a part of a layer is of.
const std::string& part_name(const LayerInfo& layer, const LayerCut& cut, std::size_t part) {
  return cut.rows.size() > 1 ? layer.projections[part].weight_name : layer.weight_name;
}
std::string module_of(const std::string& weight) {
  constexpr std::string_view kLeaf = ".weight";
  return weight.ends_with(kLeaf) ? weight.substr(0, weight.size() - kLeaf.size()) : weight;
}

}  // namespace

Result<std::unique_ptr<CheckpointJob>> CheckpointJob::open(const Checkpoint& checkpoint, const LoadOptions& options) {
  std::unique_ptr<CheckpointJob> job(new CheckpointJob(checkpoint, options));
  job->files_ = files_of(checkpoint.tensors());
  PackOptions pack;
  pack.layout = options.layout;
  pack.layers = options.layers;
  pack.fuse = options.fuse;
  const Rank rank{options.rank, options.ranks, options.whole_experts};
  SF_ASSIGN(job->plan_, plan_load(checkpoint.path(), checkpoint.tensors(), job->files_, checkpoint.layers(), pack, rank));
  job->done_.resize(job->plan_.units.size());
  std::vector<TensorInfo> plain;
  for (const std::size_t t : job->plan_.plain) plain.push_back(checkpoint.tensors()[t]);
  SF_TRY(job->plain_.open(plain));
  return job;
}

void CheckpointJob::upload_to(Uploader& uploader) {
  uploader_ = &uploader;
  plain_.upload_to(uploader);
}

LoadJob CheckpointJob::job() {
  LoadJob job;
  job.files = files_;
  for (const LoadUnit& unit : plan_.units) job.units.push_back({unit.ranges});
  job.skipped = plan_.skipped;
  job.describe = [this](std::size_t file, std::uint64_t offset) {
    return tensor_at(checkpoint_.tensors(), files_.paths[file], offset);
  };
  job.process = [this](std::size_t unit, const std::function<void()>& all_read, LoadWorker& worker) {
    return process(unit, all_read, worker);
  };
  return job;
}

bool CheckpointJob::is_whole(std::size_t layer) const {
  return plan_.cuts[layer].n == checkpoint_.layers()[layer].n && plan_.cuts[layer].k == checkpoint_.layers()[layer].k;
}

// The unit's matrices as this rank holds them.
Result<std::vector<QuantTensor>> CheckpointJob::read_parts(const LoadUnit& unit, BufferSlab& scratch, Done& done) const {
  const SlabScope scope(scratch);
  std::vector<QuantTensor> parts;
  for (const std::size_t m : plan_.pack_units[*unit.pack_unit].members) {
    const LayerInfo& info = checkpoint_.layers()[m];
    const LayerCut& cut = plan_.cuts[m];
    SF_ASSIGN(QuantTensor whole, checkpoint_.load(m, unit.expert));
    if (is_whole(m)) {
      parts.push_back(std::move(whole));
    } else {
      for (std::size_t r = 0; r < cut.rows.size(); ++r) {
        SF_ASSIGN(QuantTensor part, slice(whole, cut.rows[r].n0, cut.rows[r].n, 1, cut.k0, cut.k));
        if (cut.rows.size() > 1) part.name = module_of(part_name(info, cut, r));
        parts.push_back(std::move(part));
      }
    }
    SF_ASSIGN(const auto bias, checkpoint_.load_bias(m, unit.expert));
    std::optional<std::vector<float>>& ours = done.bias.emplace_back();
    if (!bias || !cut.bias) continue;
    ours.emplace();
    for (const auto& [n0, n] : cut.rows) ours->insert(ours->end(), bias->begin() + n0, bias->begin() + n0 + n);
  }
  return parts;
}

Status CheckpointJob::process(std::size_t number, const std::function<void()>& all_read, LoadWorker& worker) {
  const LoadUnit& unit = plan_.units[number];
  if (!unit.pack_unit) {
    for (const PlainPart& part : unit.plain) SF_TRY(plain_.load(part, worker));
    return {};
  }
  if (worker.scratch.empty())
    worker.scratch = Buffer(std::min(most_scratch, scratch_bytes / static_cast<std::size_t>(most_workers(options_))));
  std::optional<Uploader::Admission> admission;
  if (uploader_ != nullptr) admission.emplace(*uploader_, unit.bytes, unit.bytes <= worker.scratch.size() ? 0 : unit.bytes);
  Done& done = done_[number];
  BufferSlab scratch({worker.scratch.data(), worker.scratch.size()});
  SF_ASSIGN(const std::vector<QuantTensor> parts, read_parts(unit, scratch, done));
  all_read();
  if (uploader_ == nullptr) return pack_into(worker.slab, unit, parts, done);
  SF_ASSIGN(const std::span<std::byte> chunk, uploader_->chunk(worker.number));
  BufferSlab slab(chunk);
  SF_TRY(pack_into(slab, unit, parts, done));
  for (const PackedWeight& weight : done.weights) {
    SF_ASSIGN(DeviceWeight there, uploader_->upload(worker.number, weight));
    done.device_weights.push_back(std::move(there));
  }
  done.weights.clear();
  return {};
}

Status CheckpointJob::pack_into(BufferSlab& slab, const LoadUnit& unit, const std::vector<QuantTensor>& parts, Done& done) {
  const SlabScope scope(slab);
  const Clock::time_point start = Clock::now();
  const PackUnit& members = plan_.pack_units[*unit.pack_unit];
  Result<PackedWeight> weight = pack_parts(parts, members.name, options_.layout);
  if (weight.ok()) {
    done.weights.push_back(std::move(weight).value());
  } else if (members.members.size() > 1) {
    {
      const std::lock_guard lock(notes_mutex_);
      plan_.notes.push_back(separate_note(checkpoint_.path(), members.name, weight.status().message()));
    }
    std::span<const QuantTensor> left = parts;
    for (const std::size_t m : members.members) {
      const std::size_t own = is_whole(m) ? 1 : plan_.cuts[m].rows.size();
      SF_ASSIGN(PackedWeight alone, pack_parts(left.first(own), checkpoint_.layers()[m].name, options_.layout));
      done.weights.push_back(std::move(alone));
      left = left.subspan(own);
    }
  } else {
    return weight.status();
  }
  pack_seconds_.add(std::chrono::duration<double>(Clock::now() - start).count());
  return {};
}

Status CheckpointJob::take(LoadedModel& model) {
  std::vector<std::vector<std::size_t>> of_weight(plan_.pack_units.size());  // units of each packed layer
  for (std::size_t u = 0; u < plan_.units.size(); ++u)
    if (plan_.units[u].pack_unit) of_weight[*plan_.units[u].pack_unit].push_back(u);
  for (std::size_t w = 0; w < plan_.pack_units.size(); ++w) {
    std::vector<std::size_t>& units = of_weight[w];
    if (units.empty()) continue;  // a stack of which this rank holds no expert
    std::sort(units.begin(), units.end(),
              [&](std::size_t a, std::size_t b) { return plan_.units[a].expert < plan_.units[b].expert; });
    const PackUnit& pack = plan_.pack_units[w];
    const Done& first = done_[units.front()];
    const std::size_t apart = std::max(first.weights.size(), first.device_weights.size());  // 1, or one for each member
    for (std::size_t i = 0; i < apart; ++i) {
      const std::vector<std::size_t> members = apart == 1 ? pack.members : std::vector<std::size_t>{pack.members[i]};
      const LayerInfo& info = checkpoint_.layers()[members.front()];
      LoadedLayer layer;
      layer.name = apart == 1 ? pack.name : info.name;
      layer.scheme = info.scheme;
      for (const std::size_t m : members) {
        const LayerCut& cut = plan_.cuts[m];
        for (std::size_t r = 0; r < cut.rows.size(); ++r) layer.weight_names.push_back(part_name(checkpoint_.layers()[m], cut, r));
      }
      layer.experts = info.experts;
      layer.first_expert = plan_.units[units.front()].expert;
      const auto bias = [&](std::size_t unit, std::size_t member) -> const auto& {
        return done_[unit].bias[apart == 1 ? member : i];
      };
      bool any_bias = false;
      for (const std::size_t u : units) {
        if (uploader_ == nullptr) layer.weights.push_back(std::move(done_[u].weights[i]));
        if (uploader_ != nullptr) layer.device_weights.push_back(std::move(done_[u].device_weights[i]));
        for (std::size_t p = 0; p < members.size(); ++p) any_bias = any_bias || bias(u, p).has_value();
      }
      for (const std::size_t u : units) {
        for (std::size_t p = 0; p < members.size() && any_bias; ++p) {
          const std::vector<float> zeros(static_cast<std::size_t>(plan_.cuts[members[p]].n));
          const std::vector<float> values = bias(u, p).value_or(zeros);
          layer.bias.insert(layer.bias.end(), values.begin(), values.end());
        }
      }
      model.layers.push_back(std::move(layer));
    }
  }
  model.tensors = plain_.take();
  if (uploader_ != nullptr) SF_TRY(uploader_->finish(model));
  model.report.notes.insert(model.report.notes.end(), plan_.notes.begin(), plan_.notes.end());
  return {};
}

}  // namespace swordfish
