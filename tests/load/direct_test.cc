// The packed cache through GPUDirect Storage, with a fake cuFile and host memory for a GPU's: the same model whatever fails,
// quietly.
#include "load/direct.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "io/descriptor.h"
#include "io/page_cache.h"
#include "load/fake_cufile.h"
#include "load/host_device.h"
#include "load/like_pack.h"
#include "load/load_hooks.h"
#include "load/resident.h"
#include "synth/synth.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using test::HostDevice;
using test::make_cold;

class Direct : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = ::dlopen(SWORDFISH_FAKE_CUFILE, RTLD_NOW);
    ASSERT_NE(library, nullptr) << ::dlerror();
    fake_ = static_cast<FakeCuFile*>(::dlsym(library, "fake_cufile"));
    ASSERT_NE(fake_, nullptr);
    reset();
    SynthOptions synth;
    synth.model = SynthModel::mixtral;
    synth.scheme = std::random_device{}() % 2 == 0 ? SynthScheme::nvfp4 : SynthScheme::awq;
    synth.bytes = 8'000'000;
    synth.shard_bytes = 3'000'000;
    synth.seed = std::random_device{}();
    path_ = folder_.path("model");
    ASSERT_TRUE(synthesize(path_, synth).ok());
    options_.ring_bytes = 16 << 20;
    options_.threads = 3;
    options_.cache = folder_.path("cache");
    const Result<LoadedModel> model = load(path_, options_);
    ASSERT_TRUE(model.ok()) << model.status().message();
    ASSERT_TRUE(model->report.cache_written);
    sum_ = *resident_sum(*model);
    make_cold(options_.cache);
    const std::string packed = a_cache_file();
    const io::Descriptor direct(packed, O_DIRECT);
    if (!direct || io::missing_from_cache(direct.fd(), 0, std::filesystem::file_size(packed)).empty())
      GTEST_SKIP() << "the file system of " << folder_.root() << " has no O_DIRECT, or no pages apart from its cache";
  }

  std::string a_cache_file() const {
    for (const auto& file : std::filesystem::directory_iterator(options_.cache))
      if (file.path().string().ends_with(".packed.safetensors")) return file.path();
    return {};
  }
  void reset() {
    for (std::atomic<int>* count : {&fake_->drivers, &fake_->files, &fake_->open_files, &fake_->buffers, &fake_->open_buffers,
                                    &fake_->reads, &fake_->unregistered})
      *count = 0;
    fake_->bytes = 0;
    fake_->failing_driver = fake_->failing_file = fake_->failing_buffers = fake_->failing_read = fake_->corrupt_read = 0;
    fake_->read_result = -1;
    fake_->short_reads = fake_->slow_reads = false;
  }
  // Loads from the cold cache and compares; gives the report.
  LoadReport run(const char* library = SWORDFISH_FAKE_CUFILE) {
    make_cold(options_.cache);
    HostDevice device;
    JobHooks hooks;
    hooks.device = &device;
    hooks.cufile = library;
    const Result<LoadedModel> model = load_hooked(path_, options_, hooks);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok()) return {};
    EXPECT_EQ(*resident_sum(*model), sum_);
    if (model->report.from_packed) {  // else the first attempt's memory was given back, which this device does not count
      EXPECT_EQ(model->report.device_bytes, device.allocated);
    }
    EXPECT_EQ(fake_->open_files, 0);
    EXPECT_EQ(fake_->open_buffers, 0);
    return model->report;
  }
  void expect_through_the_ring(const LoadReport& report) {
    EXPECT_TRUE(report.from_packed);
    EXPECT_EQ(report.direct_bytes, 0u);
    EXPECT_GT(report.disk_bytes, 0u);
    EXPECT_TRUE(report.notes.empty());
  }

  TempFolder folder_;
  FakeCuFile* fake_ = nullptr;
  std::string path_, sum_;
  LoadOptions options_;
};

TEST_F(Direct, EverythingComesThatWay) {
  const LoadReport report = run();
  EXPECT_TRUE(report.from_packed);
  EXPECT_EQ(report.direct_bytes, report.source_bytes);
  EXPECT_EQ(fake_->bytes, report.source_bytes) << "each byte once";
  EXPECT_EQ(report.disk_bytes + report.cached_bytes, 0u);
  EXPECT_EQ(report.engine, "cuFile");
  EXPECT_EQ(fake_->drivers, 1);
  EXPECT_EQ(fake_->files, 2);
  EXPECT_GT(fake_->buffers, 0);
  EXPECT_EQ(fake_->unregistered, 0);
}

