// Tests of GGUF blocks: every type against the formulas of formats.md 7.2-7.4 element by element, stacks, globals, names, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "formats/build_files.h"
#include "formats/gguf_codes.h"
#include "formats/gguf_names.h"
#include "formats/source_check.h"
#include "quant/numeric.h"
#include "swordfish/checkpoint.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One element of a block, straight from the text.
struct Element {
  int code;           // as stored: 0..15, 0..31, 0..63, -128..127, e2m1 bits
  double scale, add;  // w = scale · value(code) + add
};
int u8(const char* b, std::int64_t at) { return static_cast<unsigned char>(b[at]); }
double f16(const char* b, int at) { return f16_to_f32(static_cast<std::uint16_t>(u8(b, at) | u8(b, at + 1) << 8)); }
int six_bit(const char* b, int i, bool minimum) {  // Q4_K, Q5_K: b at byte 4 of the block
  if (i < 4) return u8(b, minimum ? i + 4 : i) & 63;
  return minimum ? (u8(b, i + 4) >> 4) | ((u8(b, i) >> 6) << 4) : (u8(b, i + 4) & 15) | ((u8(b, i - 4) >> 6) << 4);
}

Element element(GgufBlock type, const char* b, std::int64_t j) {
  const auto nibble = [&](std::int64_t at, std::int64_t half) {
    return j % (2 * half) < half ? u8(b, at + j % half) & 15 : u8(b, at + j % half) >> 4;
  };
  const auto i = static_cast<int>(j / 32);
  const auto bit = [&](int at) { return ((u8(b, at + j / 8) >> (j % 8)) & 1) << 4; };
  switch (type) {
    case GgufBlock::q4_0: return {nibble(2, 16), f16(b, 0), -8 * f16(b, 0)};
    case GgufBlock::q4_1: return {nibble(4, 16), f16(b, 0), f16(b, 2)};
    case GgufBlock::q5_0: return {nibble(6, 16) | bit(2), f16(b, 0), -16 * f16(b, 0)};
    case GgufBlock::q5_1: return {nibble(8, 16) | bit(4), f16(b, 0), f16(b, 2)};
    case GgufBlock::q8_0: return {static_cast<signed char>(b[2 + j]), f16(b, 0), 0};
    case GgufBlock::q4_k:
      return {nibble(16 + 32 * (i / 2), 32), f16(b, 0) * six_bit(b + 4, i, false), -(f16(b, 2) * six_bit(b + 4, i, true))};
    case GgufBlock::q5_k:
      return {nibble(48 + 32 * (i / 2), 32) | (((u8(b, 16 + j % 32) >> i) & 1) << 4), f16(b, 0) * six_bit(b + 4, i, false),
              -(f16(b, 2) * six_bit(b + 4, i, true))};
    case GgufBlock::q6_k: {
      const std::int64_t h = j / 128, s = j % 128 / 32, l = j % 32;
      const int low = u8(b, 64 * h + l + (s % 2 == 1 ? 32 : 0)), high = u8(b, 128 + 32 * h + l);
      const double scale = f16(b, 208) * static_cast<signed char>(b[192 + j / 16]);
      return {(s < 2 ? low & 15 : low >> 4) | (((high >> (2 * s)) & 3) << 4), scale, -32 * scale};
    }
    case GgufBlock::mxfp4: return {nibble(1, 16), std::ldexp(1.0, u8(b, 0) - 127), 0};
    case GgufBlock::nvfp4:
      return {nibble(4 + 8 * (j / 16), 8), e4m3_to_f32(static_cast<std::uint8_t>(u8(b, static_cast<int>(j / 16)))), 0};
  }
  return {};
}

