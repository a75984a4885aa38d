// load() against pack: every fixture to the same bytes, whole and by ranks, through every engine; faults, cancelling, the cache.
#include "swordfish/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "io/descriptor.h"
#include "io/page_cache.h"
#include "load/fixtures.h"
#include "load/like_pack.h"
#include "load/load_hooks.h"
#include "load/plan.h"
#include "pack/same_weight.h"
#include "pack/sm1xx_pack.h"
#include "synth/synth.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

namespace fs = std::filesystem;
using test::expect_like_pack;
using test::expect_same;
using test::fixtures;
using test::make_cold;

LoadOptions small_ring() {
  LoadOptions options;
  options.ring_bytes = 1 << 20;
  options.threads = 3;
  return options;
}

TEST(Load, EveryFixtureIsWhatPackMakesOfIt) {
  std::size_t loaded = 0;
  for (const std::string& path : fixtures()) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (!checkpoint.ok()) {
      const Result<LoadedModel> model = load(path, small_ring());
      ASSERT_FALSE(model.ok()) << path;
      EXPECT_EQ(model.status().message(), checkpoint.status().message());
      continue;
    }
    if (checkpoint->layers().empty()) continue;
    expect_like_pack(path, small_ring());
    ++loaded;
  }
  EXPECT_GT(loaded, 5u);
}

TEST(Load, EveryFixtureByRanks) {
  for (const std::string& path : fixtures()) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (!checkpoint.ok() || checkpoint->layers().empty()) continue;
    for (const bool whole_experts : {false, true}) {
      for (int rank = 0; rank < 2; ++rank) {
        LoadOptions options = small_ring();
        options.rank = rank;
        options.ranks = 2;
        options.whole_experts = whole_experts;
        expect_like_pack(path, options);
      }
    }
  }
}

TEST(Load, FusedWeightsAndBlockScaledLayoutAreThoseOfPackFiles) {
  const TempFolder folder;
  for (const std::string& path : fixtures()) {
    SCOPED_TRACE(path);
    const Result<Checkpoint> checkpoint = Checkpoint::open(path);
    if (!checkpoint.ok() || checkpoint->layers().empty()) continue;
    for (const Layout layout : {Layout::mma64_1, Layout::sm1xx_blockscaled_1}) {
      PackOptions pack_options;
      pack_options.layout = layout;
      pack_options.fuse = true;
      pack_options.force = true;
      const auto packed = pack_checkpoint(*checkpoint, folder.path("packed.safetensors"), pack_options);
      LoadOptions options = small_ring();
      options.layout = layout;
      options.fuse = true;
      const Result<LoadedModel> model = load(path, options);
      ASSERT_EQ(model.ok(), packed.ok()) << model.status().message();
      if (!packed.ok()) {
        EXPECT_EQ(model.status().code(), packed.status().code());
        continue;
      }
      const Result<PackedFile> file = PackedFile::open(folder.path("packed.safetensors"));
      ASSERT_TRUE(file.ok());
      ASSERT_EQ(file->layers().size(), model->layers.size());
      for (std::size_t l = 0; l < model->layers.size(); ++l) {
        const LoadedLayer& layer = model->layers[l];
        ASSERT_EQ(layer.name, file->layers()[l].name);
        EXPECT_EQ(layer.weight_names, file->layers()[l].weight_names);
        for (std::size_t e = 0; e < layer.weights.size(); ++e)
          expect_same(layer.weights[e], *file->load(l, static_cast<std::int64_t>(e)));
      }
      // The packed file itself loads to the same.
      const Result<LoadedModel> again = load(folder.path("packed.safetensors"), small_ring());
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_TRUE(again->report.from_packed);
      for (std::size_t l = 0; l < model->layers.size(); ++l) {
        EXPECT_EQ(again->layers[l].bias, model->layers[l].bias);
        for (std::size_t e = 0; e < model->layers[l].weights.size(); ++e)
          expect_same(again->layers[l].weights[e], model->layers[l].weights[e]);
      }
    }
  }
}

// --- synthetic checkpoints -----------------------------------------------------------------------------------------------------

