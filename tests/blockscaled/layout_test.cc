// The layout's bytes against its formula, packing and unpacking, conversion to and from mma64/1, parts and their globals.
#include <gtest/gtest.h>

#include "blockscaled/blockscaled.h"
#include "swordfish/gemm.h"

namespace swordfish::test {
namespace {

const auto swizzled_order = [](std::int64_t k_blocks) {
  return [k_blocks](const PackedPart&, std::int64_t n, std::int64_t s) { return sm1xx::scale_offset(n, s, k_blocks); };
};

std::vector<std::uint8_t> codes_of(const QuantTensor& t) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(t.n * t.k));
  t.codes->read(0, t.n, 0, t.k, codes.data(), static_cast<std::size_t>(t.k));
  return codes;
}
std::vector<std::uint8_t> scales_of(const QuantTensor& t) {
  std::vector<std::uint8_t> scales;
  for (std::int64_t n = 0; n < t.n; ++n)
    for (std::int64_t r = 0; r < t.rows; ++r) scales.push_back(static_cast<std::uint8_t>(*t.scales.at(n, r)));
  return scales;
}
std::vector<float> values_of(const QuantTensor& t) {
  std::vector<float> w(static_cast<std::size_t>(t.n * t.k));
  dequantize(t, 0, t.n, w.data(), t.k);
  return w;
}
void expect_same(const QuantTensor& a, const QuantTensor& b) {
  ASSERT_EQ(a.n, b.n);
  ASSERT_EQ(a.k, b.k);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.global, b.global);
  EXPECT_EQ(a.scales.type, b.scales.type);
  EXPECT_EQ(codes_of(a), codes_of(b));
  EXPECT_EQ(scales_of(a), scales_of(b));
}

TEST(Sm1xx, GoldenOffset) { EXPECT_EQ(sm1xx::scale_offset(37, 5, 2), 597); }  // formats.md 5.7: K = 128, V = 16

// Every shape class: whole and partial stripes, whole vectors, whole atoms, partial atoms; rows with gaps; unaligned rows.
TEST(Sm1xx, SwizzleFollowsTheFormulaAndZeroesPadding) {
  std::mt19937_64 random(1);
  for (const std::int64_t n : {1, 31, 33, 127, 128, 129, 256, 300}) {
    for (const std::int64_t s : {1, 3, 4, 5, 15, 16, 17, 20, 63, 64, 90, 128, 180, 260, 261}) {
      for (const std::int64_t gap : {0, 1, 32}) {
        std::vector<std::uint8_t> from(static_cast<std::size_t>(1 + n * (s + gap)));
        for (auto& b : from) b = static_cast<std::uint8_t>(random() | 1);  // no zero: padding is told from data
        const std::int64_t k_atoms = sm1xx::k_atoms(s), bytes = (n + 127) / 128 * k_atoms * 512;
        Buffer to(static_cast<std::size_t>(bytes));
        std::fill_n(to.as<std::uint8_t>(), bytes, std::uint8_t{0xff});
        sm1xx::swizzle_scales(from.data() + 1, s + gap, n, s, to.as<std::uint8_t>());
        std::vector<std::uint8_t> want(static_cast<std::size_t>(bytes), 0);
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t c = 0; c < s; ++c)
            want[static_cast<std::size_t>(sm1xx::scale_offset(i, c, k_atoms))] =
                from[static_cast<std::size_t>(1 + i * (s + gap) + c)];
        ASSERT_EQ(0, std::memcmp(want.data(), to.data(), want.size())) << n << " x " << s << " gap " << gap;
        std::vector<std::uint8_t> back(from.size(), 0);
        sm1xx::unswizzle_scales(to.as<std::uint8_t>(), n, s, back.data() + 1, s + gap);
        for (std::int64_t i = 0; i < n; ++i)
          ASSERT_EQ(0, std::memcmp(back.data() + 1 + i * (s + gap), from.data() + 1 + i * (s + gap), static_cast<std::size_t>(s)));
      }
    }
  }
}

