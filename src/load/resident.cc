// Copies back from a GPU, and the checksum over all of it.
#include "load/resident.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <vector>

#include "base/try.h"
#include "device/device.h"
#include "load/packed_job.h"

namespace swordfish {

std::size_t entries_of(const LoadedLayer& layer) { return std::max(layer.weights.size(), layer.device_weights.size()); }

const PackedView& view_of(const LoadedLayer& layer, std::size_t entry) {
  return layer.device_weights.empty() ? layer.weights[entry].view : layer.device_weights[entry].view();
}

Result<HostWeight> host_weight(const LoadedLayer& layer, std::size_t entry) {
  if (layer.device_weights.empty()) return HostWeight{&layer.weights[entry], nullptr};
  SF_ASSIGN(PackedWeight copy, download(layer.device_weights[entry]));
  HostWeight out;
  out.copy = std::make_unique<PackedWeight>(std::move(copy));
  out.copy->name = layer.name;
  out.weight = out.copy.get();
  return out;
}

Result<HostBytes> host_bytes(const LoadedModel& model, std::size_t number) {
  const LoadedTensor& tensor = model.tensors[number];
  HostBytes out;
  if (tensor.device == nullptr) {
    out.bytes = tensor.bytes.bytes();
    return out;
  }
  out.copy = Buffer(static_cast<std::size_t>(tensor.info.bytes));
  SF_TRY(copy_back(model.device, out.copy.data(), tensor.device, out.copy.size()));
  out.bytes = out.copy.bytes();
  return out;
}

Result<std::string> resident_sum(const LoadedModel& model) {
  std::vector<std::uint64_t> sums;
  for (const LoadedLayer& layer : model.layers) {
    for (std::size_t e = 0; e < entries_of(layer); ++e) {
      SF_ASSIGN(const HostWeight host, host_weight(layer, e));
      sums.push_back(sum_of(*host.weight, nullptr, 0));
    }
    sums.push_back(XXH3_64bits(layer.bias.data(), layer.bias.size() * sizeof(float)));
  }
  for (std::size_t t = 0; t < model.tensors.size(); ++t) {
    SF_ASSIGN(const HostBytes host, host_bytes(model, t));
    sums.push_back(sum_of(host.bytes));
  }
  return fmt::format("{:016x}", XXH3_64bits(sums.data(), sums.size() * sizeof(std::uint64_t)));
}

}  // namespace swordfish
