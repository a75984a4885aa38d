// Planning a load: the ranges of each layer's tensors, then the order.
#include "load/plan.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"

namespace swordfish {
namespace {

constexpr std::size_t kTask = 256;  // layers that a thread plans at a time: one takes about 2 us

class Planner {
 public:
  Planner(const std::string& path, const std::vector<TensorInfo>& tensors, const JobFiles& files,
          const std::vector<LayerInfo>& layers, const PackOptions& pack, const Rank& rank)
      : path_(path), tensors_(tensors), files_(files), layers_(layers), pack_(pack), rank_(rank), used_(tensors.size(), false) {
    index_.reserve(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) index_.emplace(tensors[t].name, t);
  }

  Result<LoadPlan> run() {
    const std::vector<bool> held = held_layers(layers_, rank_);
    plan_.cuts.resize(layers_.size());
    if (!layers_.empty() || !pack_.layers.empty()) {
      SF_ASSIGN(PackUnits chosen, choose_units(path_, layers_, pack_));
      plan_.notes = std::move(chosen.notes);
      std::erase_if(chosen.units, [&](const PackUnit& unit) { return !held[unit.members.front()]; });
      plan_.pack_units = std::move(chosen.units);
    }
    SF_TRY(find_tensors());
    std::vector<Result<Part>> parts(plan_.pack_units.size(), Part());
    parallel_each(parts.size(), kTask, [&](std::size_t u) { parts[u] = plan_weight(u); });
    for (Result<Part>& part : parts) {
      SF_TRY(part.status());
      add(std::move(part).value());
    }
    if (pack_.layers.empty()) add_plain();
    sort();
    for (const LoadUnit& unit : plan_.units) plan_.bytes += unit.bytes;
    return std::move(plan_);
  }

 private:
  // What one packed layer adds to the plan.
  struct Part {
    std::vector<LoadUnit> units;
    std::vector<io::StagedRange> skipped;
    std::uint64_t strided_bytes = 0, strided_tensors = 0;
  };

  // The numbers of each layer's tensors, its bias among them.
  Status find_tensors() {
    of_layer_.resize(layers_.size());
    parallel_each(layers_.size(), kTask, [&](std::size_t l) {
      std::vector<std::size_t>& numbers = of_layer_[l];
      for (const std::string& tensor : layers_[l].tensors) numbers.push_back(find(tensor));
      if (!layers_[l].bias.empty()) numbers.push_back(find(layers_[l].bias));
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    });
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      for (const std::size_t number : of_layer_[l]) {
        if (number == kMissing) return missing(layers_[l]);
        used_[number] = true;
      }
    }
    return {};
  }

  static constexpr std::size_t kMissing = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? kMissing : found->second;
  }
  Status missing(const LayerInfo& layer) const {
    const auto first = std::find_if(layer.tensors.begin(), layer.tensors.end(),
                                    [&](const std::string& tensor) { return find(tensor) == kMissing; });
    return malformed("{}: missing tensor '{}' of layer '{}'", path_, printable(first == layer.tensors.end() ? layer.bias : *first),
                     printable(layer.name));
  }

  std::size_t file_of(const TensorInfo& tensor) const { return files_.numbers.at(tensor.file); }

  // Called from several threads; cuts of different layers lie apart.
  Result<Part> plan_weight(std::size_t number) {
    Part part;
    const PackUnit& pack = plan_.pack_units[number];
    for (const std::size_t m : pack.members) {
      SF_ASSIGN(plan_.cuts[m], cut_layer(layers_[m], rank_));
    }
    const std::int64_t experts = layers_[pack.members.front()].experts;
    const auto [first, last] = experts == 0 ? std::pair{std::int64_t{0}, std::int64_t{1}} : expert_range(experts, rank_);
    for (std::int64_t e = first; e < last; ++e) {
      LoadUnit unit;
      unit.pack_unit = number;
      unit.expert = e;
      for (const std::size_t m : pack.members) {
        for (const std::size_t t : of_layer_[m]) add_tensor(layers_[m], plan_.cuts[m], tensors_[t], e, unit, part);
      }
      part.units.push_back(std::move(unit));
    }
    return part;
  }

  void add(Part part) {
    std::move(part.units.begin(), part.units.end(), std::back_inserter(plan_.units));
    plan_.skipped.insert(plan_.skipped.end(), part.skipped.begin(), part.skipped.end());
    plan_.strided_bytes += part.strided_bytes;
    plan_.strided_tensors += part.strided_tensors;
  }