TEST(Sm1xx, PacksPartsApartAndUnpacksThem) {
  std::mt19937_64 random(2);
  for (const auto type : {DType::f8_e4m3, DType::f8_e8m0}) {
    for (const std::int64_t group : {16, 32}) {
      for (const std::int64_t k : {16, 17, 48, 96, 100, 512, 2880}) {
        if (k == 17 && group == 16) continue;  // one case of an odd K is enough, in the other group size
        std::vector<QuantTensor> parts;
        for (const std::int64_t n : {1, 130, 128, 60}) {
          parts.push_back(random_fp4(random, n, k, group, type));
          parts.back().name = "part" + std::to_string(n);
          parts.back().global = {static_cast<float>(n) / 13, n % 2 ? Global::Op::divide : Global::Op::multiply};
        }
        const auto packed = pack_blockscaled(parts, "fused", 2);
        ASSERT_TRUE(packed.ok()) << packed.status().message();
        const PackedView& v = packed->view;
        EXPECT_EQ(v.layout, Layout::sm1xx_blockscaled_1);
        EXPECT_EQ(v.n, 319);
        EXPECT_EQ(v.n_blocks, 1 + 2 + 1 + 1);
        const std::int64_t per_scale = v.rows == 1 ? v.group_size : group;  // one group: its size is the type's usual one
        EXPECT_EQ(v.packed_k(), (k + 4 * per_scale - 1) / (4 * per_scale) * 4 * per_scale);
        EXPECT_EQ(packed->codes.size(), static_cast<std::size_t>(319 * ((k + 1) / 2)));
        EXPECT_EQ(packed->scales.size(), static_cast<std::size_t>(v.n_blocks * v.k_blocks * 512));
        EXPECT_EQ(v.parts[2].block0, 3);
        EXPECT_EQ(v.parts[2].n0, 131);
        for (std::int64_t n = 0; n < v.n && k % 2 != 0; ++n)  // past an odd K
          ASSERT_EQ(packed->codes.as<std::uint8_t>()[(n + 1) * ((k + 1) / 2) - 1] >> 4, 0);
        for (std::size_t p = 0; p < parts.size(); ++p) {
          const auto back = unpack(v, static_cast<std::int64_t>(p));
          ASSERT_TRUE(back.ok());
          expect_same(parts[p], *back);
          EXPECT_EQ(values_of(parts[p]), values_of(*back));
          std::uint8_t one = 99;
          if (k > 1) back->codes->read(0, 1, 1, 1, &one, 1);  // from the middle of a byte
          EXPECT_EQ(one, codes_of(parts[p])[1]);
        }
      }
    }
  }
}

TEST(Sm1xx, CodesAreTheBytesOfTheCheckpoint) {
  std::mt19937_64 random(3);
  const QuantTensor t = random_fp4(random, 70, 576, 16, DType::f8_e4m3);
  const auto packed = pack_blockscaled({&t, 1}, "w");
  ASSERT_TRUE(packed.ok());
  const auto codes = codes_of(t);
  for (std::size_t j = 0; j < packed->codes.size(); ++j)
    ASSERT_EQ(packed->codes.as<std::uint8_t>()[j], codes[2 * j] | codes[2 * j + 1] << 4);
}

TEST(Sm1xx, TransposedScalePlanesAndRowSlices) {
  std::mt19937_64 random(4);
  const QuantTensor t = random_fp4(random, 200, 320, 16, DType::f8_e4m3);
  const auto scales = scales_of(t);
  std::vector<std::uint8_t> transposed(scales.size());
  for (std::size_t n = 0; n < 200; ++n)
    for (std::size_t r = 0; r < 20; ++r) transposed[r * 200 + n] = scales[n * 20 + r];
  QuantTensor other = t;
  other.scales = {DType::f8_e4m3, reinterpret_cast<const std::byte*>(transposed.data()), 1, 200};
  const auto a = pack_blockscaled({&t, 1}, "w"), b = pack_blockscaled({&other, 1}, "w");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(0, std::memcmp(a->scales.data(), b->scales.data(), a->scales.size()));
  // Odd rows, columns [64, 304): what expert interleaving and tensor parallelism ask for.
  const auto cut = slice(t, 1, 99, 2, 64, 240);
  ASSERT_TRUE(cut.ok());
  const auto packed = pack_blockscaled({&*cut, 1}, "w");
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  expect_same(*cut, *unpack(packed->view, 0));
  // One block of columns: slice() calls all of its K the group.
  const auto narrow = slice(t, 0, 200, 1, 16, 16);
  ASSERT_TRUE(narrow.ok());
  expect_same(*narrow, *unpack(pack_blockscaled({&*narrow, 1}, "w")->view, 0));
}