struct Type {
  GgufBlock type;
  const char* name;
  std::int64_t bytes, elements;
  CodeType code;
  int bias;  // code of the QuantTensor − stored code
  int zero;
  ZeroKind kind;
  std::int64_t group;
  std::vector<int> halves;  // bytes at which F16 values lie
};
const Type kTypes[] = {
    {GgufBlock::q4_0, "Q4_0", 18, 32, CodeType::int4, 0, 8, ZeroKind::constant, 32, {0}},
    {GgufBlock::q4_1, "Q4_1", 20, 32, CodeType::int4, 0, 0, ZeroKind::offsets, 32, {0, 2}},
    {GgufBlock::q5_0, "Q5_0", 22, 32, CodeType::int8, 112, 128, ZeroKind::constant, 32, {0}},
    {GgufBlock::q5_1, "Q5_1", 24, 32, CodeType::int8, 0, 0, ZeroKind::offsets, 32, {0, 2}},
    {GgufBlock::q8_0, "Q8_0", 34, 32, CodeType::int8, 128, 128, ZeroKind::constant, 32, {0}},
    {GgufBlock::q4_k, "Q4_K", 144, 256, CodeType::int4, 0, 0, ZeroKind::offsets, 32, {0, 2}},
    {GgufBlock::q5_k, "Q5_K", 176, 256, CodeType::int8, 0, 0, ZeroKind::offsets, 32, {0, 2}},
    {GgufBlock::q6_k, "Q6_K", 210, 256, CodeType::int8, 96, 128, ZeroKind::constant, 16, {208}},
    {GgufBlock::mxfp4, "MXFP4", 17, 32, CodeType::fp4, 0, 0, ZeroKind::constant, 32, {}},
    {GgufBlock::nvfp4, "NVFP4", 36, 64, CodeType::fp4, 0, 0, ZeroKind::constant, 16, {}},
};

// Random blocks with finite scales.
std::string blocks(const Type& t, std::int64_t count, unsigned seed) {
  std::string bytes = random_bytes(static_cast<std::size_t>(count * t.bytes), seed);
  for (std::int64_t b = 0; b < count; ++b) {
    char* block = bytes.data() + b * t.bytes;
    for (const int at : t.halves) block[at + 1] = static_cast<char>(block[at + 1] & 0xbf);  // exponent below 16: finite, any sign
    if (t.type == GgufBlock::mxfp4) block[0] = static_cast<char>(100 + u8(block, 0) % 50);
    for (int s = 0; t.type == GgufBlock::nvfp4 && s < 4; ++s) block[s] = static_cast<char>(u8(block, s) % 0x7f);
  }
  return bytes;
}

class GgufBlocks : public testing::Test {
 protected:
  static std::vector<TestKey> keys(const std::string& architecture = "test") { return {{"general.architecture", architecture}}; }
  Result<Checkpoint> open(const std::vector<TestKey>& k, const std::vector<TestBlocks>& tensors) const {
    return Checkpoint::open(folder_.write("model.gguf", gguf(k, tensors)));
  }
  TempFolder folder_;
};

TEST(GgufCodes, EveryTypeAndRange) {
  for (const Type& t : kTypes) {
    SCOPED_TRACE(t.name);
    constexpr std::int64_t rows = 66;
    const std::int64_t row_blocks = t.elements == 256 ? 2 : 5;
    const std::string bytes = blocks(t, rows * row_blocks, 1);
    auto buffer = std::make_shared<Buffer>(bytes.size());
    std::memcpy(buffer->data(), bytes.data(), bytes.size());
    check_source(*gguf_codes(t.type, buffer, static_cast<std::size_t>(row_blocks)), rows, row_blocks * t.elements,
                 [&](std::int64_t n, std::int64_t k) {
                   const char* block = bytes.data() + (n * row_blocks + k / t.elements) * t.bytes;
                   return element(t.type, block, k % t.elements).code + t.bias;
                 });
  }
}

