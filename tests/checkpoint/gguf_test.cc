// open_gguf: formats.md 7.1, 7.4 and rows 18-22 of section 9.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/container.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

template <class T>
std::string raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}
std::string u32(std::uint32_t v) { return raw(v); }
std::string u64(std::uint64_t v) { return raw(v); }
std::string text(std::string_view s) { return u64(s.size()) + std::string(s); }

// A GGUF file in the making.
struct Gguf {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys;     // key, type and value as bytes
  std::vector<std::string> tensors;  // entries as bytes
  std::string data;
  std::uint64_t alignment = 32;

  Gguf() { key("general.architecture", 8, text("llama")); }
  Gguf& key(std::string_view name, std::uint32_t type, std::string_view value) {
    keys.push_back(text(name) + u32(type) + std::string(value));
    return *this;
  }
  Gguf& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset,
               std::size_t bytes = 0) {
    std::string entry = text(name) + u32(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t d : dims) entry += u64(d);
    tensors.push_back(entry + u32(type) + u64(offset));
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    data += std::string(bytes, 'd');
    return *this;
  }
  std::string bytes() const {
    std::string out = magic + u32(version) + u64(tensors.size()) + u64(keys.size());
    for (const std::string& k : keys) out += k;
    for (const std::string& t : tensors) out += t;
    if (!tensors.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

class GgufTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path("m.gguf"); }
  Result<Container> open(const std::string& bytes) { return open_gguf(folder_.write("m.gguf", bytes)); }
  std::string error_of(const std::string& bytes) {
    const Result<Container> container = open(bytes);
    if (container.ok()) return "";
    EXPECT_THAT(container.status().message(), HasSubstr(path()));
    return container.status().message();
  }
  std::string error_of(const Gguf& file) { return error_of(file.bytes()); }
  TempFolder folder_;
};

TEST_F(GgufTest, ReadsTheExampleOfTheFormat) {
  Gguf file;
  file.keys.clear();
  file.key("general.alignment", 4, u32(32)).tensor("t.weight", {32, 2}, 2, 0, 36);
  EXPECT_EQ(file.bytes().size(), 128u + 36);
  file.key("general.architecture", 8, text("x"));
  const Container c = std::move(open(file.bytes())).value();
  EXPECT_EQ(c.kind, Container::Kind::gguf);
  const Tensor& t = *c.find("t.weight");
  EXPECT_THAT(t.shape, ElementsAre(2, 32));  // slowest first
  EXPECT_EQ(t.gguf_type, 2);
  EXPECT_EQ(type_name(t), "Q4_0");
  EXPECT_EQ(t.bytes, 36u);
  EXPECT_EQ(t.offset % 32, 0u);
  EXPECT_EQ(c.read(t).value().size(), 36u);
}

