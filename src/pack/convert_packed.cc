// convert_packed(): a packed file's weights into another layout. The file is a source of layers like any other: a layer for each
// part, of which those of a fused weight are fused again.
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "formats/patterns.h"
#include "pack/pack_checkpoint.h"

namespace swordfish {
namespace {

class PackedSource {
 public:
  PackedSource(const PackedFile& file, const Pattern* wanted) : file_(file), wanted_(wanted) {}

  Status list() {
    for (std::size_t i = 0; i < file_.layers().size(); ++i) {
      const PackedFile::Layer& from = file_.layers()[i];
      if (wanted_) {
        SF_ASSIGN(const bool found, wanted_->search(from.name));
        if (!found) continue;
      }
      const bool fused = from.parts.size() > 1;
      for (std::size_t p = 0; p < from.parts.size(); ++p) {
        const PackedView& shape = from.shape;
        LayerInfo layer;
        layer.name = fused ? from.parts[p].name : from.name;
        layer.weight_name = from.weight_names[p];
        layer.scheme = from.scheme;
        layer.code = shape.code;
        layer.n = from.parts[p].n;
        layer.k = shape.k;
        layer.experts = from.experts;
        layer.group_size = shape.group_size;
        layer.scale_type = shape.scale_type;
        if (fused) layer.fused_into = from.name;
        layer.fused_index = static_cast<int>(p);
        layer.bias = from.bias;
        layer.bytes = from.bytes / from.parts.size();
        layers.push_back(std::move(layer));
        places_.emplace_back(i, p);
      }
    }
    return {};
  }

  // Reads through weight_, which holds until a part of another one is asked for.
  Result<QuantTensor> load(std::size_t number, std::int64_t expert) {
    const auto [layer, part] = places_[number];
    if (held_ != std::pair(layer, expert)) {
      SF_ASSIGN(weight_, file_.load(layer, expert));
      held_ = {layer, expert};
    }
    return unpack(weight_.view, static_cast<std::int64_t>(part));
  }
  Result<std::optional<std::vector<float>>> load_bias(std::size_t number, std::int64_t expert) const {
    const auto [layer, part] = places_[number];
    SF_ASSIGN(const std::optional<std::vector<float>> bias, file_.load_bias(layer, expert));
    if (!bias) return std::optional<std::vector<float>>();
    const PackedPart& place = file_.layers()[layer].parts[part];
    return std::optional(std::vector<float>(bias->begin() + place.n0, bias->begin() + place.n0 + place.n));
  }

  std::vector<LayerInfo> layers;

 private:
  const PackedFile& file_;
  const Pattern* wanted_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // layer of the file, part of it
  std::pair<std::size_t, std::int64_t> held_{0, -1};
  PackedWeight weight_;
};

}  // namespace

Result<PackReport> convert_packed(const PackedFile& file, const std::string& out, const PackOptions& options,
                                  bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user) {
  for (const PackedFile::Layer& layer : file.layers()) {
    if (layer.shape.layout == options.layout)
      return invalid_argument("{}: is a packed file in layout {} already", file.path(), name(options.layout));
  }
  std::optional<Pattern> wanted;
  if (!options.layers.empty()) {
    SF_ASSIGN(wanted, Pattern::compile(options.layers, "layers"));
  }
  PackedSource source(file, wanted ? &*wanted : nullptr);
  SF_TRY(source.list());
  if (wanted && source.layers.empty()) return invalid_argument("{}: no layer's name matches '{}'", file.path(), options.layers);
  PackOptions all = options;
  all.layers.clear();
  all.fuse = true;
  const LayerSource as_source{file.path(), &source.layers,
                              [&](std::size_t layer, std::int64_t expert) { return source.load(layer, expert); },
                              [&](std::size_t layer, std::int64_t expert) { return source.load_bias(layer, expert); }};
  return pack_layers(as_source, out, all, progress, user);
}

}  // namespace swordfish