TEST_F(GgufBlocks, EveryTypeMeansItsFormula) {
  for (const Type& t : kTypes) {
    SCOPED_TRACE(t.name);
    constexpr std::int64_t rows = 5;
    const std::int64_t row_blocks = 3, k = row_blocks * t.elements;
    const std::string bytes = blocks(t, rows * row_blocks, 2);
    const auto checkpoint =
        open(keys(), {{"blk.0.ffn_up.weight", static_cast<std::uint32_t>(t.type), {static_cast<std::uint64_t>(k), rows}, bytes}});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ASSERT_EQ(checkpoint->layers().size(), 1u);
    const LayerInfo& info = checkpoint->layers()[0];
    EXPECT_EQ(info.name, "blk.0.ffn_up");
    EXPECT_EQ(info.weight_name, "blk.0.ffn_up.weight");
    EXPECT_EQ(info.scheme, std::string("gguf ") + t.name);
    EXPECT_EQ(info.code, t.code);
    EXPECT_EQ(info.n, rows);
    EXPECT_EQ(info.k, k);
    EXPECT_EQ(info.group_size, t.group);
    EXPECT_EQ(info.zero, t.kind);
    EXPECT_EQ(info.bytes, bytes.size());
    const auto tensor = checkpoint->load(0);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->zero, t.zero);
    EXPECT_EQ(static_cast<bool>(tensor->offsets), t.kind == ZeroKind::offsets);
    EXPECT_EQ(tensor->scales.type, info.scale_type);
    std::vector<float> w(static_cast<std::size_t>(rows * k));
    dequantize(*tensor, 0, rows, w.data(), k);
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t kk = 0; kk < k; ++kk) {
        const Element e = element(t.type, bytes.data() + (n * row_blocks + kk / t.elements) * t.bytes, kk % t.elements);
        const double value = t.code == CodeType::fp4 ? kE2m1[e.code] : e.code;
        ASSERT_EQ(w[static_cast<std::size_t>(n * k + kk)], static_cast<float>(e.scale * value + e.add)) << n << "," << kk;
      }
    }
  }
}

TEST_F(GgufBlocks, ExampleOfTheText) {
  // 00 38 F0 ...: d = 0.5, element 0 = 0.5·(0−8) = −4, element 16 = 0.5·(15−8) = 3.5.
  std::string block("\x00\x38\xf0", 3);
  block.resize(18, '\x08');
  const auto checkpoint = open(keys(), {{"t.weight", 2, {32, 1}, block}});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<float> w(32);
  dequantize(*checkpoint->load(0), 0, 1, w.data(), 32);
  EXPECT_EQ(w[0], -4.0f);
  EXPECT_EQ(w[16], 3.5f);
  EXPECT_EQ(w[1], 0.0f);
}

TEST_F(GgufBlocks, NegativeAndZeroScalesAreNormal) {
  std::string negative("\x00\xb8", 2), zero("\x00\x00", 2);
  negative.resize(18, '\x0f');
  zero.resize(18, '\x0f');
  const auto checkpoint = open(keys(), {{"t.weight", 2, {64, 1}, negative + zero}});
  ASSERT_TRUE(checkpoint.ok());
  std::vector<float> w(64);
  dequantize(*checkpoint->load(0), 0, 1, w.data(), 64);
  EXPECT_EQ(w[0], -3.5f);
  EXPECT_EQ(w[32], 0.0f);
}

TEST_F(GgufBlocks, NonFiniteScalesAreRefused) {
  for (const Type& t : kTypes) {
    std::vector<int> places = t.halves;
    if (t.type == GgufBlock::nvfp4) places = {0, 1, 2, 3};
    if (t.type == GgufBlock::mxfp4) places = {0};
    for (const int at : places) {
      SCOPED_TRACE(testing::Message() << t.name << " byte " << at);
      std::string bytes = blocks(t, 4, 3);
      char* block = bytes.data() + 3 * t.bytes;
      if (t.halves.empty()) {
        block[at] = t.type == GgufBlock::mxfp4 ? '\xff' : '\x7f';
      } else {
        block[at] = '\x00';
        block[at + 1] = '\x7e';
      }
      const auto checkpoint = open(
          keys(),
          {{"blk.0.attn_k.weight", static_cast<std::uint32_t>(t.type), {static_cast<std::uint64_t>(2 * t.elements), 2}, bytes}});
      ASSERT_TRUE(checkpoint.ok());
      const Status status = checkpoint->load(0).status();
      EXPECT_EQ(status.code(), Code::malformed);
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("model.gguf"), HasSubstr("'blk.0.attn_k.weight'"), HasSubstr("index 3 "), HasSubstr("NaN")));
    }
  }
}