TEST(Sm1xx, ConvertsToAndFromMma64) {
  std::mt19937_64 random(5);
  for (const std::int64_t group : {16, 32}) {
    for (const std::int64_t k : {32, 64, 352, 1056}) {
      std::vector<QuantTensor> parts;
      for (const std::int64_t n : {65, 192}) {
        parts.push_back(random_fp4(random, n, k, group, group == 16 ? DType::f8_e4m3 : DType::f8_e8m0));
        parts.back().global = {0.01f * static_cast<float>(n), Global::Op::divide};
      }
      const auto direct = pack_blockscaled(parts, "w"), mma = pack(parts, "w");
      ASSERT_TRUE(direct.ok() && mma.ok());
      const auto there = convert(direct->view, Layout::mma64_1, "w"), back = convert(mma->view, Layout::sm1xx_blockscaled_1, "w");
      ASSERT_TRUE(there.ok()) << there.status().message();
      ASSERT_TRUE(back.ok()) << back.status().message();
      for (const auto buffer : {&PackedWeight::codes, &PackedWeight::scales}) {
        ASSERT_EQ(((*there).*buffer).size(), ((*mma).*buffer).size());
        EXPECT_EQ(0, std::memcmp(((*there).*buffer).data(), ((*mma).*buffer).data(), ((*mma).*buffer).size()));
        ASSERT_EQ(((*back).*buffer).size(), ((*direct).*buffer).size());
        EXPECT_EQ(0, std::memcmp(((*back).*buffer).data(), ((*direct).*buffer).data(), ((*direct).*buffer).size()));
      }
      EXPECT_EQ(there->parts, mma->parts);
      EXPECT_EQ(back->parts, direct->parts);
    }
  }
}

TEST(Sm1xx, MinusZeroScalesBecomeZeroAndNegativeOnesAreRefused) {
  std::mt19937_64 random(6);
  QuantTensor t = random_fp4(random, 130, 64, 16, DType::f8_e4m3);
  auto scales = scales_of(t);
  scales[129 * 4 + 2] = 0x80;
  t.scales.data = reinterpret_cast<const std::byte*>(scales.data());
  const auto packed = pack_blockscaled({&t, 1}, "w");
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->scales.as<std::uint8_t>()[sm1xx::scale_offset(129, 2, 1)], 0);
  EXPECT_EQ(values_of(t), values_of(*unpack(packed->view, 0)));
  scales[129 * 4 + 2] = 0x81;
  const auto refused = pack_blockscaled({&t, 1}, "w");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find("scale 2 of row 129 is negative (0x81)"), std::string::npos)
      << refused.status().message();
  t.scales.type = DType::f8_e8m0;  // where 0x81 is 2^2
  t.group_size = 16;
  EXPECT_TRUE(pack_blockscaled({&t, 1}, "w").ok());
}

TEST(Sm1xx, RefusesWhatTheLayoutCannotHold) {
  std::mt19937_64 random(7);
  const QuantTensor good = random_fp4(random, 64, 128, 16, DType::f8_e4m3);
  const auto refused = [&](auto change, const char* word) {
    QuantTensor bad = good;
    change(bad);
    const auto result = pack_blockscaled({&bad, 1}, "w");
    ASSERT_FALSE(result.ok()) << word;
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
  };
  refused([](QuantTensor& t) { t.code = CodeType::int4; }, "int4 codes");
  refused([](QuantTensor& t) { t.scales.type = DType::f16; }, "F16 scales");
  refused([](QuantTensor& t) { t.row_of_k.assign(128, 0); }, "order of their groups");
  refused([](QuantTensor& t) { t.zero = 8; }, "zero points");
  refused([](QuantTensor& t) { t.zeros = t.scales; }, "zero points");
  refused([](QuantTensor& t) { t.offsets = t.scales; }, "offsets");
  refused([](QuantTensor& t) { t.group_size = 64, t.rows = 2; }, "group size 64");
  refused([](QuantTensor& t) { t.rows = 9; }, "9 scale rows");
  refused([](QuantTensor& t) { t.codes.reset(); }, "cannot be packed");
  EXPECT_FALSE(pack_blockscaled({}, "w").ok());
  const std::vector<QuantTensor> differ{good, random_fp4(random, 64, 128, 32, DType::f8_e8m0)};
  EXPECT_FALSE(pack_blockscaled(differ, "w").ok());
  const auto packed = pack_blockscaled({&good, 1}, "w");
  EXPECT_FALSE(unpack(packed->view, 1).ok());
  EXPECT_FALSE(unpack(packed->view, -1).ok());
}

