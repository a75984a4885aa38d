// pack_layers(): what pack_checkpoint does, on anything that has layers to load.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "swordfish/checkpoint.h"
#include "swordfish/pack.h"

namespace swordfish {

struct LayerSource {
  std::string path;  // starts messages
  const std::vector<LayerInfo>* layers = nullptr;
  std::function<Result<QuantTensor>(std::size_t layer, std::int64_t expert)> load;
  std::function<Result<std::optional<std::vector<float>>>(std::size_t layer, std::int64_t expert)> load_bias;
};

Result<PackReport> pack_layers(const LayerSource& source, const std::string& out, const PackOptions& options,
                               bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user);

}  // namespace swordfish