TEST_F(Direct, ShortReadsGoOn) {
  fake_->short_reads = true;
  const LoadReport report = run();
  EXPECT_EQ(report.direct_bytes, report.source_bytes);
  EXPECT_EQ(fake_->bytes, report.source_bytes);
}

TEST_F(Direct, MemoryThatIsNotRegisteredIsReadInto) {
  fake_->failing_buffers = 1;
  const LoadReport report = run();
  EXPECT_EQ(report.direct_bytes, report.source_bytes);
  EXPECT_EQ(fake_->unregistered, fake_->reads);
}

TEST_F(Direct, WhatIsMissingOrRefusesLeavesTheRing) {
  expect_through_the_ring(run("/nowhere/libcufile.so.0"));
  expect_through_the_ring(run(SWORDFISH_FAKE_CUFILE_OLD));
  EXPECT_EQ(fake_->drivers, 0);
  fake_->failing_driver = 1;
  expect_through_the_ring(run());
  EXPECT_EQ(fake_->files, 0);
  for (const int file : {1, 2}) {
    reset();
    fake_->failing_file = file;
    expect_through_the_ring(run());
    EXPECT_EQ(fake_->reads, 0);
  }
}

TEST_F(Direct, AReadThatFailsLeavesTheRestToTheRing) {
  for (const long result : {-1L, -5011L, 0L, 1L << 40}) {
    for (const int read : {1, 20}) {
      SCOPED_TRACE(result);
      reset();
      fake_->failing_read = read;
      fake_->read_result = result;
      const LoadReport report = run();
      EXPECT_TRUE(report.from_packed);
      EXPECT_TRUE(report.notes.empty()) << "silently";
      EXPECT_LT(report.direct_bytes, report.source_bytes);
      EXPECT_EQ(report.direct_bytes > 0, read > 1);
      EXPECT_GT(report.disk_bytes, 0u);
      EXPECT_LE(fake_->reads, read + options_.threads) << "it is not tried again";
    }
  }
}

TEST_F(Direct, DamageIsFound) {
  fake_->corrupt_read = 5;
  const LoadReport report = run();
  EXPECT_FALSE(report.from_packed);
  ASSERT_FALSE(report.notes.empty());
  EXPECT_NE(report.notes.front().find("damaged"), std::string::npos);
}

TEST_F(Direct, NotWithoutODirectNorForWhatIsInThePageCache) {
  options_.direct = false;
  EXPECT_EQ(run().direct_bytes, 0u);
  options_.direct = true;
  EXPECT_EQ(run(nullptr).direct_bytes, 0u);
  for (const auto& file : std::filesystem::directory_iterator(options_.cache)) {
    const auto opened = *io::File::open(file.path());
    ASSERT_TRUE(opened->read(0, static_cast<std::size_t>(opened->size())).ok());
  }
  HostDevice device;
  JobHooks hooks;
  hooks.device = &device;
  hooks.cufile = SWORDFISH_FAKE_CUFILE;
  const Result<LoadedModel> model = load_hooked(path_, options_, hooks);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->report.direct_bytes, 0u);
  EXPECT_EQ(fake_->drivers, 0);
}

TEST_F(Direct, NvidiasOwnReadsIntoAGpu) {
  if (gpus().found.empty() || ::dlopen("libcufile.so.0", RTLD_NOW) == nullptr) GTEST_SKIP() << "no GPU, or no libcufile";
  options_.device.kind = Device::Kind::cuda;
  make_cold(options_.cache);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.root());  // it leaves a log there
  JobHooks hooks;
  hooks.cufile = "libcufile.so.0";
  const Result<LoadedModel> model = load_hooked(path_, options_, hooks);
  std::filesystem::current_path(before);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(*resident_sum(*model), sum_);
  if (model->report.direct_bytes == 0) GTEST_SKIP() << "it refused; the ring has read everything";
  EXPECT_EQ(model->report.direct_bytes, model->report.source_bytes);
}

TEST_F(Direct, IsCancelled) {
  options_.threads = 1;
  fake_->short_reads = fake_->slow_reads = true;
  options_.progress = [](const LoadProgress&, void*) { return false; };
  make_cold(options_.cache);
  HostDevice device;
  JobHooks hooks;
  hooks.device = &device;
  hooks.cufile = SWORDFISH_FAKE_CUFILE;
  const Result<LoadedModel> model = load_hooked(path_, options_, hooks);
  EXPECT_EQ(model.status().code(), Code::cancelled);
}

}  // namespace
}  // namespace swordfish
