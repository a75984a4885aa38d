// Which files make a checkpoint, and the index: formats.md 1.5 and rows 7 and 13-17 of section 9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkpoint/container.h"
#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kOne = "model-00001-of-00002.safetensors";
constexpr const char* kTwo = "model-00002-of-00002.safetensors";

class ShardsTest : public testing::Test {
 protected:
  Result<Container> open(const std::string& base_name = "", const std::string& gptq_default = "") {
    return open_safetensors_folder(folder_.root(), base_name, gptq_default);
  }
  std::string error_of(const std::string& base_name = "") {
    const Result<Container> container = open(base_name);
    return container.ok() ? "" : container.status().message();
  }
  // "a" and "b" in the first shard, "c" in the second, and an index of `weight_map`.
  std::string error_with(std::string_view weight_map) {
    write_two();
    folder_.write(kIndex, fmt::format(R"({{"metadata":{{"total_size":1e30}},"weight_map":{}}})", weight_map));
    return error_of();
  }
  void write_two() {
    folder_.write(kOne, safetensors_of({"a", "b"}));
    folder_.write(kTwo, safetensors_of({"c"}));
  }
  std::vector<std::string> names(const Container& c) {
    std::vector<std::string> out;
    for (const Tensor& t : c.tensors) out.push_back(t.name);
    return out;
  }
  TempFolder folder_;
};

const std::string kGood = fmt::format(R"({{"c":"{1}","a":"{0}","b":"{0}"}})", kOne, kTwo);

TEST_F(ShardsTest, ReadsAShardedSet) {
  EXPECT_EQ(error_with(kGood), "");
  const Container c = std::move(open()).value();
  EXPECT_THAT(names(c), ElementsAre("a", "b", "c"));
  EXPECT_EQ(c.files.size(), 2u);
  EXPECT_EQ(c.path_of(*c.find("c")), folder_.path(kTwo));
  EXPECT_THAT(c.warnings, IsEmpty());
}

TEST_F(ShardsTest, IgnoresTotalSizeAndNumbering) {
  folder_.write("model-00000-of-00001.safetensors", safetensors_of({"a"}));
  folder_.write("model-00001-of-00001.safetensors", safetensors_of({"b"}));
  for (const char* metadata :
       {R"("metadata":{"total_size":-1},)", R"("metadata":{"total_size":"many"},)", R"("metadata":7,)", ""}) {
    folder_.write(
        kIndex,
        fmt::format(R"({{{}"weight_map":{{"a":"model-00000-of-00001.safetensors","b":"model-00001-of-00001.safetensors"}}}})",
                    metadata));
    EXPECT_EQ(error_of(), "") << metadata;
  }
}

TEST_F(ShardsTest, FollowsSymbolicLinksOfTheFolder) {
  ASSERT_EQ(::mkdir(folder_.path("blobs").c_str(), 0700), 0);
  folder_.write("blobs/x", safetensors_of({"a", "b"}));
  ASSERT_EQ(::symlink("blobs/x", folder_.path(kOne).c_str()), 0);
  folder_.write(kTwo, safetensors_of({"c"}));
  folder_.write(kIndex, R"({"weight_map":)" + kGood + "}");
  EXPECT_EQ(error_of(), "");
}

TEST_F(ShardsTest, WarnsOfTensorsThatTheIndexDoesNotName) {
  EXPECT_EQ(error_with(fmt::format(R"({{"b":"{}","c":"{}"}})", kOne, kTwo)), "");
  const Container c = std::move(open()).value();
  EXPECT_THAT(names(c), ElementsAre("b", "c"));
  EXPECT_EQ(c.find("a"), nullptr);
  EXPECT_EQ(c.find("b")->name, "b");
  EXPECT_EQ(c.find("c")->name, "c");
  EXPECT_THAT(c.warnings, ElementsAre(folder_.path(kOne) + ", a: the tensor is not in the index and ignored"));
}

TEST_F(ShardsTest, LoadsOnlyTheShardsOfTheIndex) {
  folder_.write("consolidated.safetensors", "broken");
  EXPECT_EQ(error_with(kGood), "");
}

TEST_F(ShardsTest, Row7DuplicateAcrossShards) {
  folder_.write(kOne, safetensors_of({"a", "b"}));
  folder_.write(kTwo, safetensors_of({"c", "b"}));
  folder_.write(kIndex, R"({"weight_map":)" + kGood + "}");
  EXPECT_EQ(error_of(), fmt::format("duplicate tensor 'b': it is in two files, {} and {}", folder_.path(kOne), folder_.path(kTwo)));
}

TEST_F(ShardsTest, Row13MissingShard) {
  EXPECT_EQ(error_with(R"({"x":"gone.safetensors","w":"gone.safetensors"})"),
            folder_.path(kIndex) + ": shard 'gone.safetensors' is missing (not found in the folder); tensor 'x' needs it");
}

