// read_safetensors_header: every row of formats.md 1.2-1.4 and rows 1-12 of section 9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/container.h"
#include "safetensors_bytes.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Matcher;

class SafetensorsTest : public testing::Test {
 protected:
  std::string path() const { return folder_.path("m.safetensors"); }
  Result<Container> open(std::string_view header, std::string_view data = "") {
    return open_safetensors_file(folder_.write("m.safetensors", safetensors_bytes(header, data)));
  }
  // The message, which always names the file; "" when the file is accepted.
  std::string error_of(std::string_view header, std::string_view data = "") {
    const Result<Container> container = open(header, data);
    if (container.ok()) return "";
    EXPECT_EQ(container.status().code(), Code::malformed);
    EXPECT_THAT(container.status().message(), HasSubstr(path()));
    return container.status().message();
  }
  TempFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTheExampleOfTheFormat) {
  const Container c = std::move(open(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   )", "\x12\x34")).value();
  ASSERT_EQ(c.tensors.size(), 1u);
  const Tensor& t = *c.find("w");
  EXPECT_EQ(t.dtype, DType::u8);
  EXPECT_EQ(t.gguf_type, -1);
  EXPECT_THAT(t.shape, ElementsAre(2));
  EXPECT_EQ(t.offset, 8u + 56);
  EXPECT_EQ(t.bytes, 2u);
  EXPECT_EQ(c.path_of(t), path());
  EXPECT_EQ(type_name(t), "U8");
  const Buffer bytes = std::move(c.read(t)).value();
  EXPECT_EQ(std::string(bytes.as<char>(), bytes.size()), "\x12\x34");
  char last = 0;
  ASSERT_TRUE(c.read(t, 1, 1, &last).ok());
  EXPECT_EQ(last, 0x34);
  EXPECT_THAT(c.read(t, 1, 2, &last).message(), HasSubstr("tensor 'w': cannot read 2 bytes at offset 1 of its 2 bytes"));
  EXPECT_EQ(c.find("v"), nullptr);
}

TEST_F(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(error_of("{}"), "");
  EXPECT_EQ(error_of(" \t\r\n{} \n"), "");  // white space on both sides
  EXPECT_EQ(error_of(R"({"__metadata__":null})"), "");
  EXPECT_EQ(error_of(R"({"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x"), "");           // empty name, scalar
  EXPECT_EQ(error_of(R"({"a":{"data_offsets":[0,0],"shape":[3,0],"dtype":"F32"}})"), "");           // zero-size, other field order
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", "xxx"), "");     // two a byte
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", "xxx"), "");  // 24 bits
  EXPECT_EQ(error_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":{"x":[1e999,{"x":-0,"x":null}]}}})", "x"), "");
  // The data order differs from the header order, and a zero-size tensor sits on a boundary.
  const Container c =
      std::move(open(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},
                                         "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                     "12345"))
          .value();
  EXPECT_EQ(c.tensors[0].name, "b");
  EXPECT_EQ(c.tensors[2].name, "a");
  EXPECT_EQ(c.find("b")->offset, c.find("a")->offset + 1);  // unaligned is fine
}

TEST_F(SafetensorsTest, KeepsMetadataAndUnescapesNames) {
  const Container c =
      std::move(
          open(R"({"__metadata__":{"format":"pt","k":"\u00e9"},"a\/b\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
               "x"))
          .value();
  EXPECT_EQ(c.metadata.at("format"), "pt");
  EXPECT_EQ(c.metadata.at("k"), "é");
  EXPECT_NE(c.find(std::string_view("a/b\0", 4)), nullptr);
}

TEST_F(SafetensorsTest, Row1TooSmall) {
  for (std::size_t size : {0u, 7u}) {
    const auto r = open_safetensors_file(folder_.write("m.safetensors", std::string(size, '\0')));
    EXPECT_EQ(r.status().message(),
              path() + ": " + std::to_string(size) + " bytes: too small for header (a safetensors file has at least 8)");
  }
}

TEST_F(SafetensorsTest, Rows2And3HeaderLength) {
  const auto with_length = [&](std::uint64_t length) {
    return open_safetensors_file(folder_.write("m.safetensors", length_word(length) + "{}")).status().message();
  };
  EXPECT_THAT(with_length(100000001), HasSubstr("header length 100000001 is too large: the limit is 100000000 bytes"));
  EXPECT_THAT(with_length(UINT64_MAX), HasSubstr("too large"));
  EXPECT_THAT(with_length(100000000),
              HasSubstr("truncated header: it claims 100000000 bytes after the first 8, the file size is 10"));
  EXPECT_THAT(with_length(3), HasSubstr("truncated header"));
  EXPECT_EQ(with_length(2), "");
}

TEST_F(SafetensorsTest, AHeaderOfExactlyTheLimitIsRead) {
  std::string header = "{}";
  header.resize(100000000, ' ');
  EXPECT_EQ(error_of(header), "");
}

TEST_F(SafetensorsTest, Row4Syntax) {
  EXPECT_THAT(error_of("{\"a\xff\":1}"), HasSubstr("invalid UTF-8 at byte 11"));
  EXPECT_THAT(error_of("\xef\xbb\xbf{}"), HasSubstr("BOM"));
  EXPECT_THAT(error_of(std::string_view("{}\0", 3)), HasSubstr("invalid JSON at byte 10"));
  EXPECT_THAT(error_of(""), HasSubstr("invalid JSON at byte 8"));
  EXPECT_THAT(error_of("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of("{this}"), HasSubstr("invalid JSON at byte 9"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("trailing characters"));
  EXPECT_THAT(error_of(R"({"a\ud800b":{}})"), HasSubstr("lone surrogate"));
  EXPECT_THAT(error_of(R"({"a":{"x":)" + std::string(100000, '[') + std::string(100000, ']') + "}}"), HasSubstr("nested deeper"));
  EXPECT_EQ(error_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":)" + std::string(126, '[') + std::string(126, ']') +
                     "}}"),
            "");
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":)" + std::string(127, '[') +
                       std::string(127, ']') + "}}"),
              HasSubstr("nested deeper"));
}

TEST_F(SafetensorsTest, Row4Fields) {
  const auto entry = [&](std::string_view body) { return error_of("{\"t\":" + std::string(body) + "}", "xxxx"); };
  EXPECT_EQ(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), "");
  EXPECT_THAT(entry(R"(["U8",[4],[0,4]])"), HasSubstr("tensor 't': entry: expected object, found array"));
  EXPECT_THAT(entry(R"(7)"), HasSubstr("expected object, found number"));
  EXPECT_THAT(entry(R"({"shape":[4],"data_offsets":[0,4]})"), HasSubstr("tensor 't': field 'dtype' is missing"));
  EXPECT_THAT(entry(R"({"dtype":"U8","data_offsets":[0,4]})"), HasSubstr("tensor 't': field 'shape' is missing"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4]})"), HasSubstr("tensor 't': field 'data_offsets' is missing"));
  EXPECT_THAT(entry(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})"), HasSubstr("dtype: expected string, found number"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), HasSubstr("shape: expected array, found number"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":["4"],"data_offsets":[0,4]})"), HasSubstr("shape: expected integer, found string"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":null,"data_offsets":[0,4]})"), HasSubstr("shape: expected array, found null"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":"0"})"), HasSubstr("data_offsets: expected array, found string"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[4]})"), HasSubstr("data_offsets: expected 2 integers, found 1"));
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})"),
              HasSubstr("data_offsets: expected 2 integers, found more"));
  for (const char* number : {"-4", "4.0", "4e0", "04", "-0", "18446744073709551616"})
    EXPECT_THAT(entry(R"({"dtype":"U8","shape":[)" + std::string(number) + R"(],"data_offsets":[0,4]})"), HasSubstr("shape"))
        << number;
  EXPECT_THAT(entry(R"({"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]})"),
              HasSubstr("shape: 9223372036854775808 overflows"));
  for (const char* field : {R"("dtype":"U8")", R"("shape":[4])", R"("data_offsets":[0,4])"})
    EXPECT_THAT(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],)" + std::string(field) + "}"),
                HasSubstr("it appears twice"));
}

