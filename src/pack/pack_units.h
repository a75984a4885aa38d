// What becomes one packed weight: a layer, or the parts of a fused module. Shared by packing to a file and loading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pack/packed_writer.h"
#include "swordfish/checkpoint.h"
#include "swordfish/pack.h"

namespace swordfish {

struct PackUnit {
  std::string name;
  std::vector<std::size_t> members;  // indices of layers
};
struct PackUnits {
  std::vector<PackUnit> units;  // in file order
  std::uint64_t bytes = 0;      // of the layers
  std::vector<std::string> notes;
};

// Selects layers by the options' pattern and layout and groups the parts of fused modules. `path` starts messages.
Result<PackUnits> choose_units(const std::string& path, const std::vector<LayerInfo>& layers, const PackOptions& options);
// What the writer of packed files must know of it.
PackedWriter::Layer describe_unit(const std::vector<LayerInfo>& layers, const PackUnit& unit);
// The note that a fused module's parts are packed apart.
std::string separate_note(const std::string& path, const std::string& fused, std::string_view reason);

}  // namespace swordfish