TEST_F(ShardsTest, Row14IllegalShardNames) {
  for (const char* bad :
       {"../m.safetensors", "/m.safetensors", "..\\\\m.safetensors", "", "m.safetensors\\u0000", "a/m.safetensors", ".", "..",
        "C:m.safetensors", "m.bin", "m.safetensors.", "\\u002e\\u002e\\u002fm.safetensors"})
    EXPECT_THAT(error_with(fmt::format(R"({{"t":"{}"}})", bad)),
                AllOf(HasSubstr(folder_.path(kIndex)), HasSubstr("tensor 't': illegal shard file name")))
        << bad;
  EXPECT_THAT(error_with("{\"t\":\"m\\u0000\\n.safetensors\"}"), HasSubstr("illegal shard file name 'm\\x00\\x0a.safetensors'"));
}

TEST_F(ShardsTest, Row15WrongShard) {
  EXPECT_EQ(error_with(fmt::format(R"({{"ghost":"{}"}})", kOne)),
            fmt::format("{}: tensor 'ghost' is not in shard '{}', where the index places it", folder_.path(kIndex), kOne));
  EXPECT_EQ(error_with(fmt::format(R"({{"a":"{}","b":"{}"}})", kTwo, kOne)),
            fmt::format("{}: tensor 'a' is not in shard '{}', where the index places it, but in {}", folder_.path(kIndex), kTwo,
                        folder_.path(kOne)));
}

TEST_F(ShardsTest, Row16WeightMap) {
  folder_.write(kOne, safetensors_of({"a", "b"}));
  folder_.write(kTwo, safetensors_of({"c"}));
  const auto index = [&](std::string_view text) {
    folder_.write(kIndex, text);
    return error_of();
  };
  EXPECT_THAT(index("{}"), HasSubstr("index.json: key 'weight_map' is missing"));
  EXPECT_THAT(index(R"({"weight_map":null})"), HasSubstr("key 'weight_map' is missing"));
  EXPECT_THAT(index(R"({"weight_map":{}})"), HasSubstr("key 'weight_map' is empty"));
  EXPECT_THAT(index("[]"), HasSubstr("expected object with key 'weight_map', found array"));
  EXPECT_THAT(index(R"({"weight_map":[]})"), HasSubstr("key 'weight_map': expected object, found array"));
  EXPECT_THAT(index(R"({"weight_map":{"a":7}})"), HasSubstr("tensor 'a': expected string (a shard file name), found integer"));
  EXPECT_THAT(index(R"({"weight_map":{},"weight_map":{}})"), HasSubstr("duplicate key 'weight_map'"));
  EXPECT_THAT(index(fmt::format(R"({{"weight_map":{{"a":"{0}","b":"{0}","\u0061":"{0}"}}}})", kOne)),
              HasSubstr("weight_map: duplicate key 'a'"));
  EXPECT_THAT(index(fmt::format(R"({{"weight_map":{{"a":"{}","b":"{}","a":"{}"}}}})", kOne, kOne, kTwo)),
              HasSubstr("weight_map: duplicate key 'a'"));
  EXPECT_THAT(index("weight_map: {}"), HasSubstr("index.json: invalid JSON at byte 0"));
}

TEST_F(ShardsTest, Row17AndThePrecedence) {
  EXPECT_THAT(error_of(), HasSubstr(folder_.root() + ": no safetensors file found"));
  folder_.write("b.safetensors", safetensors_of({"b"}));
  EXPECT_THAT(names(open().value()), ElementsAre("b"));  // the only one
  folder_.write("a.safetensors", safetensors_of({"a"}));
  EXPECT_EQ(
      error_of(),
      folder_.root() + ": several safetensors files without an index (model.safetensors.index.json): a.safetensors, b.safetensors");
  EXPECT_THAT(names(open("", "a").value()), ElementsAre("a"));   // the GPTQ default
  EXPECT_THAT(names(open("b", "a").value()), ElementsAre("b"));  // model_file_base_name goes before it
  folder_.write("model.safetensors", safetensors_of({"m"}));
  EXPECT_THAT(names(open("b", "a").value()), ElementsAre("m"));
  write_two();
  folder_.write(kIndex, R"({"weight_map":)" + kGood + "}");
  EXPECT_THAT(names(open("b", "a").value()), ElementsAre("a", "b", "c"));
}

TEST_F(ShardsTest, RefusesABaseNameThatLeavesTheFolder) {
  folder_.write("a.safetensors", safetensors_of({"a"}));
  EXPECT_THAT(error_of("../a"), HasSubstr("key 'model_file_base_name': illegal file name '../a'"));
  EXPECT_THAT(error_of(".."), HasSubstr("illegal file name '..'"));
  EXPECT_EQ(error_of("absent"), "");  // then the only file there is
}

}  // namespace
}  // namespace swordfish
