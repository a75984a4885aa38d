// Choosing and grouping layers.
#include "pack/pack_units.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/try.h"
#include "formats/patterns.h"

namespace swordfish {
namespace {

// Whether headers alone allow packing `b` with `a`; pack() decides about what only the contents tell.
bool may_fuse(const LayerInfo& a, const LayerInfo& b) {
  return a.k == b.k && a.code == b.code && a.group_size == b.group_size && a.scale_type == b.scale_type && a.experts == 0 &&
         b.experts == 0;
}

}  // namespace

std::string separate_note(const std::string& path, const std::string& fused, std::string_view reason) {
  return fmt::format("{}: {}: its parts are packed apart: {}", path, fused, reason);
}

PackedWriter::Layer describe_unit(const std::vector<LayerInfo>& layers, const PackUnit& unit) {
  const LayerInfo& first = layers[unit.members.front()];
  PackedWriter::Layer layer{unit.name, first.scheme, first.code, first.k, first.experts, false, {}};
  for (const std::size_t m : unit.members) {
    layer.may_have_bias |= !layers[m].bias.empty();
    layer.parts.push_back({layers[m].name, layers[m].weight_name, layers[m].n});
  }
  return layer;
}

Result<PackUnits> choose_units(const std::string& path, const std::vector<LayerInfo>& layers, const PackOptions& options) {
  PackUnits out;
  std::vector<std::size_t> selected;
  if (options.layers.empty()) {
    for (std::size_t i = 0; i < layers.size(); ++i) selected.push_back(i);
    if (selected.empty()) return unavailable("{}: no quantized layer that could be packed", path);
  } else {
    SF_ASSIGN(const Pattern pattern, Pattern::compile(options.layers, "layers"));
    for (std::size_t i = 0; i < layers.size(); ++i) {
      SF_ASSIGN(const bool found, pattern.search(layers[i].name));
      if (found) selected.push_back(i);
    }
    if (selected.empty()) return invalid_argument("{}: no layer's name matches '{}'", path, options.layers);
  }
  if (options.layout == Layout::sm1xx_blockscaled_1) {
    std::erase_if(selected, [&](std::size_t i) {
      if (layers[i].code == CodeType::fp4) return false;
      out.notes.push_back(fmt::format("{}: {}: {} codes are not packed in layout {}", path, layers[i].name, name(layers[i].code),
                                      name(options.layout)));
      return true;
    });
    if (selected.empty()) return unavailable("{}: no FP4 layer, which is all that layout {} holds", path, name(options.layout));
  }
  std::unordered_map<std::string_view, std::size_t> parts;  // of each fused module, in the whole checkpoint
  for (const LayerInfo& layer : layers) ++parts[layer.fused_into];
  std::unordered_map<std::string_view, std::vector<std::size_t>> groups;  // the selected ones
  for (const std::size_t i : selected) groups[layers[i].fused_into].push_back(i);
  for (const std::size_t i : selected) {
    out.bytes += layers[i].bytes;
    const std::string& fused = layers[i].fused_into;
    const std::vector<std::size_t>& group = groups[fused];
    const bool whole = options.fuse && !fused.empty() && group.size() > 1 && group.size() == parts[fused];
    const bool fits =
        whole && std::all_of(group.begin(), group.end(), [&](std::size_t m) { return may_fuse(layers[i], layers[m]); });
    if (whole && !fits && i == group.front()) out.notes.push_back(separate_note(path, fused, "shape, type or groups differ"));
    if (!fits) {
      out.units.push_back({layers[i].name, {i}});
    } else if (i == group.front()) {  // the others go with the first
      out.units.push_back({fused, group});
      std::sort(out.units.back().members.begin(), out.units.back().members.end(),
                [&](std::size_t m, std::size_t n) { return layers[m].fused_index < layers[n].fused_index; });
    }
  }
  return out;
}

}  // namespace swordfish
