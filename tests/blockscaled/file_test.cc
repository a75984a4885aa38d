// Packed files in layout sm1xx-blockscaled/1: written, read back equal, refused when their shapes lie.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "blockscaled/blockscaled.h"
#include "pack/packed_files.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using test::Model;

// Two FP4 layers of unequal N that fuse, a stacked one, and an int4 one that the layout cannot hold.
Model model() {
  Model m;
  const test::Shape nvfp4{CodeType::fp4, 96, 352, 16, test::Zeros::constant, DType::f8_e4m3, false};
  test::Shape mxfp4 = nvfp4, gate = nvfp4;
  mxfp4.group = 32, mxfp4.scale_type = DType::f8_e8m0;
  gate.n = 130;
  m.add("gate", gate);
  m.add("up", nvfp4);
  m.add("experts", mxfp4, 3);
  m.add("attention", {CodeType::int4, 64, 64, 32, test::Zeros::constant, DType::f16, false});
  for (std::size_t i = 0; i < 2; ++i) {
    m.layers[i].fused_into = "gate_up";
    m.layers[i].fused_index = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (QuantTensor& t : m.tensors[i]) {
      const Global global{t.global.value, Global::Op::divide};
      t = test::random_fp4(m.random, t.n, t.k, t.group_size, t.scales.type);
      t.name = m.layers[i].name;
      t.global = global;
    }
  }
  m.add_bias(2);
  return m;
}

TEST(BlockscaledFile, RoundTrip) {
  const TempFolder folder;
  const Model m = model();
  PackOptions options;
  options.layout = Layout::sm1xx_blockscaled_1;
  options.fuse = true;
  const std::string path = folder.path("out.safetensors");
  const auto report = pack_layers(m.source(), path, options, nullptr, nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->notes.size(), 1u);
  EXPECT_NE(report->notes[0].find("attention: int4 codes are not packed"), std::string::npos) << report->notes[0];
  const auto file = PackedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->layers().size(), 2u);
  EXPECT_EQ(file->layers()[0].name, "gate_up");
  EXPECT_EQ(file->layers()[0].shape.layout, Layout::sm1xx_blockscaled_1);
  EXPECT_EQ(file->layers()[1].experts, 3);
  const auto same = [](const PackedWeight& a, const PackedWeight& b) {
    EXPECT_EQ(a.view.n, b.view.n);
    EXPECT_EQ(a.view.n_blocks, b.view.n_blocks);
    EXPECT_EQ(a.view.k_blocks, b.view.k_blocks);
    EXPECT_EQ(a.view.rows, b.view.rows);
    EXPECT_EQ(a.view.group_size, b.view.group_size);
    EXPECT_EQ(a.view.zero, b.view.zero);
    EXPECT_EQ(a.view.scale_type, b.view.scale_type);
    EXPECT_EQ(a.parts, b.parts);
    ASSERT_EQ(a.codes.size(), b.codes.size());
    ASSERT_EQ(a.scales.size(), b.scales.size());
    EXPECT_EQ(0, std::memcmp(a.codes.data(), b.codes.data(), a.codes.size()));
    EXPECT_EQ(0, std::memcmp(a.scales.data(), b.scales.data(), a.scales.size()));
  };
  const std::vector<QuantTensor> fused{m.tensors[0][0], m.tensors[1][0]};
  same(*pack_blockscaled(fused, "gate_up"), *file->load(0));
  for (std::size_t e = 0; e < 3; ++e)
    same(*pack_blockscaled({&m.tensors[2][e], 1}, "experts"), *file->load(1, static_cast<std::int64_t>(e)));
  EXPECT_EQ(*file->load_bias(1, 2), *m.load_bias(2, 2));
}

