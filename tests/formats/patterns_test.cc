// Patterns of configurations: where they match, what they refuse, and that hostile ones end.
#include "formats/patterns.h"

#include <gtest/gtest.h>

namespace swordfish {
namespace {

TEST(Pattern, MatchesAtTheStartOnly) {
  const auto pattern = Pattern::compile("model\\.layers\\.1", "test");
  ASSERT_TRUE(pattern.ok());
  EXPECT_TRUE(pattern->match("model.layers.1").value());
  EXPECT_TRUE(pattern->match("model.layers.12.mlp").value());  // not anchored at the end
  EXPECT_FALSE(pattern->match("x.model.layers.1").value());
  EXPECT_TRUE(pattern->search("x.model.layers.1").value());
}

TEST(Pattern, IsPcre) {
  for (const std::string_view text : {"(?!.*down)", "(?i)MODEL", "(?<=^)model", "m(?:o|x)del(?=\\.)"}) {
    const auto pattern = Pattern::compile(text, "test");
    ASSERT_TRUE(pattern.ok()) << text;
    EXPECT_TRUE(pattern->match("model.up").value()) << text;
  }
}

TEST(Pattern, RefusesWhatDoesNotCompile) {
  const auto pattern = Pattern::compile("a[unclosed", "config.json: ignore");
  ASSERT_FALSE(pattern.ok());
  EXPECT_NE(pattern.status().message().find("config.json: ignore"), std::string::npos);
  EXPECT_NE(pattern.status().message().find("a[unclosed"), std::string::npos);
  EXPECT_FALSE(Pattern::compile(std::string(1'000'000, 'a'), "test").ok());
  EXPECT_FALSE(Pattern::compile(std::string(3000, '('), "test").ok());
}

TEST(Pattern, CatastrophicBacktrackingEndsInAnError) {
  const auto pattern = Pattern::compile("(a+)+(b|c)*$", "config.json: dynamic");
  ASSERT_TRUE(pattern.ok());
  const auto match = pattern->match(std::string(200, 'a') + "!");
  ASSERT_FALSE(match.ok());
  EXPECT_NE(match.status().message().find("match limit"), std::string::npos) << match.status().message();
}

TEST(Glob, WildcardsCrossDots) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*.mlp.gate", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(glob_match("*.mlp.gate", "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(glob_match("model.layers.?.self_attn*", "model.layers.3.self_attn.q_proj"));
  EXPECT_TRUE(glob_match("model.layers.[0-3]*", "model.layers.2.x"));
  EXPECT_FALSE(glob_match("model.layers.[!0-3].x", "model.layers.2.x"));
  EXPECT_TRUE(glob_match("a[]]b", "a]b"));
  EXPECT_TRUE(glob_match("a[b", "a[b"));
  EXPECT_TRUE(glob_match("*a*b*c*", "xxaxxbxxc"));
  EXPECT_FALSE(glob_match("*a*b*c", "xxaxxbxx"));
  EXPECT_FALSE(glob_match("abc", "ab"));
  EXPECT_FALSE(glob_match(std::string(500, '*') + "x", std::string(5000, 'a')));
}

TEST(ModuleEntry, IsExactOrAPrefixAtADot) {
  EXPECT_TRUE(ModuleEntry("lm_head").matches("lm_head"));
  EXPECT_TRUE(ModuleEntry("model.layers.1").matches("model.layers.1.mlp"));
  EXPECT_FALSE(ModuleEntry("model.layers.1").matches("model.layers.12.mlp"));
  EXPECT_FALSE(ModuleEntry("").matches("lm_head"));
  EXPECT_TRUE(ModuleEntry("model.visual*").matches("model.visual_tower.x"));
}

TEST(SubstringMatch, TellsAccidentsFromComponents) {
  EXPECT_EQ(substring_match({"gate"}, "model.layers.0.mlp.gate"), SubstringMatch::whole);
  EXPECT_EQ(substring_match({"gate"}, "model.layers.0.mlp.gate_proj"), SubstringMatch::partial);
  EXPECT_EQ(substring_match({"mlp.gate"}, "model.layers.0.mlp.gate"), SubstringMatch::whole);
  EXPECT_EQ(substring_match({"visual"}, "visual.blocks.0.qkv"), SubstringMatch::whole);
  EXPECT_EQ(substring_match({"", "lm_head"}, "model.layers.0.mlp.gate"), SubstringMatch::none);
}

}  // namespace
}  // namespace swordfish
