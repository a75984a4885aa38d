// Loading to a GPU, with host memory in its place that copies as late as it may: the same bytes as a load to the host, bounded
// memory, faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>

#include "device/device.h"
#include "load/fixtures.h"
#include "load/host_device.h"
#include "load/load_hooks.h"
#include "load/resident.h"
#include "pack/same_weight.h"
#include "synth/synth.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using test::expect_same;
using test::HostDevice;

LoadOptions options_with_ring(std::uint64_t ring) {
  LoadOptions options;
  options.ring_bytes = ring;
  options.threads = 3;
  return options;
}

// Both rings: chunks that most weights do not fit, and chunks that hold several.
void expect_like_host(const std::string& path, LoadOptions options) {
  SCOPED_TRACE(path);
  const Result<LoadedModel> host = load(path, options);
  HostDevice device;
  JobHooks hooks;
  hooks.device = &device;
  const Result<LoadedModel> there = load_hooked(path, options, hooks);
  ASSERT_EQ(there.ok(), host.ok()) << there.status().message();
  if (!host.ok()) {
    EXPECT_EQ(there.status().message(), host.status().message());
    return;
  }
  ASSERT_EQ(there->layers.size(), host->layers.size());
  for (std::size_t l = 0; l < host->layers.size(); ++l) {
    const LoadedLayer &a = host->layers[l], &b = there->layers[l];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.first_expert, b.first_expert);
    EXPECT_TRUE(b.weights.empty());
    EXPECT_TRUE(a.device_weights.empty());
    ASSERT_EQ(a.weights.size(), b.device_weights.size());
    for (std::size_t e = 0; e < a.weights.size(); ++e) {
      Result<PackedWeight> weight = download(b.device_weights[e]);
      ASSERT_TRUE(weight.ok()) << weight.status().message();
      weight->name = a.weights[e].name;
      expect_same(*weight, a.weights[e]);
    }
    ASSERT_EQ(b.device_bias != nullptr, !a.bias.empty());
    if (a.bias.empty()) continue;
    EXPECT_EQ(std::memcmp(b.device_bias, a.bias.data(), a.bias.size() * sizeof(float)), 0);
  }
  ASSERT_EQ(there->tensors.size(), host->tensors.size());
  for (std::size_t t = 0; t < host->tensors.size(); ++t) {
    const Buffer& bytes = host->tensors[t].bytes;
    EXPECT_EQ(there->tensors[t].info.name, host->tensors[t].info.name);
    EXPECT_TRUE(there->tensors[t].bytes.empty());
    if (bytes.empty()) continue;
    EXPECT_EQ(std::memcmp(there->tensors[t].device, bytes.data(), bytes.size()), 0) << host->tensors[t].info.name;
  }
  EXPECT_EQ(*resident_sum(*there), *resident_sum(*host));
  EXPECT_EQ(there->report.device_bytes, device.allocated);
  EXPECT_LE(static_cast<double>(device.allocated),
            1.05 * static_cast<double>(there->report.packed_bytes) + static_cast<double>(options.ring_bytes));
  EXPECT_EQ(there->report.unplanned_bytes, 0u);
}

TEST(Upload, EveryFixtureIsTheSameThere) {
  for (const std::string& path : test::fixtures()) {
    expect_like_host(path, options_with_ring(1 << 20));
    expect_like_host(path, options_with_ring(64 << 20));
  }
}

class UploadSynthetic : public testing::Test {
 protected:
  std::string make(SynthModel model, SynthScheme scheme, std::uint64_t bytes) {
    SynthOptions options;
    options.model = model;
    options.scheme = scheme;
    options.bytes = bytes;
    options.shard_bytes = bytes / 3;
    options.seed = std::random_device{}();
    const std::string out = folder_.path(std::to_string(count_++));
    EXPECT_TRUE(synthesize(out, options).ok());
    return out;
  }
  TempFolder folder_;
  int count_ = 0;
};

TEST_F(UploadSynthetic, EverySchemeIsTheSameThere) {
  for (const SynthScheme scheme :
       {SynthScheme::nvfp4, SynthScheme::ct_nvfp4, SynthScheme::gptq, SynthScheme::awq, SynthScheme::compressed_tensors}) {
    const std::string path = make(SynthModel::glm_moe, scheme, 20'000'000);
    for (const std::uint64_t ring : {std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
      LoadOptions options = options_with_ring(ring);
      expect_like_host(path, options);
      options.rank = 1;
      options.ranks = 2;
      options.fuse = true;
      expect_like_host(path, options);
    }
  }
}

TEST_F(UploadSynthetic, CopiesStartFromPageLockedMemory) {
  const std::string path = make(SynthModel::qwen3_moe, SynthScheme::nvfp4, 20'000'000);
  HostDevice device;
  JobHooks hooks;
  hooks.device = &device;
  ASSERT_TRUE(load_hooked(path, options_with_ring(64 << 20), hooks).ok());
  EXPECT_GT(device.copies, 100);
  EXPECT_EQ(device.late, device.copies) << "these have no bias, and every matrix fits a chunk";
}

TEST_F(UploadSynthetic, ThePackedCacheIsWrittenFromThereAndReadBack) {
  const std::string path = make(SynthModel::mixtral, SynthScheme::awq, 8'000'000);
  LoadOptions options = options_with_ring(1 << 20);
  const std::string expected = *resident_sum(*load(path, options));
  options.cache = folder_.path("cache");
  HostDevice device;
  JobHooks hooks;
  hooks.device = &device;
  const Result<LoadedModel> first = load_hooked(path, options, hooks);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_TRUE(first->report.cache_written);
  HostDevice other;
  hooks.device = &other;
  const Result<LoadedModel> second = load_hooked(path, options, hooks);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_TRUE(second->report.from_packed);
  EXPECT_EQ(*resident_sum(*first), expected);
  EXPECT_EQ(*resident_sum(*second), expected);
  const Result<LoadedModel> host = load(path, options);
  EXPECT_TRUE(host->report.from_packed);
  EXPECT_EQ(*resident_sum(*host), expected);
}

TEST_F(UploadSynthetic, AFullDeviceAndAFailingCopyAreErrors) {
  const std::string path = make(SynthModel::llama, SynthScheme::gptq, 8'000'000);
  HostDevice full;
  full.most = 3'000'000;
  JobHooks hooks;
  hooks.device = &full;
  EXPECT_EQ(load_hooked(path, options_with_ring(1 << 20), hooks).status().code(), Code::out_of_memory);
  HostDevice failing;
  failing.failing_copy = 5;
  hooks.device = &failing;
  const Result<LoadedModel> model = load_hooked(path, options_with_ring(1 << 20), hooks);
  EXPECT_EQ(model.status().message(), "the copy failed");
}

TEST(Upload, WithoutAGpuTheLoadIsRefused) {
  if (!gpus().found.empty()) GTEST_SKIP() << "there is a GPU";
  LoadOptions options;
  options.device.kind = Device::Kind::cuda;
  EXPECT_EQ(load(test::fixtures().front(), options).status().code(), Code::unavailable);
}

}  // namespace
}  // namespace swordfish