TEST(BlockscaledFile, ConvertsToTheSameBytes) {
  const TempFolder folder;
  const Model m = model();
  PackOptions options;
  options.fuse = true;
  const auto bytes = [&](const std::string& name) {
    std::ifstream in(folder.path(name), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  for (const Layout layout : {Layout::mma64_1, Layout::sm1xx_blockscaled_1}) {
    options.layout = layout;
    options.layers = layout == Layout::mma64_1 ? "gate|up|experts" : "";
    ASSERT_TRUE(pack_layers(m.source(), folder.path(name(layout).substr(0, 3)), options, nullptr, nullptr).ok());
  }
  options = {};
  const auto mma = PackedFile::open(folder.path("mma")), sm1 = PackedFile::open(folder.path("sm1"));
  ASSERT_TRUE(mma.ok() && sm1.ok());
  const auto there = convert_packed(*sm1, folder.path("sm1 to mma"), options, nullptr, nullptr);
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_EQ(there->notes.size(), 0u);
  EXPECT_EQ(bytes("sm1 to mma"), bytes("mma"));
  EXPECT_EQ(convert_packed(*mma, folder.path("no"), options, nullptr, nullptr).status().code(), Code::invalid_argument);
  options.layout = Layout::sm1xx_blockscaled_1;
  const auto back = convert_packed(*mma, folder.path("mma to sm1"), options, nullptr, nullptr);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(bytes("mma to sm1"), bytes("sm1"));
  options.layers = "experts";
  EXPECT_EQ(convert_packed(*mma, folder.path("one"), options, nullptr, nullptr)->layers, 1);
  options.layers = "none";
  EXPECT_EQ(convert_packed(*mma, folder.path("no"), options, nullptr, nullptr).status().code(), Code::invalid_argument);
}

TEST(BlockscaledFile, NothingInFp4IsSaid) {
  const TempFolder folder;
  Model m;
  m.add("attention", {CodeType::int4, 64, 64, 32, test::Zeros::constant, DType::f16, false});
  PackOptions options;
  options.layout = Layout::sm1xx_blockscaled_1;
  const auto report = pack_layers(m.source(), folder.path("out"), options, nullptr, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::unavailable);
}

// The header is changed in place; the spaces that fill it give or take the difference.
TEST(BlockscaledFile, LiesAreRefused) {
  const TempFolder folder;
  const std::string path = folder.path("good");
  PackOptions options;
  options.layout = Layout::sm1xx_blockscaled_1;
  ASSERT_TRUE(pack_layers(model().source(), path, options, nullptr, nullptr).ok());
  std::ifstream in(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& word) {
    std::string bad = good;
    const auto at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    if (to.size() > from.size()) bad.erase(bad.find("     "), to.size() - from.size());  // spaces fill the header
    if (to.size() < from.size()) bad.insert(bad.find("     "), from.size() - to.size(), ' ');
    const std::string other = folder.path("bad");
    std::ofstream(other, std::ios::binary) << bad;
    const auto file = PackedFile::open(other);
    ASSERT_FALSE(file.ok()) << from << " -> " << to;
    EXPECT_NE(file.status().message().find(word), std::string::npos) << file.status().message();
  };
  refused("sm1xx-blockscaled/1", "sm1xx-blockscaled/2", "layout");
  refused(R"(\"code\":\"fp4\")", R"(\"code\":\"int4\")", "int4 codes");
  refused(R"(\"group_size\":16)", R"(\"group_size\":64)", "group_size 64");
  refused(R"(\"group_size\":16)", R"(\"group_size\":32)", "expected F8_E4M3 [2, 3, 512]");
  refused(R"(\"zero\":0)", R"(\"zero\":8)", "zero 8");
  refused(R"(\"n\":130)", R"(\"n\":257)", "expected U8 [257, 176]");
  refused(R"(\"k\":352)", R"(\"k\":360)", "expected U8 [130, 180]");
  refused(R"("gate.scales":{"dtype":"F8_E4M3")", R"("gate.scales":{"dtype":"F8_E5M2")", "scales cannot be F8_E5M2");
  refused(R"("gate.codes")", R"("gate.kodes")", "codes' is missing");
}

}  // namespace
}  // namespace swordfish
