// JsonScanner: the grammar, value by value.
#include "base/json_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <random>

#include "base/json.h"

namespace swordfish {
namespace {

using testing::HasSubstr;

bool accepts(std::string_view text) {
  JsonScanner scanner(text, "f");
  return scanner.check_encoding().ok() && scanner.skip_value(kJsonMaxDepth).ok() && scanner.finish().ok();
}

TEST(JsonScanner, FollowsTheGrammar) {
  for (const char* good : {"0", "-0", "10", "1.5", "1e9", "1E+9", "-1.25e-3", "true", "false", "null", "\"\"", "[]", "{}",
                           " [ 1 , [ ] , { } ] ", "{\"a\":1,\"b\":[{\"c\":null}]}", "\"\\n\\u00e9\\/\\ud83d\\ude00\"", "\t\r\n 1"})
    EXPECT_TRUE(accepts(good)) << good;
  for (const char* bad : {"",         " ",    "01",   "-",    "+1",    "1.",      ".5",         "1e",          "1e+",       "tru",
                          "nulll",    "True", "[1,]", "[,1]", "[1 2]", "{,}",     "{\"a\":1,}", "{\"a\"}",     "{\"a\" 1}", "{1:2}",
                          "{\"a\":}", "[",    "{",    "\"",   "\"\\",  "\"\\x\"", "\"\\u12\"",  "\"\\u12g4\"", "\"\n\"",    "]",
                          "[}",       "{]",   "1 2",  "'a'"})
    EXPECT_FALSE(accepts(bad)) << bad;
}

// Every short text over a small alphabet: the scanner and simdjson accept the same.
TEST(JsonScanner, AgreesWithSimdjson) {
  constexpr std::string_view kAlphabet = "[]{},:\"a\\u0 1-.e";
  std::mt19937 random(7);
  simdjson::dom::parser parser;
  int accepted = 0;
  for (int i = 0; i < 300000; ++i) {
    std::string text;
    for (std::size_t length = 1 + random() % 7; text.size() < length;) text += kAlphabet[random() % kAlphabet.size()];
    const bool theirs = parser.parse(text).error() == simdjson::SUCCESS;
    ASSERT_EQ(accepts(text), theirs) << text;
    accepted += theirs;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(JsonScanner, ReadsMembersAndElements) {
  JsonScanner scanner(R"( {"a\u0000b": [1, 18446744073709551615], "c": null, "d": "x\ty"} )", "f");
  std::string key, text;
  bool first = true, first_element = true;
  std::uint64_t n = 0;
  ASSERT_EQ(scanner.next_kind(), "object");
  ASSERT_TRUE(scanner.open('{').ok());
  ASSERT_TRUE(*scanner.next_member(first, key));
  EXPECT_EQ(key, std::string("a\0b", 3));
  ASSERT_TRUE(scanner.open('[').ok());
  ASSERT_TRUE(*scanner.next_element(first_element));
  ASSERT_TRUE(scanner.read_unsigned(n).ok());
  ASSERT_TRUE(*scanner.next_element(first_element));
  ASSERT_TRUE(scanner.read_unsigned(n).ok());
  EXPECT_EQ(n, 18446744073709551615u);
  ASSERT_FALSE(*scanner.next_element(first_element));
  ASSERT_TRUE(*scanner.next_member(first, key));
  ASSERT_TRUE(scanner.skip_null().ok());
  ASSERT_TRUE(*scanner.next_member(first, key));
  ASSERT_TRUE(scanner.read_string(text).ok());
  EXPECT_EQ(text, "x\ty");
  ASSERT_FALSE(*scanner.next_member(first, key));
  EXPECT_TRUE(scanner.finish().ok());
}

TEST(JsonScanner, RefusesIntegersThatAreNotPlain) {
  for (const char* text : {"-1", "-0", "1.0", "1e2", "01", "18446744073709551616", "\"1\"", "null", "99999999999999999999999"}) {
    JsonScanner scanner(text, "f");
    std::uint64_t n = 0;
    EXPECT_FALSE(scanner.read_unsigned(n).ok()) << text;
  }
}

TEST(JsonScanner, CountsOffsetsFromTheBase) {
  JsonScanner scanner("{]", "w", 8);
  EXPECT_THAT(scanner.skip_value(128).message(), HasSubstr("w: invalid JSON at byte 9: expected"));
}

TEST(JsonScanner, LimitsDepthAsAsked) {
  EXPECT_TRUE(JsonScanner("[[[]]]", "f").skip_value(3).ok());
  EXPECT_FALSE(JsonScanner("[[[]]]", "f").skip_value(2).ok());
}

}  // namespace
}  // namespace swordfish