TEST_F(GgufTest, ReadsEveryKindOfValue) {
  Gguf file;
  std::string strings = u32(8) + u64(3) + text("a") + text("") + text(std::string(70000, 'x'));
  std::string most = u32(0) + u64(4096), many = u32(4) + u64(4097);
  most.resize(most.size() + 4096, 7);
  many.resize(many.size() + 4097 * 4);
  file.key("u8", 0, raw(std::uint8_t{255}))
      .key("i8", 1, raw(std::int8_t{-1}))
      .key("u16", 2, raw(std::uint16_t{65535}))
      .key("i16", 3, raw(std::int16_t{-2}));
  file.key("u32", 4, raw(4000000000u))
      .key("i32", 5, raw(-3))
      .key("f32", 6, raw(0.5f))
      .key("bool", 7, raw(std::uint8_t{1}))
      .key("text", 8, text("é"));
  file.key("u64", 10, raw(UINT64_MAX)).key("i64", 11, raw(INT64_MIN)).key("f64", 12, raw(-0.25));
  file.key("numbers", 9, u32(3) + u64(2) + raw(std::int16_t{-7}) + raw(std::int16_t{9}))
      .key("strings", 9, strings)
      .key("most", 9, most)
      .key("many", 9, many);
  file.key("last", 4, u32(1));
  const Container c = std::move(open(file.bytes())).value();
  EXPECT_EQ(std::get<std::uint64_t>(c.gguf.at("u8")), 255u);
  EXPECT_EQ(std::get<std::int64_t>(c.gguf.at("i8")), -1);
  EXPECT_EQ(std::get<std::uint64_t>(c.gguf.at("u16")), 65535u);
  EXPECT_EQ(std::get<std::int64_t>(c.gguf.at("i16")), -2);
  EXPECT_EQ(std::get<std::uint64_t>(c.gguf.at("u32")), 4000000000u);
  EXPECT_EQ(std::get<std::int64_t>(c.gguf.at("i32")), -3);
  EXPECT_EQ(std::get<double>(c.gguf.at("f32")), 0.5);
  EXPECT_EQ(std::get<bool>(c.gguf.at("bool")), true);
  EXPECT_EQ(std::get<std::string>(c.gguf.at("text")), "é");
  EXPECT_EQ(std::get<std::uint64_t>(c.gguf.at("u64")), UINT64_MAX);
  EXPECT_EQ(std::get<std::int64_t>(c.gguf.at("i64")), INT64_MIN);
  EXPECT_EQ(std::get<double>(c.gguf.at("f64")), -0.25);
  EXPECT_THAT(std::get<GgufArray>(c.gguf.at("numbers")).numbers, ElementsAre(-7.0, 9.0));
  EXPECT_EQ(std::get<GgufArray>(c.gguf.at("strings")).count, 3u);
  EXPECT_EQ(std::get<GgufArray>(c.gguf.at("many")).count, 4097u);
  EXPECT_THAT(std::get<GgufArray>(c.gguf.at("many")).numbers, IsEmpty());
  EXPECT_THAT(std::get<GgufArray>(c.gguf.at("most")).numbers, AllOf(SizeIs(4096), Each(7.0)));
  EXPECT_EQ(std::get<std::uint64_t>(c.gguf.at("last")), 1u);  // what came before was skipped exactly
}

TEST_F(GgufTest, AcceptsWhatTheFormatAllows) {
  Gguf two;
  two.version = 2;
  EXPECT_EQ(error_of(two), "");
  Gguf wide;
  wide.alignment = 64;
  wide.key("general.alignment", 4, u32(64)).tensor("a", {3}, 0, 0, 12).tensor("b", {32}, 8, 64, 34);
  EXPECT_EQ(error_of(wide), "");  // the padding after the last tensor is missing
  EXPECT_EQ(error_of(Gguf().tensor("scalar", {}, 0, 0, 4)), "");
  EXPECT_EQ(error_of(Gguf().tensor("none", {32, 0}, 2, 0).tensor("next", {1}, 24, 0, 1)), "");
  EXPECT_EQ(error_of(Gguf().tensor(std::string(63, 'n'), {1}, 24, 0, 1)), "");
  EXPECT_EQ(error_of(Gguf().tensor("t", {1}, 24, 0, 100)), "");  // bytes after the last tensor
}

TEST_F(GgufTest, Row18MagicVersionEndianness) {
  EXPECT_THAT(error_of(std::string()), HasSubstr("too small"));
  EXPECT_THAT(error_of(std::string("GGUF\3\0\0\0", 8)), HasSubstr("truncated"));
  Gguf file;
  file.magic = "GGML";
  EXPECT_THAT(error_of(file), HasSubstr("wrong magic: expected 47 47 55 46 (GGUF), found 47 47 4d 4c"));
  file.magic = "GGUF";
  for (const std::uint32_t version : {0u, 1u, 4u, 99u}) {
    file.version = version;
    EXPECT_THAT(error_of(file), HasSubstr("GGUF version " + std::to_string(version) + "; supported are 2 and 3"));
  }
  file.version = 0x03000000;
  EXPECT_THAT(error_of(file), HasSubstr("big-endian GGUF (version word 0x03000000)"));
}

TEST_F(GgufTest, Row19Counts) {
  const auto counts = [&](std::uint64_t tensors, std::uint64_t keys) {
    return error_of("GGUF" + u32(3) + u64(tensors) + u64(keys) + std::string(100, '\0'));
  };
  EXPECT_THAT(counts(0, std::uint64_t{1} << 62), HasSubstr("key count 4611686018427387904 cannot be: remaining are 100 bytes"));
  EXPECT_THAT(counts(std::uint64_t{1} << 60, 0), HasSubstr("tensor count 1152921504606846976 cannot be: remaining are 100 bytes"));
}

