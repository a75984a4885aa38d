// Json and its typed look-ups: what is refused, and with which words.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace swordfish {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text) {
  const Result<Json> json = Json::parse(text, "dir/config.json");
  return json.ok() ? "" : json.status().message();
}

Json parsed(std::string_view text) {
  Result<Json> json = Json::parse(text, "f.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  return std::move(*json);
}

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonParse, AcceptsEveryKindOfValue) {
  const Json json = parsed(R"( {"a": [1, -2, 3.5, true, false, null, "\u00e9\ud83d\ude00"], "b": {}} )");
  EXPECT_TRUE(json.root().is_object());
  EXPECT_EQ(json.what(), "f.json");
  EXPECT_EQ(std::string_view(json.root()["a"].at(6).get_string()), "é😀");
}

TEST(JsonParse, NamesFileAndByteOfASyntaxError) {
  EXPECT_EQ(error_of(R"({"a": 1,})"), "dir/config.json: invalid JSON at byte 8: expected a key (a string), found character '}'");
  EXPECT_THAT(error_of("bits = 4\n"), HasSubstr("invalid JSON at byte 0: expected a value, found character 'b'"));
  EXPECT_THAT(error_of(""), HasSubstr("found the end of the text"));
  EXPECT_THAT(error_of("{} x"), HasSubstr("byte 3: expected nothing after the document (trailing characters)"));
  EXPECT_THAT(error_of(std::string_view("{}\0\0", 4)), HasSubstr("found byte 0x00"));
}

TEST(JsonParse, RefusesEncodingFaults) {
  EXPECT_THAT(error_of("\xef\xbb\xbf{}"), HasSubstr("BOM"));
  EXPECT_THAT(error_of("{\"a\xff\": 1}"), HasSubstr("invalid UTF-8 at byte 3 (found 0xff)"));
  EXPECT_THAT(error_of("[\"\xc3\xa9\xe2\x82\"]"), HasSubstr("invalid UTF-8 at byte 4 (found 0xe2)"));
}

TEST(JsonParse, RefusesLoneSurrogates) {
  for (const char* text :
       {R"(["\ud800"])", R"(["\udc00"])", R"(["\uDFFF"])", R"(["\ud800\u0041"])", R"(["\ud800\ud800"])", R"(["a\\\udc00"])"})
    EXPECT_THAT(error_of(text), HasSubstr("lone surrogate")) << text;
  EXPECT_EQ(error_of(R"(["\\udc00", "\ud800\udc00", "\u00dc\udbff\udfff"])"), "");
}

TEST(JsonParse, LimitsNesting) {
  EXPECT_EQ(error_of(nested(kJsonMaxDepth - 1)), "");
  EXPECT_THAT(error_of(nested(kJsonMaxDepth + 1)), HasSubstr("nested deeper than 128 levels"));
  EXPECT_THAT(error_of(nested(200000)), HasSubstr("nested deeper than 128 levels"));
}

TEST(JsonParse, RefusesNumbersThatNoTypeHolds) {
  EXPECT_THAT(error_of("[1e999]"), HasSubstr("invalid JSON"));
  EXPECT_THAT(error_of("[123456789012345678901234567890]"), HasSubstr("invalid JSON"));
  EXPECT_EQ(error_of("[18446744073709551615, -9223372036854775808]"), "");
}

TEST(JsonNonFinite, AreReplacedOutsideOfStrings) {
  const auto mark = [](std::string_view word) { return "<" + std::string(word) + ">"; };
  EXPECT_EQ(replace_non_finite("", mark), "");
  EXPECT_EQ(replace_non_finite("[NaN,-Infinity,Infinity]", mark), "[<NaN>,<-Infinity>,<Infinity>]");
  EXPECT_EQ(replace_non_finite("{\"NaN\":\"a\\\"NaN\",\"b\":NaN}", mark), "{\"NaN\":\"a\\\"NaN\",\"b\":<NaN>}");
  EXPECT_EQ(replace_non_finite("[Infinit,-1,\"open NaN\\", mark), "[Infinit,-1,\"open NaN\\");
}

TEST(JsonDuplicates, AreFoundAtAnyDepth) {
  EXPECT_TRUE(check_no_duplicate_keys(parsed(R"({"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}]})").root(), "f").ok());
  const Json json = parsed(R"({"a": [{"x": {"b": 1, "c": 2, "b": 1}}]})");
  EXPECT_EQ(check_no_duplicate_keys(json.root(), "f.json").message(), "f.json: duplicate key 'b': it appears twice in one object");
  const Json escaped = parsed(R"({"b": 1, "\u0062": 2})");
  EXPECT_FALSE(check_no_duplicate_keys(escaped.root(), "f").ok());
}

TEST(JsonGet, ReturnsValuesAndTreatsNullAsAbsent) {
  const Json json = parsed(R"({"i": -4, "n": 0.5, "b": true, "s": "x", "o": {}, "a": [], "z": null})");
  const auto& o = json.root();
  EXPECT_EQ(*get_int(o, "i", "f").value(), -4);
  EXPECT_EQ(*get_number(o, "n", "f").value(), 0.5);
  EXPECT_EQ(*get_number(o, "i", "f").value(), -4.0);
  EXPECT_EQ(*get_bool(o, "b", "f").value(), true);
  EXPECT_EQ(*get_string(o, "s", "f").value(), "x");
  EXPECT_TRUE(get_object(o, "o", "f").value()->is_object());
  EXPECT_TRUE(get_array(o, "a", "f").value()->is_array());
  EXPECT_FALSE(get_int(o, "z", "f").value().has_value());
  EXPECT_FALSE(get_int(o, "absent", "f").value().has_value());
  EXPECT_EQ(*get_string(o, "S", "f").value(), "x");  // keys without regard to case
}

TEST(JsonGet, NamesKeyAndTypes) {
  const Json json = parsed(R"({"s": "4", "d": 4.0, "u": 18446744073709551615, "o": {}, "k": 1, "K": 2})");
  const auto& o = json.root();
  EXPECT_EQ(get_int(o, "s", "f.json").status().message(), "f.json: key 's': expected integer, found string");
  EXPECT_EQ(get_int(o, "d", "f.json").status().message(), "f.json: key 'd': expected integer, found number");
  EXPECT_EQ(get_int(o, "u", "f.json").status().message(), "f.json: key 'u': expected integer, found integer beyond 2^63-1");
  EXPECT_EQ(get_string(o, "o", "f.json").status().message(), "f.json: key 'o': expected string, found object");
  EXPECT_EQ(get_bool(o, "s", "f.json").status().message(), "f.json: key 's': expected boolean, found string");
  EXPECT_EQ(get_object(o, "s", "f.json").status().message(), "f.json: key 's': expected object, found string");
  EXPECT_EQ(get_array(o, "o", "f.json").status().message(), "f.json: key 'o': expected array, found object");
  EXPECT_EQ(get_number(o, "s", "f.json").status().message(), "f.json: key 's': expected number, found string");
  EXPECT_EQ(get_int(o, "k", "f.json").status().message(), "f.json: duplicate key 'k': the object holds 'k' and 'K'");
  EXPECT_EQ(get_int(parsed("[1]").root(), "k", "f.json").status().message(), "f.json: expected object with key 'k', found array");
}

}  // namespace
}  // namespace swordfish