TEST_F(GgufBlocks, StackedExperts) {
  const Type& t = kTypes[5];
  constexpr std::int64_t experts = 3, rows = 4, k = 512;
  const std::string bytes = blocks(t, experts * rows * 2, 4);
  const auto checkpoint = open(keys(), {{"blk.0.ffn_gate_exps.weight", 12, {k, rows, experts}, bytes}});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->layers()[0].experts, experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto tensor = checkpoint->load(0, e);
    ASSERT_TRUE(tensor.ok());
    std::vector<float> w(rows * k);
    dequantize(*tensor, 0, rows, w.data(), k);
    const Element first = element(t.type, bytes.data() + e * rows * 2 * t.bytes, 0);
    EXPECT_EQ(w[0], static_cast<float>(first.scale * first.code + first.add));
  }
  EXPECT_EQ(checkpoint->load(0, experts).status().code(), Code::invalid_argument);
  EXPECT_EQ(checkpoint->load(0, -1).status().code(), Code::invalid_argument);
}

// q, k and v of one layer often differ in type; then they stay apart.
TEST_F(GgufBlocks, PartsOfDifferentTypesStayApart) {
  const auto matrix = [&](const std::string& name, const Type& t) {
    return TestBlocks{
        "blk.0." + name + ".weight", static_cast<std::uint32_t>(t.type), {256, 4}, blocks(t, 4 * 256 / t.elements, 6)};
  };
  const auto checkpoint = open(keys(), {matrix("attn_q", kTypes[0]), matrix("attn_k", kTypes[0]), matrix("attn_v", kTypes[2])});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->layers().size(), 3u);
  for (const LayerInfo& info : checkpoint->layers()) EXPECT_EQ(info.fused_into, "");
}

TEST_F(GgufBlocks, Nvfp4Globals) {
  const Type& t = kTypes[9];
  const std::string bytes = blocks(t, 4, 5);
  const auto scale = [](std::vector<float> v) { return TestBlocks{"blk.0.ffn_up.scale", 0, {v.size()}, raw(v)}; };
  const TestBlocks flat{"blk.0.ffn_up.weight", 40, {64, 4}, bytes}, stack{"blk.0.ffn_up.weight", 40, {64, 2, 2}, bytes};
  const auto global = [&](const std::vector<TestBlocks>& tensors, std::int64_t expert) -> Result<float> {
    const auto checkpoint = open(keys(), tensors);
    if (!checkpoint.ok()) return checkpoint.status();
    const auto tensor = checkpoint->load(0, expert);
    if (!tensor.ok()) return tensor.status();
    EXPECT_EQ(tensor->global.op, Global::Op::multiply);
    return tensor->global.value;
  };
  EXPECT_EQ(*global({flat}, 0), 1.0f);
  EXPECT_EQ(*global({flat, scale({0.375f})}, 0), 0.375f);
  EXPECT_EQ(*global({stack, scale({0.375f})}, 1), 0.375f);
  EXPECT_EQ(*global({stack, scale({0.375f, 3.0f})}, 1), 3.0f);
  EXPECT_THAT(global({flat, scale({1, 2})}, 0).status().message(), AllOf(HasSubstr("blk.0.ffn_up.scale"), HasSubstr("shape")));
  EXPECT_THAT(global({stack, scale({1, 2, 3})}, 0).status().message(), HasSubstr("shape"));
  EXPECT_THAT(global({flat, scale({-1})}, 0).status().message(), AllOf(HasSubstr("blk.0.ffn_up.scale"), HasSubstr("multiplier")));
  EXPECT_THAT(global({flat, {"blk.0.ffn_up.scale", 1, {1}, std::string(2, 'a')}}, 0).status().message(), HasSubstr("F32"));
}

TEST_F(GgufBlocks, OtherTypesAreListed) {
  const auto checkpoint = open(keys(), {{"blk.0.ffn_up.weight", 20, {32, 2}, std::string(36, 'x')},
                                        {"token_embd.weight", 10, {256, 1}, std::string(84, 'x')},
                                        {"blk.0.ffn_down.weight", 2, {32, 1}, std::string(18, '\0')},
                                        {"odd.weight", 2, {32}, std::string(18, '\0')},
                                        {"blk.0.attn_norm.weight", 0, {2}, std::string(8, '\0')}});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(checkpoint->not_packed(),
              ElementsAre("blk.0.ffn_up.weight: IQ4_NL (20)", "token_embd.weight: Q2_K (10)", "odd.weight: Q4_0 (2), shape [32]"));
  ASSERT_EQ(checkpoint->layers().size(), 1u);
  EXPECT_EQ(checkpoint->layers()[0].name, "blk.0.ffn_down");
}