TEST_F(SafetensorsTest, Row4Metadata) {
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__: key 'a': expected string, found number"));
  EXPECT_THAT(error_of(R"({"__metadata__":[]})"), HasSubstr("__metadata__: expected object or null"));
  EXPECT_THAT(error_of(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("duplicate key '__metadata__'"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"","a":""}})"), HasSubstr("__metadata__: duplicate key 'a'"));
}

TEST_F(SafetensorsTest, Row5UnknownDtype) {
  for (const char* dtype : {"F7_E1M5", "u8", "", "U8 "})
    EXPECT_THAT(error_of(R"({"t":{"dtype":")" + std::string(dtype) + R"(","shape":[0],"data_offsets":[0,0]}})"),
                HasSubstr("tensor 't': unknown dtype '" + std::string(dtype) + "'"));
}

TEST_F(SafetensorsTest, Row6DuplicateTensor) {
  const std::string one = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(error_of(R"({"t":)" + one + R"(,"\u0074":)" + one + "}", "xxxx"),
              HasSubstr("duplicate tensor 't': it appears twice"));
}

TEST_F(SafetensorsTest, Row8HolesAndOverlaps) {
  const auto two = [&](int b0, int e0, int b1, int e1, std::string_view data) {
    return error_of(
        fmt::format(
            R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
            e0 - b0, b0, e0, e1 - b1, b1, e1),
        data);
  };
  EXPECT_EQ(two(0, 4, 4, 6, "xxxxxx"), "");
  EXPECT_THAT(
      two(0, 4, 5, 6, "xxxxxx"),
      HasSubstr("tensor 'b': offset leaves a hole: found data_offsets [5, 6), expected begin 4, where tensor 'a' [0, 4) ends"));
  EXPECT_THAT(two(0, 4, 3, 6, "xxxxxx"),
              HasSubstr("tensor 'b': offset overlap: found data_offsets [3, 6), expected begin 4, where tensor 'a' [0, 4) ends"));
  EXPECT_THAT(two(0, 4, 0, 4, "xxxx"), HasSubstr("overlap"));  // sharing
  EXPECT_THAT(two(1, 4, 4, 6, "xxxxxx"),
              HasSubstr("tensor 'a': offset leaves a hole: found data_offsets [1, 4), expected begin 0"));
  EXPECT_THAT(two(0, 4, 2, 2, "xxxx"), HasSubstr("overlap"));  // a zero-size tensor inside another
  EXPECT_THAT(two(0, 4, 6, 6, "xxxx"), HasSubstr("hole"));
  EXPECT_EQ(two(0, 4, 4, 4, "xxxx"), "");
  EXPECT_THAT(error_of(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "xxxx"),
              HasSubstr("tensor 't' U8 [4]: data_offsets [4, 0): the end lies before the begin"));
}

