// A synthetic checkpoint for pack_layers().
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pack/pack_checkpoint.h"
#include "pack/synthetic.h"

namespace swordfish::test {

struct Model {
  std::vector<LayerInfo> layers;
  std::vector<std::vector<QuantTensor>> tensors;     // of each layer, one for each expert
  std::map<std::size_t, std::vector<float>> biases;  // [entries, n]
  Random random{99};

  void add(const std::string& name, const Shape& shape, std::int64_t experts = 0) {
    LayerInfo info;
    info.name = name;
    info.weight_name = name + ".weight";
    info.scheme = "synthetic";
    info.code = shape.code;
    info.n = shape.n;
    info.k = shape.k;
    info.experts = experts;
    info.group_size = shape.group;
    info.scale_type = shape.scale_type;
    tensors.emplace_back();
    for (std::int64_t e = 0; e < std::max<std::int64_t>(1, experts); ++e) {
      tensors.back().push_back(random_tensor(random, shape));
      tensors.back().back().name = name;
      tensors.back().back().global.value = 0.1f + static_cast<float>(e);
      info.bytes += 1000;
    }
    layers.push_back(info);
  }
  void add_bias(std::size_t layer) {
    layers[layer].bias = layers[layer].name + ".bias";
    for (std::size_t i = 0; i < tensors[layer].size() * static_cast<std::size_t>(layers[layer].n); ++i) {
      biases[layer].push_back(static_cast<float>(pick(random, -1000, 1000)) / 7);
    }
  }
  Result<std::optional<std::vector<float>>> load_bias(std::size_t layer, std::int64_t expert) const {
    const auto found = biases.find(layer);
    if (found == biases.end()) return std::optional<std::vector<float>>();
    const auto begin = found->second.begin() + expert * layers[layer].n;
    return std::optional(std::vector<float>(begin, begin + layers[layer].n));
  }
  LayerSource source() const {
    return {"synthetic model", &layers,
            [this](std::size_t layer, std::int64_t expert) -> Result<QuantTensor> {
              return tensors[layer][static_cast<std::size_t>(expert)];
            },
            [this](std::size_t layer, std::int64_t expert) { return load_bias(layer, expert); }};
  }
};

}  // namespace swordfish::test