TEST_F(GgufTest, Row19CutAnywhere) {
  const std::string whole = Gguf().key("n", 4, u32(7)).key("list", 9, u32(5) + u64(2) + u64(1)).tensor("t", {32}, 2, 0, 18).bytes();
  ASSERT_EQ(error_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(error_of(whole.substr(0, size)), "") << size;
}

TEST_F(GgufTest, Row19KeysAndValues) {
  EXPECT_THAT(error_of(Gguf().key("k", 8, u64(std::uint64_t{1} << 63) + "abc")),
              AllOf(HasSubstr("key 'k': string length 9223372036854775808"), HasSubstr("remaining: 3 bytes")));
  EXPECT_THAT(error_of(Gguf().key("k", 9, u32(4) + u64(std::uint64_t{1} << 61))),
              AllOf(HasSubstr("key 'k': array count 2305843009213693952 of u32"), HasSubstr("remaining: 0 bytes")));
  EXPECT_THAT(error_of(Gguf().key("k", 9, u32(8) + u64(2) + text("a") + u64(999))), HasSubstr("key 'k'"));
  EXPECT_THAT(error_of(Gguf().key("k", 9, u32(9) + u64(1) + u32(4) + u64(1) + u32(7))),
              HasSubstr("key 'k': an array of arrays (nested array)"));
  EXPECT_THAT(error_of(Gguf().key("k", 9, u32(13) + u64(1) + u32(4))), HasSubstr("key 'k': unknown array element type 13"));
  EXPECT_THAT(error_of(Gguf().key("k", 13, u64(0))), HasSubstr("key 'k': unknown value type 13"));
  EXPECT_THAT(error_of(Gguf().key("k", 12, u32(0))), HasSubstr("truncated: key 'k' needs 8 bytes"));
  EXPECT_THAT(error_of(Gguf().key("k", 4, u32(1)).key("k", 4, u32(1))), HasSubstr("duplicate key 'k'"));
  EXPECT_THAT(error_of(Gguf().key("", 4, u32(1))), HasSubstr("key 1 of 2 is empty"));
  EXPECT_THAT(error_of(Gguf().key("\xff", 4, u32(1))), HasSubstr("is not UTF-8: '\\xff'"));
  EXPECT_THAT(error_of(Gguf().key(std::string(65536, 'k'), 4, u32(1))), HasSubstr("longer than the limit of 65535"));
}

TEST_F(GgufTest, RequiresTheArchitecture) {
  Gguf file;
  file.keys.clear();
  EXPECT_THAT(error_of(file), HasSubstr("key 'general.architecture' is missing"));
  EXPECT_THAT(error_of(file.key("general.architecture", 4, u32(1))), HasSubstr("key 'general.architecture': expected string"));
}

TEST_F(GgufTest, Row20Alignment) {
  for (const std::uint32_t bad : {0u, 48u, 3u, 0xffffffffu})
    EXPECT_THAT(error_of(Gguf().key("general.alignment", 4, u32(bad))),
                HasSubstr("key 'general.alignment': expected a power of two, found " + std::to_string(bad)));
  EXPECT_THAT(error_of(Gguf().key("general.alignment", 8, text("32"))),
              HasSubstr("key 'general.alignment': expected type u32, found string"));
  EXPECT_THAT(error_of(Gguf().key("general.alignment", 10, u64(32))), HasSubstr("expected type u32, found u64"));
}

TEST_F(GgufTest, Row20Offsets) {
  const auto second = [&](std::uint64_t offset) {
    return error_of(Gguf().tensor("a", {32, 2}, 2, 0, 36).tensor("b", {1}, 0, offset, 4));
  };
  EXPECT_EQ(second(64), "");
  EXPECT_THAT(second(36), HasSubstr("tensor 'b': offset 36 is misaligned: expected 64 (alignment 32"));
  EXPECT_THAT(second(32), HasSubstr("tensor 'b': offset 32 is an overlap"));
  EXPECT_THAT(second(0), HasSubstr("overlap"));
  EXPECT_THAT(second(96), HasSubstr("offset 96 is beyond"));
  EXPECT_THAT(second(UINT64_MAX - 31), HasSubstr("offset 18446744073709551584 is beyond"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {1}, 0, 32, 36)),
              HasSubstr("offset 32 is beyond the end of the tensor before it: expected 0"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {32, 2}, 2, 0, 35)), HasSubstr("truncated: tensor 'a' of 36 bytes"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {std::uint64_t{1} << 40}, 24, 0, 35)),
              HasSubstr("truncated: tensor 'a' of 1099511627776 bytes"));
}

