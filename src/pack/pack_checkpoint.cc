// pack_checkpoint(): load one matrix, pack it, write it, drop it; then the next.
#include "pack/pack_checkpoint.h"

#include <utility>

#include "base/error.h"
#include "base/timer.h"
#include "base/try.h"
#include "pack/pack_units.h"
#include "pack/packed_writer.h"
#include "pack/sm1xx_pack.h"

namespace swordfish {
namespace {

class CheckpointPacker {
 public:
  CheckpointPacker(const LayerSource& source, const PackOptions& options, bool (*progress)(std::uint64_t, std::uint64_t, void*),
                   void* user)
      : source_(source), layers_(*source.layers), options_(options), progress_(progress), user_(user) {}

  Result<PackReport> run(const std::string& out) {
    SF_ASSIGN(PackUnits chosen, choose_units(source_.path, layers_, options_));
    units_ = std::move(chosen.units);
    total_ = chosen.bytes;
    report_.notes = std::move(chosen.notes);
    std::vector<PackedWriter::Layer> announced;
    for (const PackUnit& unit : units_) {
      announced.push_back(describe(unit));
      if (unit.members.size() == 1) continue;
      for (const std::size_t layer : unit.members)
        announced.push_back(describe({layers_[layer].name, {layer}}));  // if they do not fit
    }
    SF_ASSIGN(PackedWriter writer, PackedWriter::create(out, options_.force, announced, options_.layout));
    SF_TRY(report_progress());
    for (const PackUnit& unit : units_) SF_TRY(pack_unit(unit, writer));
    for (const PackUnit& unit : written_) SF_TRY(write_bias(unit, writer));
    report_.layers = static_cast<std::int64_t>(written_.size());
    report_.packed_bytes = writer.data_bytes();
    {
      const Timer timer(report_.write_seconds);
      SF_TRY(writer.finish());
    }
    return std::move(report_);
  }

 private:
  std::int64_t entries(std::size_t layer) const { return std::max<std::int64_t>(1, layers_[layer].experts); }

  void note_separate(const std::string& fused, const std::string& reason) {
    report_.notes.push_back(separate_note(source_.path, fused, reason));
  }

  PackedWriter::Layer describe(const PackUnit& unit) const { return describe_unit(layers_, unit); }

  Status report_progress() const {
    if (progress_ == nullptr || progress_(report_.source_bytes, total_, user_)) return {};
    return {Code::cancelled, fmt::format("{}: packing was cancelled", source_.path)};
  }

  Result<std::vector<QuantTensor>> load(const PackUnit& unit, std::int64_t expert) {
    const Timer timer(report_.read_seconds);
    std::vector<QuantTensor> parts;
    for (const std::size_t m : unit.members) {
      SF_ASSIGN(QuantTensor part, source_.load(m, expert));
      parts.push_back(std::move(part));
    }
    return parts;
  }

  Result<PackedWeight> pack_parts(std::span<const QuantTensor> parts, const std::string& name) {
    const Timer timer(report_.pack_seconds);
    return options_.layout == Layout::mma64_1 ? pack(parts, name, options_.threads)
                                              : pack_blockscaled(parts, name, options_.threads);
  }

  Status write(const PackUnit& unit, std::int64_t expert, const PackedWeight& weight, PackedWriter& writer) {
    const Timer timer(report_.write_seconds);
    return writer.add_entry(describe(unit), expert, weight);
  }

  // Packs a unit; parts that turn out not to fit are packed one by one.
  Status pack_unit(const PackUnit& unit, PackedWriter& writer) {
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
  Status write_bias(const PackUnit& unit, PackedWriter& writer) {
    const PackedWriter::Layer layer = describe(unit);
    if (!layer.may_have_bias) return {};
    std::vector<float> values;
    bool any = false;
    for (std::int64_t e = 0; e < entries(unit.members.front()); ++e) {
      for (const std::size_t m : unit.members) {
        std::optional<std::vector<float>> bias;
        if (!layers_[m].bias.empty()) {
          const Timer timer(report_.read_seconds);
          SF_ASSIGN(bias, source_.load_bias(m, e));
        }
        any |= bias.has_value();
        if (!bias) bias.emplace(static_cast<std::size_t>(layers_[m].n));
        values.insert(values.end(), bias->begin(), bias->end());
      }
    }
    if (!any) return {};
    const Timer timer(report_.write_seconds);
    return writer.add_bias(layer, values);
  }

  const LayerSource& source_;
  const std::vector<LayerInfo>& layers_;
  const PackOptions& options_;
  bool (*progress_)(std::uint64_t, std::uint64_t, void*);
  void* user_;
  std::vector<PackUnit> units_, written_;
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
