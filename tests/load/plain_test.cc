// Tensors that belong to no layer: large ones come in parts, from any thread and in any order, to host memory and to a device, from
// the checkpoint, the packed cache and cuFile.
#include "load/plain_tensors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "checkpoint/safetensors_writer.h"
#include "io/staging_plan.h"
#include "load/fake_cufile.h"
#include "load/host_device.h"
#include "load/like_pack.h"
#include "load/load_hooks.h"
#include "load/resident.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

TEST(PlainParts, CoverTheTensorAndEndAtPages) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t offset = random() % (std::uint64_t{1} << (round % 40)),
                        bytes = random() % (std::uint64_t{1} << (round % 28));
    std::uint64_t next = 0;
    for (const PlainPart& part : plain_parts(7, offset, bytes)) {
      EXPECT_EQ(part.tensor, 7u);
      EXPECT_EQ(part.begin, next);
      EXPECT_LE(part.size, kPlainBytes);
      EXPECT_EQ(part.size == 0, bytes == 0);
      next += part.size;
      EXPECT_TRUE(next == bytes || (offset + next) % io::kPage == 0);
    }
    EXPECT_EQ(next, bytes);
  }
}

class Plain : public testing::Test {
 protected:
  void SetUp() override {
    options_.ring_bytes = 16 << 20;
    options_.threads = 4;
    std::mt19937_64 random(std::random_device{}());
    const std::vector<std::pair<std::string, std::size_t>> sizes{
        {"few", 13}, {"large", (20 << 20) + random() % 9000}, {"none", 0}, {"parts", 16 << 20}, {"last", 5000}};
    std::vector<SafetensorsWriter::Entry> entries;
    for (const auto& [name, size] : sizes) entries.push_back({name, DType::u8, {static_cast<std::int64_t>(size)}});
    path_ = folder_.path("model");
    std::filesystem::create_directory(path_);
    std::ofstream(path_ + "/config.json")
        << R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true}})";
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path_ + "/model.safetensors", true, entries, {});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      std::string& bytes = values_[sizes[t].first];
      bytes.resize(sizes[t].second);
      for (char& byte : bytes) byte = static_cast<char>(random());
      ASSERT_TRUE(writer->write(t, 0, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()).ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  Result<LoadedModel> load_to(LoadDevice* device, const char* cufile = nullptr) {
    JobHooks hooks;
    hooks.device = device;
    hooks.cufile = cufile;
    return load_hooked(path_, options_, hooks);
  }
  void expect_all(const Result<LoadedModel>& model) {
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->report.unplanned_bytes, 0u);
    ASSERT_EQ(model->tensors.size(), values_.size());
    for (std::size_t t = 0; t < model->tensors.size(); ++t) {
      const LoadedTensor& tensor = model->tensors[t];
      const std::string& expected = values_.at(tensor.info.name);
      ASSERT_EQ(tensor.info.bytes, expected.size());
      const void* const bytes = tensor.device == nullptr ? tensor.bytes.data() : tensor.device;
      EXPECT_TRUE(expected.empty() || std::memcmp(bytes, expected.data(), expected.size()) == 0) << tensor.info.name;
    }
  }
  std::string plain_cache() const {
    for (const auto& file : std::filesystem::directory_iterator(options_.cache))
      if (file.path().string().ends_with(".plain.safetensors")) return file.path();
    return {};
  }

  TempFolder folder_;
  std::string path_;
  std::map<std::string, std::string> values_;
  LoadOptions options_;
};

TEST_F(Plain, InPartsToHostMemoryAndToADevice) {
  for (const bool cold : {true, false}) {
    SCOPED_TRACE(cold);
    if (cold) test::make_cold(path_);
    const Result<LoadedModel> model = load_to(nullptr);
    expect_all(model);
    EXPECT_EQ(model->report.threads, 4) << "more parts than threads";
    EXPECT_LT(model->report.disk_bytes, model->report.source_bytes + 3 * io::kPage) << "no page twice";
    if (cold) test::make_cold(path_);
    test::HostDevice device;
    const Result<LoadedModel> there = load_to(&device);
    expect_all(there);
    EXPECT_EQ(*resident_sum(*model), *resident_sum(*there));
  }
}

TEST_F(Plain, FromThePackedCacheAndThroughCuFile) {
  options_.cache = folder_.path("cache");
  ASSERT_TRUE(load_to(nullptr)->report.cache_written);
  for (const bool to_device : {false, true}) {
    for (const char* cufile : {static_cast<const char*>(nullptr), SWORDFISH_FAKE_CUFILE}) {
      test::make_cold(options_.cache);
      test::HostDevice device;
      const Result<LoadedModel> model = load_to(to_device ? &device : nullptr, cufile);
      expect_all(model);
      EXPECT_TRUE(model->report.from_packed);
    }
  }
}

TEST_F(Plain, DamageOfAnyPartIsFound) {
  options_.cache = folder_.path("cache");
  ASSERT_TRUE(load_to(nullptr)->report.cache_written);
  const auto size = std::filesystem::file_size(plain_cache());
  for (const std::uint64_t from_end : {std::uint64_t{1}, size / 4, size / 2, size * 3 / 4}) {
    const int fd = ::open(plain_cache().c_str(), O_RDWR);
    char byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(size - from_end)), 1);
    byte = static_cast<char>(byte ^ 8);
    ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(size - from_end)), 1);
    ::close(fd);
    const Result<LoadedModel> repaired = load_to(nullptr);
    expect_all(repaired);
    EXPECT_FALSE(repaired->report.from_packed);
    ASSERT_FALSE(repaired->report.notes.empty());
    EXPECT_NE(repaired->report.notes.back().find("damaged"), std::string::npos) << repaired->report.notes.back();
  }
}

}  // namespace
}  // namespace swordfish