TEST_F(SafetensorsTest, Rows9To11Sizes) {
  EXPECT_THAT(error_of(R"({"t":{"dtype":"F16","shape":[2,3],"data_offsets":[0,13]}})", "xxxxxxxxxxxxx"),
              HasSubstr("tensor 't' F16 [2, 3]: expected 12 bytes by its shape and dtype, found 13"));
  const auto sized = [&](std::string_view dtype, std::string_view shape) {
    return error_of(fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":[0,0]}}}})", dtype, shape));
  };
  EXPECT_THAT(sized("U8", "[4294967296,4294967296,2]"), HasSubstr("tensor 't' U8 [4294967296, 4294967296, 2]: the size overflows"));
  EXPECT_THAT(sized("U8", "[2305843009213693952]"), HasSubstr("overflows"));  // 2^61 bytes = 2^64 bits
  EXPECT_EQ(sized("U8", "[9223372036854775807,2,0]"), "");                    // a zero dimension makes the size 0, wherever it is
  EXPECT_EQ(sized("F64", "[0,9223372036854775807,9223372036854775807]"), "");
  EXPECT_THAT(error_of(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx"),
              HasSubstr("tensor 't' F4 [3]: 12 bits are not a whole number of bytes"));
  std::string ones = "[0";
  for (int i = 1; i < 64; ++i) ones += ",1";
  EXPECT_EQ(sized("U8", ones + "]"), "");
  EXPECT_THAT(sized("U8", ones + ",1]"), HasSubstr("rank larger than 64"));
}

TEST_F(SafetensorsTest, Row12DataLength) {
  const char* header = R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  EXPECT_EQ(error_of(header, "xxxx"), "");
  EXPECT_THAT(error_of(header, "xxx"),
              HasSubstr("truncated: the declared data ends at byte 65 (the last tensor is 't'), but the file size is 64"));
  EXPECT_THAT(error_of(header, "xxxxx"), HasSubstr("1 trailing bytes: the declared data ends at byte 65"));
  EXPECT_THAT(error_of("{}", "x"), HasSubstr("trailing bytes"));
}

TEST_F(SafetensorsTest, EscapesNamesInMessages) {
  EXPECT_THAT(error_of(R"({"a\u0000\nb":{"dtype":"X","shape":[],"data_offsets":[0,1]}})", "x"), HasSubstr("tensor 'a\\x00\\x0ab'"));
}

TEST_F(SafetensorsTest, ReadsAHeaderOf120000TensorsFast) {
  std::string header = "{";
  constexpr int kCount = 120000;
  for (int i = 0; i < kCount; ++i)
    header += fmt::format(
        R"({}"model.layers.{}.mlp.experts.{}.gate_proj.weight_scale":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
        i == 0 ? "" : ",", i / 1000, i % 1000, i, i + 1);
  header += "}";
  const auto start = std::chrono::steady_clock::now();
  const Container c = std::move(open(header, std::string(kCount, 'x'))).value();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(c.tensors.size(), static_cast<std::size_t>(kCount));
  EXPECT_LT(took.count(), 20.0);  // 0.1 s in a release build; quadratic work would take minutes
}

}  // namespace
}  // namespace swordfish
