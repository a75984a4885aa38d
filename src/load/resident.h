// A loaded model's weights and tensors wherever they are, as host memory.
#pragma once

#include <cstdint>
#include <string>

#include "swordfish/load.h"
#include "swordfish/status.h"

namespace swordfish {

std::size_t entries_of(const LoadedLayer& layer);
// Shape and parts; its planes may lie on a GPU.
const PackedView& view_of(const LoadedLayer& layer, std::size_t entry);

// One weight: the model's own, or a copy of what lies on a GPU.
struct HostWeight {
  const PackedWeight* weight = nullptr;
  std::unique_ptr<PackedWeight> copy;
};
Result<HostWeight> host_weight(const LoadedLayer& layer, std::size_t entry);

// A tensor's bytes in the same way.
struct HostBytes {
  std::span<const std::byte> bytes;
  Buffer copy;
};
Result<HostBytes> host_bytes(const LoadedModel& model, std::size_t tensor);

// XXH3 of everything that is resident, in order: the same wherever it is. 16 digits.
Result<std::string> resident_sum(const LoadedModel& model);

}  // namespace swordfish
