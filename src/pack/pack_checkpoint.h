// pack_layers(): what pack_checkpoint does, on anything that has layers to load; convert_packed(): on a packed file.
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

// The weights of a packed file into the other layout; what is fused there stays so. Exact, but for a scale of −0 on its way into
// sm1xx-blockscaled/1, which becomes 0.
Result<PackReport> convert_packed(const PackedFile& file, const std::string& out, const PackOptions& options,
                                  bool (*progress)(std::uint64_t, std::uint64_t, void*), void* user);

}  // namespace swordfish