class Synthetic : public testing::Test {
 protected:
  std::string make(SynthModel model, SynthScheme scheme, std::uint64_t bytes, std::uint64_t shard = 1 << 20) {
    SynthOptions options;
    options.model = model;
    options.scheme = scheme;
    options.bytes = bytes;
    options.shard_bytes = shard;
    options.seed = std::random_device{}();
    const std::string out = folder_.path(fmt::format("m{}", count_++));
    const auto report = synthesize(out, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return out;
  }
  TempFolder folder_;
  int count_ = 0;
};

TEST_F(Synthetic, EveryFamilyAndSchemeLoadsColdAndWarmThroughEveryEngine) {
  for (const SynthModel model : {SynthModel::llama, SynthModel::mixtral, SynthModel::qwen3_moe, SynthModel::glm_moe}) {
    for (const SynthScheme scheme :
         {SynthScheme::nvfp4, SynthScheme::ct_nvfp4, SynthScheme::gptq, SynthScheme::awq, SynthScheme::compressed_tensors}) {
      const std::string path = make(model, scheme, 3'000'000);
      LoadOptions options = small_ring();
      make_cold(path);
      options.direct = scheme != SynthScheme::gptq;
      options.uring = model != SynthModel::llama;
      expect_like_pack(path, options);
      options.rank = 1;
      options.ranks = 2;
      expect_like_pack(path, options);
    }
  }
}

// Whole experts and whole rows are exactly their bytes.
TEST_F(Synthetic, ARankReadsItsBytesAndNoMore) {
  const std::string path = make(SynthModel::qwen3_moe, SynthScheme::nvfp4, 20'000'000, 100 << 20);
  const Checkpoint checkpoint = *Checkpoint::open(path);
  std::uint64_t experts = 0, rest = 0;
  for (const TensorInfo& t : checkpoint.tensors())
    (t.name.find(".experts.") != std::string::npos && t.name.find("input_scale") == std::string::npos ? experts : rest) += t.bytes;
  std::uint64_t needed = 0;
  for (int r = 0; r < 2; ++r) {
    LoadOptions options = small_ring();
    options.rank = r;
    options.ranks = 2;
    options.whole_experts = true;
    options.raw = true;
    make_cold(path);
    const Result<LoadedModel> model = load(path, options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE(model->layers.empty());
    needed += model->report.source_bytes;
    if (model->report.cached_bytes == 0) {
      EXPECT_GE(model->report.disk_bytes, model->report.source_bytes);
      // Rounded out to pages: at most two for each of a few ranges a unit.
      EXPECT_LE(model->report.disk_bytes, model->report.source_bytes + 8192 * 4 * checkpoint.tensors().size());
    }
  }
  // Attention is cut by rows (exactly) except o_proj, whose short strided runs are read whole and reported.
  LoadOptions options = small_ring();
  options.ranks = 2;
  options.whole_experts = true;
  options.raw = true;
  const Result<LoadedModel> first = load(path, options);
  ASSERT_TRUE(first.ok());
  EXPECT_GT(first->report.strided_bytes, 0u);
  EXPECT_NE(std::find_if(first->report.notes.begin(), first->report.notes.end(),
                         [](const std::string& n) { return n.find("64 KiB") != std::string::npos; }),
            first->report.notes.end());
  EXPECT_GE(needed, experts);
  EXPECT_LE(needed, experts + 2 * rest);
  LoadOptions whole = small_ring();
  whole.raw = true;
  EXPECT_EQ(load(path, whole)->report.source_bytes, experts + rest);
}

// To the byte, and on disk to the page: experts that are dealt out, and rows of projections whose rows are cut.
TEST_F(Synthetic, WholeExpertsAndWholeRowsAreExactlyTheirBytes) {
  struct Case {
    const char* layers;
    bool whole_experts;
  };
  const std::string path = make(SynthModel::qwen3_moe, SynthScheme::nvfp4, 20'000'000, 100 << 20);
  const Checkpoint checkpoint = *Checkpoint::open(path);
  for (const Case& c : {Case{R"(\.experts\.)", true}, Case{R"(\.(q|k|v|gate|up)_proj$)", false}}) {
    SCOPED_TRACE(c.layers);
    for (int r = 0; r < 2; ++r) {
      const Rank rank{r, 2, c.whole_experts};
      const std::vector<bool> held = held_layers(checkpoint.layers(), rank);
      std::uint64_t bytes = 0, pages = 0;
      for (std::size_t l = 0; l < held.size(); ++l) {
        const LayerInfo& info = checkpoint.layers()[l];
        const bool expert = info.name.find(".experts.") != std::string::npos;
        if (!held[l] || (c.whole_experts ? !expert : info.name.ends_with("o_proj") || info.name.ends_with("down_proj"))) continue;
        const LayerCut cut = *cut_layer(info, rank);
        EXPECT_EQ(cut.k, info.k);
        for (const TensorInfo& t : checkpoint.tensors()) {
          if (std::find(info.tensors.begin(), info.tensors.end(), t.name) == info.tensors.end()) continue;
          const bool rows = !t.shape.empty() && t.shape[0] == info.n;
          const std::uint64_t row = rows ? t.bytes / static_cast<std::uint64_t>(info.n) : 0;
          const std::uint64_t begin = t.offset + row * static_cast<std::uint64_t>(cut.rows.front().n0);
          const std::uint64_t size = rows ? row * static_cast<std::uint64_t>(cut.n) : t.bytes;
          bytes += size;
          pages += (begin + size + 4095) / 4096 - begin / 4096;
        }
      }
      LoadOptions options;
      options.rank = r;
      options.ranks = 2;
      options.whole_experts = c.whole_experts;
      options.layers = c.layers;
      make_cold(path);
      const Result<LoadedModel> model = load(path, options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      const LoadReport& report = model->report;
      EXPECT_EQ(report.source_bytes, bytes);
      EXPECT_LE(report.disk_bytes + report.cached_bytes + report.past_ring_bytes, pages * 4096);
      EXPECT_EQ(report.unplanned_bytes, 0u);
      EXPECT_EQ(report.strided_bytes, 0u);
    }
  }
}

TEST_F(Synthetic, TheIndexIsAuthoritative) {
  const std::string path = make(SynthModel::llama, SynthScheme::nvfp4, 3'000'000);
  std::vector<std::string> shards;
  for (const auto& file : fs::directory_iterator(path))
    if (file.path().extension() == ".safetensors") shards.push_back(file.path());
  ASSERT_GT(shards.size(), 2u);
  std::sort(shards.begin(), shards.end());
  // A file outside the index is ignored.
  fs::copy(shards[0], path + "/other.safetensors");
  EXPECT_TRUE(load(path, small_ring()).ok());
  // A truncated shard and a missing one are errors that name it.
  const auto size = fs::file_size(shards[1]);
  fs::resize_file(shards[1], size - 10);
  const std::string name = fs::path(shards[1]).filename();
  Result<LoadedModel> model = load(path, small_ring());
  EXPECT_EQ(model.status().code(), Code::malformed);
  EXPECT_NE(model.status().message().find(name), std::string::npos) << model.status().message();
  fs::remove(shards[1]);
  model = load(path, small_ring());
  EXPECT_EQ(model.status().code(), Code::malformed);
  EXPECT_NE(model.status().message().find(name), std::string::npos) << model.status().message();
}

TEST_F(Synthetic, OpeningAndLoadingLeaveThePageCacheAsFound) {
  const std::string path = make(SynthModel::mixtral, SynthScheme::gptq, 8'000'000, 2 << 20);
  make_cold(path);
  const auto resident = [&] {
    std::uint64_t sum = 0;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto file = *io::File::open(entry.path());
      std::uint64_t missing = 0;
      for (const io::ByteRange& run : io::missing_from_cache(io::Descriptor(entry.path()).fd(), 0, file->size()))
        missing += run.size;
      sum += (file->size() + 4095) / 4096 * 4096 - missing;
    }
    return sum;
  };
  if (resident() != 0) GTEST_SKIP() << "the temporary folder's file system keeps its files in memory";
  for (const bool direct : {true, false}) {
    LoadOptions options = small_ring();
    options.direct = options.uring = direct;
    ASSERT_TRUE(load(path, options).ok());
    EXPECT_EQ(resident(), 0u) << "direct " << direct;
  }
}

// An engine that spoils what it reads behind a given offset of any file.
class Broken final : public io::ReadEngine {
 public:
  explicit Broken(std::unique_ptr<io::ReadEngine> base) : base_(std::move(base)) {}
  std::string_view name() const override { return "broken"; }
  Status submit(const io::ReadRequest& r) override { return base_->submit(r); }
  Status wait(std::vector<io::ReadCompletion>& done) override {
    const Status status = base_->wait(done);
    for (io::ReadCompletion& c : done)
      if (++count_ > 5) c.result = -EIO;
    return status;
  }

 private:
  std::unique_ptr<io::ReadEngine> base_;
  int count_ = 0;
};

TEST_F(Synthetic, AFailingDiskIsAnErrorThatNamesTheTensor) {
  const std::string path = make(SynthModel::qwen3_moe, SynthScheme::nvfp4, 20'000'000);
  make_cold(path);
  JobHooks hooks;
  hooks.wrap_engine = [](std::unique_ptr<io::ReadEngine> base) { return std::make_unique<Broken>(std::move(base)); };
  const Result<LoadedModel> model = load_hooked(path, small_ring(), hooks);
  if (model.ok()) GTEST_SKIP() << "everything came from the page cache";
  EXPECT_EQ(model.status().code(), Code::io);
  EXPECT_NE(model.status().message().find("tensor '"), std::string::npos) << model.status().message();
  EXPECT_NE(model.status().message().find(".safetensors"), std::string::npos) << model.status().message();
  EXPECT_NE(model.status().message().find("offset"), std::string::npos) << model.status().message();
}

TEST_F(Synthetic, CancelledByItsProgress) {
  const std::string path = make(SynthModel::llama, SynthScheme::awq, 30'000'000, 8 << 20);
  LoadOptions options = small_ring();
  options.progress = [](const LoadProgress&, void*) { return false; };
  JobHooks hooks;  // slow enough that there is something to cancel
  make_cold(path);
  hooks.wrap_engine = [](std::unique_ptr<io::ReadEngine> base) {
    class Slow final : public io::ReadEngine {
     public:
      explicit Slow(std::unique_ptr<io::ReadEngine> b) : base(std::move(b)) {}
      std::string_view name() const override { return "slow"; }
      Status submit(const io::ReadRequest& r) override { return base->submit(r); }
      Status wait(std::vector<io::ReadCompletion>& done) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return base->wait(done);
      }
      std::unique_ptr<io::ReadEngine> base;
    };
    return std::make_unique<Slow>(std::move(base));
  };
  const auto start = std::chrono::steady_clock::now();
  const Result<LoadedModel> model = load_hooked(path, options, hooks);
  if (model.ok()) GTEST_SKIP() << "everything came from the page cache";
  EXPECT_EQ(model.status().code(), Code::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// --- the packed cache ----------------------------------------------------------------------------------------------------------

void expect_same_model(const LoadedModel& a, const LoadedModel& b) {
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t l = 0; l < a.layers.size(); ++l) {
    EXPECT_EQ(a.layers[l].name, b.layers[l].name);
    EXPECT_EQ(a.layers[l].scheme, b.layers[l].scheme);
    EXPECT_EQ(a.layers[l].weight_names, b.layers[l].weight_names);
    EXPECT_EQ(a.layers[l].experts, b.layers[l].experts);
    EXPECT_EQ(a.layers[l].first_expert, b.layers[l].first_expert);
    EXPECT_EQ(a.layers[l].bias, b.layers[l].bias);
    ASSERT_EQ(a.layers[l].weights.size(), b.layers[l].weights.size());
    for (std::size_t e = 0; e < a.layers[l].weights.size(); ++e) expect_same(a.layers[l].weights[e], b.layers[l].weights[e]);
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    EXPECT_EQ(a.tensors[t].info.name, b.tensors[t].info.name);
    EXPECT_EQ(a.tensors[t].info.type, b.tensors[t].info.type);
    EXPECT_EQ(a.tensors[t].info.shape, b.tensors[t].info.shape);
    ASSERT_EQ(a.tensors[t].bytes.size(), b.tensors[t].bytes.size());
    EXPECT_TRUE(a.tensors[t].bytes.empty() ||
                std::memcmp(a.tensors[t].bytes.data(), b.tensors[t].bytes.data(), a.tensors[t].bytes.size()) == 0);
  }
}

TEST_F(Synthetic, ASecondLoadComesFromTheCacheAsLongAsNothingChanged) {
  std::vector<std::string> paths{make(SynthModel::glm_moe, SynthScheme::nvfp4, 8'000'000),
                                 make(SynthModel::llama, SynthScheme::gptq, 3'000'000)};
  for (const std::string& path : fixtures())
    for (const char* name :
         {"gptq_b4_g128_actorder", "awq_autoawq_b4_g128_bias", "gptoss_mxfp4", "gguf_types_llama", "gguf_q4_k_m_llama"})
      if (path.find(name) != std::string::npos) paths.push_back(path);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    LoadOptions options = small_ring();
    options.cache = folder_.path("cache");
    const Result<LoadedModel> first = load(path, options);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_FALSE(first->report.from_packed);
    EXPECT_TRUE(first->report.cache_written);
    const Result<LoadedModel> second = load(path, options);
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_TRUE(second->report.from_packed);
    EXPECT_EQ(second->report.unplanned_bytes, 0u);
    expect_same_model(*first, *second);
    options.fuse = true;  // another key
    const Result<LoadedModel> fused = load(path, options);
    ASSERT_TRUE(fused.ok());
    EXPECT_FALSE(fused->report.from_packed);
  }
  // By rank, experts dealt out.
  LoadOptions options = small_ring();
  options.cache = folder_.path("cache");
  options.rank = 1;
  options.ranks = 2;
  options.whole_experts = true;
  const Result<LoadedModel> first = load(paths[0], options);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->report.from_packed);
  const Result<LoadedModel> second = load(paths[0], options);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_TRUE(second->report.from_packed);
  expect_same_model(*first, *second);
  // A shard with another time is another checkpoint.
  for (const auto& file : fs::directory_iterator(paths[0])) fs::last_write_time(file.path(), fs::file_time_type::clock::now());
  EXPECT_FALSE(load(paths[0], options)->report.from_packed);
}