// gate | up whose globals differ: the epilogue's alpha a part, and parts run apart, both against the fp32 reference.
TEST(Sm1xx, GlobalsThatDifferStayExact) {
  std::mt19937_64 random(8);
  const std::int64_t n = 160, k = 512, m = 8;
  const auto gate = heavy_tailed(random, n, k), up = heavy_tailed(random, n, k);
  const auto x = gaussian(random, m, k);
  for (const float ratio : {16.0f / 13.0f, 10.0f}) {
    for (const auto op : {Global::Op::multiply, Global::Op::divide}) {
      std::vector<QuantTensor> parts{quantized("gate", gate, n, k, 16), quantized("up", up, n, k, 16)};
      parts[0].global = {0.37f, op};
      parts[1].global = {0.37f * ratio, op};
      const auto ref = reference(parts, x, m);
      auto packed = pack_blockscaled(parts, "gate_up");
      ASSERT_TRUE(packed.ok());
      for (int p = 0; p < 2; ++p) EXPECT_EQ(values_of(parts[static_cast<std::size_t>(p)]), values_of(*unpack(packed->view, p)));
      EXPECT_LE(relative_error(multiply(packed->view, x, m, swizzled_order(packed->view.k_blocks)), ref), 1e-6);

      std::vector<float> y(ref.size());
      for (std::int64_t p = 0; p < 2; ++p) {
        PackedPart entry;
        const PackedView one = single_part(packed->view, p, entry);
        ASSERT_EQ(one.n, n);
        EXPECT_EQ(one.n_parts, 1);
        const auto part = multiply(one, x, m, swizzled_order(one.k_blocks));
        for (std::int64_t i = 0; i < m; ++i) std::copy_n(part.begin() + i * n, n, y.begin() + i * 2 * n + p * n);
        expect_same(parts[static_cast<std::size_t>(p)], *unpack(one, 0));
      }
      EXPECT_LE(relative_error(y, ref), 1e-6);

      // No power of two: folding refuses and changes nothing. One global for both would be wrong by 19 % or more.
      const auto before = scales_of(*unpack(packed->view, 1));
      EXPECT_FALSE(fold_globals(*packed));
      EXPECT_EQ(before, scales_of(*unpack(packed->view, 1)));
      EXPECT_EQ(packed->parts[1].global, parts[1].global);
      packed->parts[1].global = packed->parts[0].global;
      EXPECT_GT(relative_error(multiply(packed->view, x, m, swizzled_order(packed->view.k_blocks)), ref), 0.01);

      // mma64/1 on the CPU: the planned kernel knows each part's global.
      const auto mma = pack(parts, "gate_up");
      ASSERT_TRUE(mma.ok());
      Context context(1);
      std::vector<std::uint16_t> x16(x.size());
      std::transform(x.begin(), x.end(), x16.begin(), f32_to_bf16);
      const Problem problem{&mma->view, m, DType::bf16, DType::f32, false, {}, 1};
      const auto chosen = plan(problem);
      ASSERT_TRUE(chosen.ok()) << chosen.status().message();
      Buffer workspace(chosen->workspace);
      RunArgs args{x16.data(), k, y.data(), 2 * n, nullptr, workspace.data(), workspace.size(), nullptr};
      ASSERT_TRUE(workspace_init(*chosen, {}, workspace.data(), workspace.size()).ok());
      std::fill(y.begin(), y.end(), NAN);
      const Status ran = run(context, problem, *chosen, args);
      ASSERT_TRUE(ran.ok()) << ran.message();
      EXPECT_LE(relative_error(y, ref), 1e-6);
    }
  }
}