TEST_F(GgufTest, Dimensions) {
  EXPECT_THAT(error_of(Gguf().tensor("a", {1, 1, 1, 1, 1}, 0, 0, 4)), HasSubstr("tensor 'a': 5 dimensions"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {192, std::uint64_t{1} << 60}, 0, 0)),
              HasSubstr("tensor 'a': dimensions {192, 1152921504606846976}: negative or overflow"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {std::uint64_t(-64)}, 0, 0)), HasSubstr("negative or overflow"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {std::uint64_t{1} << 62, 2}, 0, 0)), HasSubstr("negative or overflow"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {std::uint64_t{1} << 62}, 28, 0)), HasSubstr("size overflows"));
  EXPECT_THAT(error_of(Gguf().tensor("a", {48}, 2, 0, 36)),
              HasSubstr("tensor 'a': the first dimension 48 is no multiple of the block of Q4_0 (32 elements)"));
}

TEST_F(GgufTest, Names) {
  EXPECT_THAT(error_of(Gguf().tensor("a", {1}, 24, 0, 1).tensor("a", {1}, 24, 32, 1)), HasSubstr("duplicate tensor 'a'"));
  EXPECT_THAT(error_of(Gguf().tensor(std::string(64, 'n'), {1}, 24, 0, 1)), HasSubstr("is too long: its length is 64 bytes"));
  EXPECT_THAT(error_of(Gguf().tensor("a\xff", {1}, 24, 0, 1)), HasSubstr("is not UTF-8"));
}

TEST_F(GgufTest, Row21Types) {
  for (const std::uint32_t bad : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 200u, 0xffffffffu})
    EXPECT_THAT(error_of(Gguf().tensor("a", {256}, bad, 0, 4096)),
                HasSubstr("tensor 'a': tensor type id " + std::to_string(bad) + " is unknown or was removed"));
  // Known types without a rule for packing stay in the container.
  EXPECT_EQ(type_name(open(Gguf().tensor("a", {256}, 10, 0, 84).bytes()).value().tensors[0]), "Q2_K");
}

TEST(GgmlTypes, AreThoseOfTheFormat) {
  // name, bytes and elements by id, as formats.md 7.2 and 7.4 give them.
  const std::vector<GgmlType> table = {
      {0, "F32", 4, 1},        {1, "F16", 2, 1},         {2, "Q4_0", 18, 32},    {3, "Q4_1", 20, 32},    {6, "Q5_0", 22, 32},
      {7, "Q5_1", 24, 32},     {8, "Q8_0", 34, 32},      {9, "Q8_1", 36, 32},    {10, "Q2_K", 84, 256},  {11, "Q3_K", 110, 256},
      {12, "Q4_K", 144, 256},  {13, "Q5_K", 176, 256},   {14, "Q6_K", 210, 256}, {15, "Q8_K", 292, 256}, {16, "IQ2_XXS", 66, 256},
      {17, "IQ2_XS", 74, 256}, {18, "IQ3_XXS", 98, 256}, {19, "IQ1_S", 50, 256}, {20, "IQ4_NL", 18, 32}, {21, "IQ3_S", 110, 256},
      {22, "IQ2_S", 82, 256},  {23, "IQ4_XS", 136, 256}, {24, "I8", 1, 1},       {25, "I16", 2, 1},      {26, "I32", 4, 1},
      {27, "I64", 8, 1},       {28, "F64", 8, 1},        {29, "IQ1_M", 56, 256}, {30, "BF16", 2, 1},     {34, "TQ1_0", 54, 256},
      {35, "TQ2_0", 66, 256},  {39, "MXFP4", 17, 32},    {40, "NVFP4", 36, 64},  {41, "Q1_0", 18, 128},  {42, "Q2_0", 18, 64}};
  std::size_t known = 0;
  for (int id = -2; id < 300; ++id) known += find_ggml_type(id) != nullptr;
  EXPECT_EQ(known, table.size());
  for (const GgmlType& row : table) {
    const GgmlType* found = find_ggml_type(row.id);
    ASSERT_NE(found, nullptr) << row.id;
    EXPECT_STREQ(found->name, row.name);
    EXPECT_EQ(found->block_bytes, row.block_bytes) << row.name;
    EXPECT_EQ(found->block_elements, row.block_elements) << row.name;
  }
  EXPECT_EQ(find_ggml_type(std::int64_t{1} << 32), nullptr);
}