TEST_F(GgufBlocks, EmbeddingAndBias) {
  const auto checkpoint = open(keys(), {{"token_embd.weight", 8, {32, 2}, blocks(kTypes[4], 2, 6)},
                                        {"blk.0.attn_q.weight", 8, {32, 2}, blocks(kTypes[4], 2, 7)},
                                        {"blk.0.attn_q.bias", 0, {2}, raw(std::vector<float>{1.5f, -2.0f})}});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  EXPECT_EQ(checkpoint->layers()[0].name, "token_embd");
  EXPECT_EQ(checkpoint->layers()[1].bias, "blk.0.attn_q.bias");
  const auto bias = checkpoint->load_bias(1);
  ASSERT_TRUE(bias.ok()) << bias.status().message();
  EXPECT_THAT(**bias, ElementsAre(1.5f, -2.0f));
}

TEST(GgufNames, RotaryGather) {
  // D = 8: gguf row 0,1,2,.. comes from hf row 0,4,1,5,2,6,3,7; so hf row i is at gguf row gather[i].
  EXPECT_THAT(rotary_gather(8, 1), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  const auto gather = rotary_gather(24, 3);
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 2; ++j) EXPECT_EQ(gather[static_cast<std::size_t>(h * 8 + j * 4 + i)], h * 8 + 2 * i + j);
    }
  }
}

TEST_F(GgufBlocks, HuggingFaceNames) {
  std::vector<TestKey> k = keys("llama");
  k.push_back({"llama.attention.head_count", 4u});
  k.push_back({"llama.attention.head_count_kv", 2u});
  const auto tensor = [](const std::string& name) { return TestBlocks{name, 8, {32, 16}, blocks(kTypes[4], 16, 8)}; };
  const std::vector<TestBlocks> tensors = {tensor("token_embd.weight"),
                                           tensor("output.weight"),
                                           tensor("blk.0.attn_q.weight"),
                                           tensor("blk.11.attn_k.weight"),
                                           tensor("blk.0.attn_v.weight"),
                                           tensor("blk.0.ffn_gate.3.weight"),
                                           tensor("blk.0.ffn_odd.weight"),
                                           tensor("blk.0.ffn_down.weight"),
                                           {"blk.0.ffn_up_exps.weight", 8, {32, 8, 2}, blocks(kTypes[4], 16, 9)}};
  const auto checkpoint = open(k, tensors);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) names.push_back(checkpoint->hf_name(i).name);
  EXPECT_THAT(names, ElementsAre("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.weight",
                                 "model.layers.11.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                 "model.layers.0.block_sparse_moe.experts.3.w1.weight", "blk.0.ffn_odd.weight",
                                 "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_up_exps.weight"));
  EXPECT_EQ(checkpoint->hf_name(2).gather, rotary_gather(16, 4));
  EXPECT_EQ(checkpoint->hf_name(3).gather, rotary_gather(16, 2));
  EXPECT_THAT(checkpoint->hf_name(4).gather, IsEmpty());

  const auto other = open(keys("qwen2"), tensors);  // not permuted, and named by its own converter
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->hf_name(2).name, "blk.0.attn_q.weight");
  EXPECT_THAT(other->hf_name(2).gather, IsEmpty());
}

TEST_F(GgufBlocks, HeadCountsPerLayerOrAbsent) {
  const std::vector<TestBlocks> tensors = {{"blk.1.attn_q.weight", 8, {32, 16}, blocks(kTypes[4], 16, 8)}};
  std::vector<TestKey> k = keys("llama");
  const auto absent = open(k, tensors);
  ASSERT_TRUE(absent.ok());
  EXPECT_EQ(absent->hf_name(0).name, "blk.1.attn_q.weight");  // its rows cannot be put in order
  k.push_back({"llama.attention.head_count", std::vector<std::uint32_t>{2, 8}});
  const auto list = open(k, tensors);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->hf_name(0).gather, rotary_gather(16, 8));
}

}  // namespace
}  // namespace swordfish