TEST_F(Synthetic, DamageOfTheCacheIsFoundAndRepaired) {
  const std::string path = make(SynthModel::llama, SynthScheme::nvfp4, 3'000'000);
  LoadOptions options = small_ring();
  options.cache = folder_.path("cache");
  const Result<LoadedModel> first = load(path, options);
  ASSERT_TRUE(first.ok());
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(options.cache)) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    ASSERT_EQ(files.size(), 3u);
    const std::string file = files[static_cast<std::size_t>(round) % 3];
    SCOPED_TRACE(file);
    if (round < 3) {
      fs::resize_file(file, fs::file_size(file) / 2);
    } else {
      const int fd = ::open(file.c_str(), O_RDWR);
      const auto at = static_cast<off_t>(random() % fs::file_size(file));
      char byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
      byte = static_cast<char>(byte ^ (1 << (random() % 7)));
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
      ::close(fd);
    }
    const Result<LoadedModel> repaired = load(path, options);
    ASSERT_TRUE(repaired.ok()) << repaired.status().message();
    EXPECT_FALSE(repaired->report.from_packed);
    EXPECT_TRUE(repaired->report.cache_written);
    const std::vector<std::string>& notes = repaired->report.notes;
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(),
                            [](const std::string& n) { return n.find("packed cache is made anew") != std::string::npos; }));
    expect_same_model(*first, *repaired);
    const Result<LoadedModel> after = load(path, options);
    ASSERT_TRUE(after.ok());
    EXPECT_TRUE(after->report.from_packed);
    expect_same_model(*first, *after);
  }
}

TEST(Load, BadOptionsAreRefused) {
  LoadOptions options;
  options.rank = 2;
  options.ranks = 2;
  EXPECT_EQ(load("/nowhere", options).status().code(), Code::invalid_argument);
  options = {};
  options.depth = 0;
  EXPECT_EQ(load("/nowhere", options).status().code(), Code::invalid_argument);
  EXPECT_EQ(load("/nowhere", {}).status().code(), Code::io);
}

}  // namespace
}  // namespace swordfish