// --- split models ---------------------------------------------------------------------------------------------------------------

class GgufSplitTest : public testing::Test {
 protected:
  static std::string name(int number, int count) { return fmt::format("m-{:05}-of-{:05}.gguf", number, count); }
  static Gguf part(std::uint16_t no, std::uint16_t count, std::int32_t total) {
    Gguf file;
    if (no != 0) file.keys.clear();
    file.key("split.no", 2, raw(no)).key("split.count", 2, raw(count)).key("split.tensors.count", 5, raw(total));
    return file;
  }
  // Three files; the first without tensors.
  void write_good() {
    folder_.write(name(1, 3), part(0, 3, 3).bytes());
    folder_.write(name(2, 3), part(1, 3, 3).tensor("a", {1}, 24, 0, 1).tensor("b", {1}, 24, 32, 1).bytes());
    folder_.write(name(3, 3), part(2, 3, 3).tensor("c", {1}, 24, 0, 1).bytes());
  }
  std::string error_of(const std::string& file) {
    const Result<Container> container = open_gguf(folder_.path(file));
    return container.ok() ? "" : container.status().message();
  }
  TempFolder folder_;
};

TEST_F(GgufSplitTest, JoinsThePartsOfAModel) {
  write_good();
  const Container c = std::move(open_gguf(folder_.path(name(1, 3)))).value();
  ASSERT_EQ(c.tensors.size(), 3u);
  EXPECT_EQ(c.files.size(), 3u);
  EXPECT_EQ(c.path_of(*c.find("b")), folder_.path(name(2, 3)));
  EXPECT_EQ(c.path_of(*c.find("c")), folder_.path(name(3, 3)));
  EXPECT_EQ(c.gguf.count("general.architecture"), 1u);
}

TEST_F(GgufSplitTest, Row22) {
  write_good();
  EXPECT_EQ(error_of(name(2, 3)), folder_.path(name(2, 3)) + ": key 'split.no': expected 0, found 1");
  folder_.write("other.gguf", part(0, 3, 3).bytes());
  EXPECT_THAT(error_of("other.gguf"),
              HasSubstr("other.gguf: key 'split.count' is 3: expected a file name that ends in -00001-of-00003.gguf"));
  std::filesystem::rename(folder_.path(name(3, 3)), folder_.path("kept"));
  EXPECT_THAT(error_of(name(1, 3)), HasSubstr(fmt::format("split file 3 of 3 is missing: {} not found", folder_.path(name(3, 3)))));
  folder_.write(name(3, 3), part(1, 3, 3).tensor("c", {1}, 24, 0, 1).bytes());
  EXPECT_EQ(error_of(name(1, 3)), folder_.path(name(3, 3)) + ": key 'split.no': expected 2, found 1");
  folder_.write(name(3, 3), part(2, 4, 3).tensor("c", {1}, 24, 0, 1).bytes());
  EXPECT_EQ(error_of(name(1, 3)), folder_.path(name(3, 3)) + ": key 'split.count': expected 3, found 4");
  folder_.write(name(3, 3), Gguf().tensor("c", {1}, 24, 0, 1).bytes());
  EXPECT_EQ(error_of(name(1, 3)), folder_.path(name(3, 3)) + ": key 'split.no': expected 2, found no such key");
  folder_.write(name(3, 3), part(2, 3, 3).bytes());
  EXPECT_EQ(error_of(name(1, 3)), folder_.path(name(1, 3)) + ": key 'split.tensors.count': expected 2, found 3");
  folder_.write(name(3, 3), part(2, 3, 3).tensor("a", {1}, 24, 0, 1).bytes());
  EXPECT_EQ(error_of(name(1, 3)),
            fmt::format("duplicate tensor 'a': it is in two files, {} and {}", folder_.path(name(2, 3)), folder_.path(name(3, 3))));
  Gguf bad;
  bad.key("split.count", 8, text("3"));
  folder_.write("x.gguf", bad.bytes());
  EXPECT_THAT(error_of("x.gguf"), HasSubstr("key 'split.count': expected a non-negative integer"));
}

TEST_F(GgufSplitTest, AModelOfOnePartNeedsNoSpecialName) {
  folder_.write("x.gguf", part(0, 1, 0).bytes());
  EXPECT_EQ(error_of("x.gguf"), "");
}

}  // namespace
}  // namespace swordfish
