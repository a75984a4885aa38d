// Loading to a GPU: the same bytes as in host memory, straight from a checkpoint and from a packed cache.
#include "swordfish/load.h"

#include "device/gpu.h"
#include "load/resident.h"
#include "synth/synth.h"
#include "temp_folder.h"

namespace swordfish::test {
namespace {

class LoadToGpu : public OnGpu {};

TEST_F(LoadToGpu, IsTheSameAsToTheHost) {
  const TempFolder folder;
  int count = 0;
  for (const SynthScheme scheme : {SynthScheme::nvfp4, SynthScheme::gptq, SynthScheme::awq, SynthScheme::compressed_tensors}) {
    SynthOptions synth;
    synth.model = SynthModel::glm_moe;
    synth.scheme = scheme;
    synth.bytes = 60'000'000;
    synth.shard_bytes = 20'000'000;
    const std::string path = folder.path(std::to_string(count++));
    must(synthesize(path, synth).status());
    const LoadedModel host = must(load(path));
    for (const std::uint64_t ring : {std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
      LoadOptions options;
      options.device = kGpu;
      options.ring_bytes = ring;
      options.cache = folder.path("cache" + std::to_string(ring));
      for (const bool cached : {false, true}) {
        const LoadedModel there = must(load(path, options));
        EXPECT_EQ(there.report.from_packed, cached);
        EXPECT_EQ(must(resident_sum(there)), must(resident_sum(host)));
        EXPECT_LE(static_cast<double>(there.report.device_bytes),
                  1.05 * static_cast<double>(there.report.packed_bytes) + static_cast<double>(ring));
      }
    }
  }
}

}  // namespace
}  // namespace swordfish::test