TEST(Sm1xx, FoldsPowersOfTwoExactlyOrNotAtAll) {
  std::mt19937_64 random(9);
  const auto tensor = [&](std::uint8_t low, std::uint8_t high, DType type, Global global) {
    const std::int64_t group = type == DType::f8_e4m3 ? 16 : 32;
    std::vector<std::uint8_t> codes(130 * 128), scales(static_cast<std::size_t>(130 * 128 / group));
    for (auto& c : codes) c = static_cast<std::uint8_t>(random() % 16);
    for (auto& s : scales) s = static_cast<std::uint8_t>(low + random() % (high - low + 1u));
    scales[3] = low, scales[5] = high;
    QuantTensor t = fp4_tensor("t", 130, 128, group, type, std::move(codes), std::move(scales));
    t.global = global;
    return t;
  };
  struct Case {
    const char* what;
    DType type;
    std::uint8_t low, high;  // of the second part; the first has the middle of the range
    Global first, second;
    bool folds;
  };
  const auto mul = Global::Op::multiply, div = Global::Op::divide;
  const Case cases[] = {
      {"times 4", DType::f8_e4m3, 0x20, 0x40, {0.3f, mul}, {1.2f, mul}, true},
      {"divided", DType::f8_e4m3, 0x20, 0x40, {0.3f, div}, {1.2f, div}, true},
      {"equal", DType::f8_e4m3, 0x01, 0x7e, {0.3f, mul}, {0.3f, mul}, true},
      {"second part at the top, first has room", DType::f8_e4m3, 0x70, 0x7e, {0.3f, mul}, {1.2f, mul}, true},
      {"neither has room", DType::f8_e4m3, 0x01, 0x7e, {0.3f, mul}, {0.3f * 0x1p12f, mul}, false},
      {"subnormal scales lose bits", DType::f8_e4m3, 0x09, 0x79, {0.3f * 0x1p11f, mul}, {0.3f, mul}, false},
      {"no power of two", DType::f8_e4m3, 0x30, 0x38, {0.3f, mul}, {0.36923f, mul}, false},
      {"one multiplies, one divides", DType::f8_e4m3, 0x30, 0x38, {0.5f, mul}, {2.0f, div}, false},
      {"e8m0", DType::f8_e8m0, 100, 150, {3.0f, mul}, {96.0f, mul}, true},
      {"e8m0 at both ends", DType::f8_e8m0, 0, 254, {3.0f, mul}, {96.0f, mul}, true},  // the first part moves
      {"e8m0 out of range", DType::f8_e8m0, 0, 254, {3.0f, mul}, {3.0f * 0x1p120f, mul}, false},
  };
  for (const Case& c : cases) {
    const bool e4m3 = c.type == DType::f8_e4m3;
    const std::vector<QuantTensor> parts{tensor(e4m3 ? 0x30 : 60, e4m3 ? 0x48 : 120, c.type, c.first),
                                         tensor(c.low, c.high, c.type, c.second)};
    auto packed = pack_blockscaled(parts, "w");
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const std::vector<std::uint8_t> before(packed->scales.as<std::uint8_t>(),
                                           packed->scales.as<std::uint8_t>() + packed->scales.size());
    EXPECT_EQ(fold_globals(*packed), c.folds) << c.what;
    EXPECT_EQ(packed->parts[0].global == packed->parts[1].global, c.folds) << c.what;
    if (!c.folds) {
      EXPECT_EQ(0, std::memcmp(before.data(), packed->scales.data(), before.size())) << c.what;
    }
    for (std::int64_t p = 0; p < 2; ++p)
      EXPECT_EQ(values_of(parts[static_cast<std::size_t>(p)]), values_of(*unpack(packed->view, p))) << c.what;
    // Padding stays zero: rows 130 … 255 of the last atom row.
    for (std::int64_t i = 130 - 128; i < 128; ++i)
      ASSERT_EQ(packed->scales.as<std::uint8_t>()[sm1xx::scale_offset(3 * 128 + i, 1, packed->view.k_blocks)], 0) << c.what;
  }
}

}  // namespace
}  // namespace swordfish::test