  // The ranges of one tensor (of one expert of it) that the cut needs.
  void add_tensor(const LayerInfo& layer, const LayerCut& cut, const TensorInfo& tensor, std::int64_t expert, LoadUnit& unit,
                  Part& part) const {
    const bool stacked = layer.experts > 0 && !tensor.shape.empty() && tensor.shape.front() == layer.experts;
    std::vector<AxisRange> whole;
    if (stacked) whole.push_back({0, expert, expert + 1});
    const std::vector<io::ByteRange> asked = slice_runs(tensor.shape, tensor.bytes, whole, 0);  // by the format: one run

    const std::span<const std::int64_t> shape = std::span(tensor.shape).subspan(stacked ? 1 : 0);
    const TensorAxes axes = axes_of(layer, tensor.name, shape);
    const auto add = [&](std::vector<AxisRange>& ranges, int axis, std::int64_t step, std::int64_t begin, std::int64_t size,
                         std::int64_t all) {
      if (axis < 0 || size == all) return;
      ranges.push_back({static_cast<std::size_t>(axis) + (stacked ? 1 : 0), begin / step, (begin + size + step - 1) / step});
    };
    // Where columns are sorted by g_idx, a column's scale can lie anywhere.
    const bool scattered =
        std::any_of(layer.tensors.begin(), layer.tensors.end(), [](const std::string& name) { return name.ends_with("g_idx"); });
    if (!scattered || tensor.name.ends_with("weight") || tensor.name.ends_with("packed"))
      add(whole, axes.k_axis, axes.k_step, cut.k0, cut.k, layer.k);

    std::vector<io::ByteRange> exact, runs;
    for (const LayerCut::Rows& rows : cut.rows) {
      std::vector<AxisRange> ranges = whole;
      add(ranges, axes.n_axis, axes.n_step, rows.n0, rows.n, layer.n);
      const auto append = [&](std::vector<io::ByteRange>& to, std::uint64_t min_run) {
        const std::vector<io::ByteRange> more = slice_runs(tensor.shape, tensor.bytes, ranges, min_run);
        to.insert(to.end(), more.begin(), more.end());
      };
      append(exact, 0);
      append(runs, kShortestRun);
    }
    exact = merge_runs(std::move(exact));
    runs = merge_runs(std::move(runs));
    const std::uint64_t extra = total_bytes(runs) - total_bytes(exact);
    part.strided_bytes += extra;
    part.strided_tensors += extra > 0;
    for (const io::ByteRange& run : runs) {
      unit.ranges.push_back({file_of(tensor), tensor.offset + run.offset, run.size});
      unit.bytes += run.size;
    }
    for (const io::ByteRange& one : asked) skip_between(tensor, one, runs, part.skipped);
  }

  void skip_between(const TensorInfo& tensor, const io::ByteRange& whole, const std::vector<io::ByteRange>& runs,
                    std::vector<io::StagedRange>& skipped) const {
    std::uint64_t at = whole.offset;
    for (const io::ByteRange& run : runs) {
      if (run.offset > at) skipped.push_back({file_of(tensor), tensor.offset + at, run.offset - at});
      at = std::max(at, run.end());
    }
    if (at < whole.end()) skipped.push_back({file_of(tensor), tensor.offset + at, whole.end() - at});
  }

  // What belongs to no layer: one unit for each part; sort() joins neighbours.
  void add_plain() {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      if (used_[t]) continue;
      const TensorInfo& tensor = tensors_[t];
      for (const PlainPart& part : plain_parts(plan_.plain.size(), tensor.offset, tensor.bytes)) {
        LoadUnit unit;
        unit.plain = {part};
        unit.bytes = part.size;
        unit.ranges = {{file_of(tensor), tensor.offset + part.begin, part.size}};
        plan_.units.push_back(std::move(unit));
      }
      plan_.plain.push_back(t);
    }
  }

  // By the place of each unit's largest range: codes, beside which scales and globals are small. Then plain neighbours become one.
  void sort() {
    const auto place = [](const LoadUnit& unit) {
      const auto largest =
          std::max_element(unit.ranges.begin(), unit.ranges.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
      return largest == unit.ranges.end() ? std::tuple<std::size_t, std::uint64_t>{} : std::tuple(largest->file, largest->offset);
    };
    std::stable_sort(plan_.units.begin(), plan_.units.end(),
                     [&](const LoadUnit& a, const LoadUnit& b) { return place(a) < place(b); });
    std::vector<LoadUnit> merged;
    for (LoadUnit& unit : plan_.units) {
      LoadUnit* last = merged.empty() ? nullptr : &merged.back();
      if (last != nullptr && !unit.pack_unit && !last->pack_unit && last->bytes + unit.bytes <= kPlainBytes) {
        last->plain.push_back(unit.plain.front());
        last->ranges.push_back(unit.ranges.front());
        last->bytes += unit.bytes;
      } else {
        merged.push_back(std::move(unit));
      }
    }
    plan_.units = std::move(merged);
  }

  const std::string& path_;
  const std::vector<TensorInfo>& tensors_;
  const JobFiles& files_;
  const std::vector<LayerInfo>& layers_;
  const PackOptions& pack_;
  const Rank& rank_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<bool> used_;  // by some layer
  std::vector<std::vector<std::size_t>> of_layer_;
  LoadPlan plan_;
};

}  // namespace

JobFiles files_of(const std::vector<TensorInfo>& tensors) {
  JobFiles files;
  for (const TensorInfo& tensor : tensors) files.add(tensor.file);
  return files;
}

std::string tensor_at(const std::vector<TensorInfo>& tensors, const std::string& path, std::uint64_t offset) {
  for (const TensorInfo& t : tensors)
    if (t.file == path && offset >= t.offset && offset - t.offset < t.bytes) return fmt::format("tensor '{}'", printable(t.name));
  return {};
}

Result<LoadPlan> plan_load(const std::string& path, const std::vector<TensorInfo>& tensors, const JobFiles& files,
                           const std::vector<LayerInfo>& layers, const PackOptions& pack, const Rank& rank) {
  return Planner(path, tensors, files, layers, pack, rank).run();
}

}  // namespace swordfish
