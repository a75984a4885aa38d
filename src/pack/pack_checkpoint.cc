// pack_checkpoint(): load one matrix, pack it, write it, drop it; then the next.
#include "pack/pack_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "formats/patterns.h"
#include "pack/packed_writer.h"
#include "pack/sm1xx_pack.h"

namespace swordfish {
namespace {

// What becomes one packed weight: a layer, or the parts of a fused module.
struct Unit {
  std::string name;
  std::vector<std::size_t> members;  // indices of layers
};

class Seconds {
 public:
  explicit Seconds(double& sum) : sum_(sum) {}
  ~Seconds() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Seconds(const Seconds&) = delete;
  Seconds& operator=(const Seconds&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Whether headers alone allow packing `b` with `a`; pack() decides about what only the contents tell.
bool may_fuse(const LayerInfo& a, const LayerInfo& b) {
  return a.k == b.k && a.code == b.code && a.group_size == b.group_size && a.scale_type == b.scale_type && a.experts == 0 &&
         b.experts == 0;
}

class CheckpointPacker {
 public:
  CheckpointPacker(const LayerSource& source, const PackOptions& options, bool (*progress)(std::uint64_t, std::uint64_t, void*),
                   void* user)
      : source_(source), layers_(*source.layers), options_(options), progress_(progress), user_(user) {}

  Result<PackReport> run(const std::string& out) {
    SF_TRY(choose());
    std::vector<PackedWriter::Layer> announced;
    for (const Unit& unit : units_) {
      announced.push_back(describe(unit));
      if (unit.members.size() == 1) continue;
      for (const std::size_t layer : unit.members)
        announced.push_back(describe({layers_[layer].name, {layer}}));  // if they do not fit
    }
    SF_ASSIGN(PackedWriter writer, PackedWriter::create(out, options_.force, announced, options_.layout));
    SF_TRY(report_progress());
    for (const Unit& unit : units_) SF_TRY(pack_unit(unit, writer));
    for (const Unit& unit : written_) SF_TRY(write_bias(unit, writer));
    report_.layers = static_cast<std::int64_t>(written_.size());
    report_.packed_bytes = writer.data_bytes();
    {
      const Seconds timer(report_.write_seconds);
      SF_TRY(writer.finish());
    }
    return std::move(report_);
  }

 private:
  std::int64_t entries(std::size_t layer) const { return std::max<std::int64_t>(1, layers_[layer].experts); }

  // Selects layers by the pattern and groups the parts of fused modules, in file order.
  Status choose() {
    std::vector<std::size_t> selected;
    if (options_.layers.empty()) {
      for (std::size_t i = 0; i < layers_.size(); ++i) selected.push_back(i);
      if (selected.empty()) return unavailable("{}: no quantized layer that could be packed", source_.path);
    } else {
      SF_ASSIGN(const Pattern pattern, Pattern::compile(options_.layers, "layers"));
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        SF_ASSIGN(const bool found, pattern.search(layers_[i].name));
        if (found) selected.push_back(i);
      }
      if (selected.empty()) return invalid_argument("{}: no layer's name matches '{}'", source_.path, options_.layers);
    }
    if (options_.layout == Layout::sm1xx_blockscaled_1) {
      std::erase_if(selected, [&](std::size_t i) {
        if (layers_[i].code == CodeType::fp4) return false;
        report_.notes.push_back(fmt::format("{}: {}: {} codes are not packed in layout {}", source_.path, layers_[i].name,
                                            name(layers_[i].code), name(options_.layout)));
        return true;
      });
      if (selected.empty())
        return unavailable("{}: no FP4 layer, which is all that layout {} holds", source_.path, name(options_.layout));
    }
    std::map<std::string, std::size_t> parts;  // of each fused module, in the whole checkpoint
    for (const LayerInfo& layer : layers_) ++parts[layer.fused_into];
    std::map<std::string, std::vector<std::size_t>> groups;  // the selected ones
    for (const std::size_t i : selected) groups[layers_[i].fused_into].push_back(i);
    for (const std::size_t i : selected) {
      total_ += layers_[i].bytes;
      const std::string& fused = layers_[i].fused_into;
      const std::vector<std::size_t>& group = groups[fused];
      const bool whole = options_.fuse && !fused.empty() && group.size() > 1 && group.size() == parts[fused];
      const bool fits =
          whole && std::all_of(group.begin(), group.end(), [&](std::size_t m) { return may_fuse(layers_[i], layers_[m]); });
      if (whole && !fits && i == group.front()) note_separate(fused, "shape, type or groups differ");
      if (!fits) {
        units_.push_back({layers_[i].name, {i}});
      } else if (i == group.front()) {  // the others go with the first
        units_.push_back({fused, group});
        std::sort(units_.back().members.begin(), units_.back().members.end(),
                  [&](std::size_t m, std::size_t n) { return layers_[m].fused_index < layers_[n].fused_index; });
      }
    }
    return {};
  }

  void note_separate(const std::string& fused, const std::string& reason) {
    report_.notes.push_back(fmt::format("{}: {}: its parts are packed apart: {}", source_.path, fused, reason));
  }

  PackedWriter::Layer describe(const Unit& unit) const {
    const LayerInfo& first = layers_[unit.members.front()];
    PackedWriter::Layer layer{unit.name, first.scheme, first.code, first.k, first.experts, false, {}};
    for (const std::size_t m : unit.members) {
      layer.may_have_bias |= !layers_[m].bias.empty();
      layer.parts.push_back({layers_[m].name, layers_[m].weight_name, layers_[m].n});
    }
    return layer;
  }

  Status report_progress() const {
    if (progress_ == nullptr || progress_(report_.source_bytes, total_, user_)) return {};
    return {Code::cancelled, fmt::format("{}: packing was cancelled", source_.path)};
  }

  Result<std::vector<QuantTensor>> load(const Unit& unit, std::int64_t expert) {
    const Seconds timer(report_.read_seconds);
    std::vector<QuantTensor> parts;
    for (const std::size_t m : unit.members) {
      SF_ASSIGN(QuantTensor part, source_.load(m, expert));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  Result<PackedWeight> pack_parts(std::span<const QuantTensor> parts, const std::string& name) {
    const Seconds timer(report_.pack_seconds);
    return options_.layout == Layout::mma64_1 ? pack(parts, name, options_.threads)
                                              : pack_blockscaled(parts, name, options_.threads);
  }

  Status write(const Unit& unit, std::int64_t expert, const PackedWeight& weight, PackedWriter& writer) {
    const Seconds timer(report_.write_seconds);
    return writer.add_entry(describe(unit), expert, weight);
  }

  // Packs a unit; parts that turn out not to fit are packed one by one.
  Status pack_unit(const Unit& unit, PackedWriter& writer) {
    for (std::int64_t e = 0; e < entries(unit.members.front()); ++e) {
      {
        SF_ASSIGN(std::vector<QuantTensor> parts, load(unit, e));
        Result<PackedWeight> weight = pack_parts(parts, unit.name);
        if (!weight.ok() && unit.members.size() > 1) {
          note_separate(unit.name, weight.status().message());
          parts.clear();
          for (const std::size_t m : unit.members) SF_TRY(pack_unit({layers_[m].name, {m}}, writer));
          return {};
        }
        if (!weight.ok()) return weight.status();
        parts.clear();  // the source goes before the write
        SF_TRY(write(unit, e, *weight, writer));
      }
      for (const std::size_t m : unit.members) report_.source_bytes += layers_[m].bytes / static_cast<std::uint64_t>(entries(m));
      SF_TRY(report_progress());
    }
    written_.push_back(unit);
    return {};
  }

  // The biases of all parts (zeros for a part without) and experts; nothing when all are absent.
  Status write_bias(const Unit& unit, PackedWriter& writer) {
    const PackedWriter::Layer layer = describe(unit);
    if (!layer.may_have_bias) return {};
    std::vector<float> values;
    bool any = false;
    for (std::int64_t e = 0; e < entries(unit.members.front()); ++e) {
      for (const std::size_t m : unit.members) {
        std::optional<std::vector<float>> bias;
        if (!layers_[m].bias.empty()) {
          const Seconds timer(report_.read_seconds);
          SF_ASSIGN(bias, source_.load_bias(m, e));
        }
        any |= bias.has_value();
        if (!bias) bias.emplace(static_cast<std::size_t>(layers_[m].n));
        values.insert(values.end(), bias->begin(), bias->end());
      }
    }
    if (!any) return {};
    const Seconds timer(report_.write_seconds);
    return writer.add_bias(layer, values);
  }

  const LayerSource& source_;
  const std::vector<LayerInfo>& layers_;
  const PackOptions& options_;
  bool (*progress_)(std::uint64_t, std::uint64_t, void*);
  void* user_;
  std::vector<Unit> units_, written_;
  std::uint64_t total_ = 0;
  PackReport report_;
};

}  // namespace

Result<PackReport> pack_layers(const LayerSource& source, const std::string& out, const PackOptions& options,
                               bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user) {
  return CheckpointPacker(source, options, progress, user).run(out);
}

Result<PackReport> pack_checkpoint(const Checkpoint& checkpoint, const std::string& out, const PackOptions& options,
                                   bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user) {
  const LayerSource source{checkpoint.path(), &checkpoint.layers(),
                           [&](std::size_t layer, std::int64_t expert) { return checkpoint.load(layer, expert); },
                           [&](std::size_t layer, std::int64_t expert) { return checkpoint.load_bias(layer, expert); }};
  return pack_layers(source, out, options, progress, user);
}

}  // namespace swordfish
