// Escaping of names for messages, ASCII case, shapes.
#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace swordfish {
namespace {

TEST(Printable, EscapesControlBytesAndBadUtf8) {
  EXPECT_EQ(printable("model.q_proj é"), "model.q_proj é");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x7f", 5)), "a\\x00b\\x0a\\x7f");
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
}

TEST(Printable, CutsLongNamesBetweenCharacters) {
  EXPECT_EQ(printable(std::string(1000, 'x')), std::string(300, 'x') + "... (1000 bytes)");
  std::string accents = "x";
  for (int i = 0; i < 500; ++i) accents += "é";
  EXPECT_THAT(printable(accents), testing::Not(testing::HasSubstr("\\x")));
}

TEST(AsciiCase, LeavesOtherBytesAlone) {
  EXPECT_EQ(ascii_lower("GEMM_é_É"), "gemm_é_É");
  EXPECT_TRUE(ascii_iequals("Gemm", "gEMM"));
  EXPECT_FALSE(ascii_iequals("gemm", "gemv"));
  EXPECT_FALSE(ascii_iequals("gem", "gemm"));
}

TEST(ShapeText, IsWrittenAsAList) {
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{128, 64}), "[128, 64]");
  EXPECT_EQ(shape_text({}), "[]");
}

}  // namespace
}  // namespace swordfish
