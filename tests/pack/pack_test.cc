// pack() and unpack(): every byte of every plane against a slow packer written from the formula, and the round trip, for any shape.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>

#include "pack/mma64.h"
#include "pack/synthetic.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

using test::code_of;
using test::Random;
using test::random_tensor;
using test::Shape;
using test::Zeros;

std::uint64_t raw(DType type, const void* p) {
  std::uint64_t v = 0;
  std::memcpy(&v, p, static_cast<std::size_t>(bits(type) / 8));
  return v;
}

std::int64_t zero_of(const QuantTensor& t, std::int64_t n, std::int64_t r) {
  return t.zeros ? static_cast<std::int64_t>(plane_value(t.zeros.type, t.zeros.at(n, r))) : t.zero;
}

// The invariants of a packed weight against the tensors it was made from.
void check(const std::vector<QuantTensor>& parts, const PackedWeight& w) {
  const PackedView& v = w.view;
  const QuantTensor& first = parts.front();
  const bool wide = first.code == CodeType::int8;
  ASSERT_EQ(v.codes, w.codes.data());
  ASSERT_EQ(v.n_parts, static_cast<std::int64_t>(parts.size()));
  ASSERT_EQ(v.k, first.k);
  ASSERT_EQ(v.rows, first.rows);
  ASSERT_EQ(v.code, first.code);
  ASSERT_EQ(v.scale_type, first.scales.type);
  ASSERT_EQ(v.zeros != nullptr, static_cast<bool>(first.zeros));
  ASSERT_EQ(v.offsets != nullptr, static_cast<bool>(first.offsets));
  ASSERT_EQ(w.codes.size(), static_cast<std::size_t>(v.n_blocks * v.k_blocks * 2048));
  ASSERT_EQ(w.scales.size(), static_cast<std::size_t>(v.n_blocks * v.rows * 64 * bits(v.scale_type) / 8));
  if (v.row_of_slice == nullptr) {
    ASSERT_TRUE(v.rows == 1 ? v.group_size == v.packed_k() : v.group_size >= 16 && (v.group_size & (v.group_size - 1)) == 0);
  } else {
    ASSERT_EQ(w.row_of_slice.size(), static_cast<std::size_t>(v.packed_k() / 16 * 4));
  }
  // Each column appears once; each slice has one scale row, which is the row of its columns.
  if (v.gather != nullptr) {
    ASSERT_EQ(w.gather.size(), static_cast<std::size_t>(v.packed_k() * 4));
  } else {
    ASSERT_EQ(v.k_blocks, (v.k + v.block_k() - 1) / v.block_k());
  }
  std::vector<int> seen(static_cast<std::size_t>(v.k));
  std::int64_t last_row = 0;
  const auto column = [&](std::int64_t j) { return v.gather != nullptr ? v.gather[j] : j < v.k ? j : -1; };
  for (std::int64_t j = 0; j < v.packed_k(); ++j) {
    const std::int64_t k = column(j), row = v.row(j / 16);
    ASSERT_TRUE(k >= -1 && k < v.k);
    ASSERT_TRUE(row >= 0 && row < v.rows);
    if (k < 0) continue;
    seen[static_cast<std::size_t>(k)]++;
    ASSERT_EQ(row, first.row(k)) << "column " << k;
    if (v.gather != nullptr) {
      ASSERT_GE(row, last_row);
    }
    last_row = row;
  }
  for (const int count : seen) ASSERT_EQ(count, 1);

  std::int64_t n0 = 0, block0 = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const QuantTensor& t = parts[p];
    const PackedPart& part = v.parts[p];
    ASSERT_EQ(part.n0, n0);
    ASSERT_EQ(part.n, t.n);
    ASSERT_EQ(part.block0, block0);
    ASSERT_EQ(part.global, t.global);
    const std::int64_t blocks = (t.n + 63) / 64;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t nb = block0 + b;
      for (std::int64_t kb = 0; kb < v.k_blocks; ++kb) {
        const auto expected = test::slow_block(t.code, [&](int i, int j) -> int {
          const std::int64_t n = 64 * b + i, at = kb * v.block_k() + j, k = column(at);
          if (n >= t.n) return t.zeros ? default_zero(t.code) : t.zero;
          if (k < 0) return static_cast<int>(std::min<std::int64_t>(zero_of(t, n, v.row(at / 16)), wide ? 255 : 15));
          return code_of(t, n, k);
        });
        const auto* block = static_cast<const std::uint8_t*>(v.codes) + 2048 * (nb * v.k_blocks + kb);
        ASSERT_EQ(std::memcmp(block, expected.data(), 2048), 0) << "part " << p << " block " << b << ", " << kb;
      }
      const auto check_plane = [&](const Plane& from, const void* packed, DType type, std::uint64_t padding) {
        if (!from) return;
        ASSERT_EQ(type, from.type);
        const std::int64_t element = bits(type) / 8;
        for (std::int64_t r = 0; r < v.rows; ++r) {
          for (std::int64_t i = 0; i < 64; ++i) {
            const std::int64_t n = 64 * b + i;
            const auto* found = static_cast<const std::byte*>(packed) + ((nb * v.rows + r) * 64 + i) * element;
            ASSERT_EQ(raw(type, found), n < t.n ? raw(type, from.at(n, r)) : padding) << n << ' ' << r;
          }
        }
      };
      check_plane(t.scales, v.scales, v.scale_type, 0);
      check_plane(t.zeros, v.zeros, v.zero_type, static_cast<std::uint64_t>(default_zero(t.code)));
      check_plane(t.offsets, v.offsets, v.offset_type, 0);
    }

    const auto unpacked = unpack(v, static_cast<std::int64_t>(p));
    ASSERT_TRUE(unpacked.ok());
    const QuantTensor& u = *unpacked;
    ASSERT_EQ(u.name, t.name);
    ASSERT_EQ(u.n, t.n);
    ASSERT_EQ(u.k, t.k);
    ASSERT_EQ(u.rows, t.rows);
    ASSERT_EQ(u.global, t.global);
    if (!t.zeros) {
      ASSERT_EQ(u.zero, t.zero);
    }
    std::vector<std::uint8_t> a(static_cast<std::size_t>(t.n * t.k)), c(a.size());
    t.codes->read(0, t.n, 0, t.k, a.data(), static_cast<std::size_t>(t.k));
    u.codes->read(0, u.n, 0, u.k, c.data(), static_cast<std::size_t>(u.k));
    ASSERT_EQ(a, c);
    for (std::int64_t k = 0; k < t.k; ++k) ASSERT_EQ(u.row(k), t.row(k));
    const auto same_plane = [&](const Plane& x, const Plane& y) {
      ASSERT_EQ(static_cast<bool>(x), static_cast<bool>(y));
      if (!x) return;
      ASSERT_EQ(x.type, y.type);
      for (std::int64_t n = 0; n < t.n; ++n) {
        for (std::int64_t r = 0; r < t.rows; ++r) ASSERT_EQ(raw(x.type, x.at(n, r)), raw(y.type, y.at(n, r)));
      }
    };
    same_plane(t.scales, u.scales);
    same_plane(t.zeros, u.zeros);
    same_plane(t.offsets, u.offsets);
    n0 += t.n;
    block0 += blocks;
  }
  ASSERT_EQ(v.n, n0);
  ASSERT_EQ(v.n_blocks, block0);
}

void check_one(const QuantTensor& t, int threads = 2) {
  const auto w = pack(t, threads);
  ASSERT_TRUE(w.ok()) << w.status().message();
  std::vector<QuantTensor> parts{t};
  check(parts, *w);
}

// Columns [k0, k0+k) of a tensor the plain way: an explicit row for every column.
QuantTensor cut(const QuantTensor& t, std::int64_t k0, std::int64_t k) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(t.n * k));
  t.codes->read(0, t.n, k0, k, codes.data(), static_cast<std::size_t>(k));
  QuantTensor out = t;
  out.k = k;
  out.codes = std::make_shared<test::ByteCodes>(t.n, k, std::move(codes));
  out.row_of_k.clear();
  for (std::int64_t i = 0; i < k; ++i) out.row_of_k.push_back(static_cast<std::int32_t>(t.row(k0 + i)));
  return out;
}

constexpr CodeType kCodes[] = {CodeType::int4, CodeType::int8, CodeType::fp4};
constexpr DType kScales[] = {DType::f16, DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e8m0};
constexpr Zeros kZeros[] = {Zeros::constant, Zeros::u8, Zeros::i16, Zeros::offsets};

TEST(Pack, EveryKindOfTensor) {
  Random random(11);
  for (const CodeType code : kCodes) {
    for (const DType scale : kScales) {
      for (const Zeros zeros : kZeros) {
        if (zeros == Zeros::offsets && bits(scale) == 8) continue;
        for (const std::int64_t group : {16, 32, 48, 64, 128, 300}) {
          SCOPED_TRACE(testing::Message() << name(code) << ' ' << name(scale) << " zeros " << static_cast<int>(zeros) << " group "
                                          << group);
          check_one(random_tensor(random, {code, 70, 300, group, zeros, scale, false}));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Pack, AnyNAndK) {
  Random random(12);
  for (int round = 0; round < 400; ++round) {
    Shape shape;
    shape.code = kCodes[test::pick(random, 0, 2)];
    shape.n = test::pick(random, 1, 200);
    shape.k = test::pick(random, 1, 200);
    shape.group =
        std::array<std::int64_t, 9>{16, 32, 48, 64, 128, shape.k, 8, 20, 1}[static_cast<std::size_t>(test::pick(random, 0, 8))];
    shape.zeros = kZeros[test::pick(random, 0, 3)];
    shape.scale_type = kScales[test::pick(random, 0, 2)];
    shape.act_order = test::pick(random, 0, 3) == 0;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << shape.n << " x " << shape.k << " group " << shape.group
                                    << " act " << shape.act_order);
    check_one(random_tensor(random, shape));
    if (HasFatalFailure()) return;
  }
}

TEST(Pack, LongRowsAndManyBlocksCrossTheTasks) {
  Random random(13);
  for (const CodeType code : kCodes) {
    for (const bool act_order : {false, true}) {
      for (const int threads : {1, 3}) {
        check_one(random_tensor(random, {code, 330, 4170, 64, Zeros::u8, DType::f16, act_order}), threads);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Pack, RegularGroupsNeedNoTables) {
  Random random(14);
  const auto tables = [&](std::int64_t k, std::int64_t group) {
    const auto w = pack(random_tensor(random, {CodeType::int4, 8, k, group}), 1);
    return std::pair(w->view.row_of_slice != nullptr, w->view.gather != nullptr);
  };
  using Pair = std::pair<bool, bool>;
  for (const std::int64_t group : {16, 32, 64, 128, 256}) EXPECT_EQ(tables(1000, group), Pair(false, false)) << group;
  EXPECT_EQ(tables(1000, 1000), Pair(false, false));  // channelwise
  EXPECT_EQ(tables(1000, 48), Pair(true, false));     // slices do not straddle, the formula does not hold
  EXPECT_EQ(tables(1000, 40), Pair(true, true));      // slices straddle: sorted, each group padded to 48
  EXPECT_EQ(tables(1000, 24), Pair(false, true));     // each group padded to 32, which is regular again
}

TEST(Pack, TrivialActOrderIsNoActOrder) {
  Random random(15);
  QuantTensor t = random_tensor(random, {CodeType::int4, 64, 512, 128});
  for (std::int64_t k = 0; k < t.k; ++k) t.row_of_k.push_back(static_cast<std::int32_t>(k / 128));
  const auto w = pack(t, 1);
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(w->view.gather, nullptr);
  EXPECT_EQ(w->view.row_of_slice, nullptr);
  EXPECT_EQ(w->view.group_size, 128);
}

TEST(Pack, ActOrderSortsStablyAndPadsEachGroup) {
  Random random(16);
  QuantTensor t = random_tensor(random, {CodeType::int4, 4, 40, 20});
  t.row_of_k.clear();
  for (int k = 0; k < 40; ++k) t.row_of_k.push_back(k % 3 == 0 ? 1 : 0);  // 26 columns of row 0, 14 of row 1
  const auto w = pack(t, 1);
  ASSERT_TRUE(w.ok());
  const PackedView& v = w->view;
  ASSERT_EQ(v.packed_k(), 64);
  std::vector<std::int32_t> expected;
  for (int k = 0; k < 40; ++k)
    if (k % 3 != 0) expected.push_back(k);
  expected.resize(32, -1);
  for (int k = 0; k < 40; k += 3) expected.push_back(k);
  expected.resize(64, -1);
  EXPECT_EQ(std::vector<std::int32_t>(v.gather, v.gather + 64), expected);
  EXPECT_EQ(v.row(0), 0);
  EXPECT_EQ(v.row(1), 0);
  EXPECT_EQ(v.row(2), 1);
}

TEST(Pack, SlicesOfK) {
  Random random(17);
  for (int round = 0; round < 60; ++round) {
    const bool act_order = round % 2 == 0;
    const QuantTensor t = random_tensor(random, {kCodes[round % 3], 40, 384, 128, kZeros[round % 4], DType::f16, act_order});
    const std::int64_t k0 = round % 4 == 1 ? 16 * test::pick(random, 0, 20) : test::pick(random, 0, 380);
    const QuantTensor part = cut(t, k0, test::pick(random, 1, t.k - k0));
    check_one(part);
    if (HasFatalFailure()) return;
    if (!act_order && k0 % 16 == 0) {
      EXPECT_EQ(pack(part, 1)->view.gather, nullptr);
    }
  }
}

TEST(Pack, PartsArePaddedApartAndKeepTheirGlobals) {
  Random random(18);
  for (const CodeType code : kCodes) {
    for (const bool act_order : {false, true}) {
      std::vector<QuantTensor> parts;
      for (const std::int64_t n : {100, 1, 64, 129}) {
        parts.push_back(random_tensor(random, {code, n, 200, 32, Zeros::u8, DType::bf16, act_order}));
        parts.back().row_of_k = parts.front().row_of_k;
        parts.back().name = "part" + std::to_string(n);
        parts.back().global = {static_cast<float>(n), n % 2 != 0 ? Global::Op::multiply : Global::Op::divide};
      }
      const auto w = pack(parts, "fused", 2);
      ASSERT_TRUE(w.ok()) << w.status().message();
      EXPECT_EQ(w->name, "fused");
      check(parts, *w);
      if (HasFatalFailure()) return;
      EXPECT_EQ(w->view.n_blocks, 2 + 1 + 1 + 3);
    }
  }
}

TEST(Pack, PartsThatDisagreeAreRefused) {
  Random random(19);
  const Shape base{CodeType::int4, 64, 128, 32, Zeros::u8, DType::f16, false};
  const auto refused = [&](auto change, std::string_view word) {
    std::vector<QuantTensor> parts{random_tensor(random, base)};
    Shape other = base;
    change(other);
    parts.push_back(random_tensor(random, other));
    parts.back().name = "other";
    const auto w = pack(parts, "fused");
    ASSERT_FALSE(w.ok());
    EXPECT_EQ(w.status().code(), Code::invalid_argument);
    EXPECT_NE(w.status().message().find(word), std::string::npos) << w.status().message();
    EXPECT_NE(w.status().message().find("layer and other"), std::string::npos) << w.status().message();
  };
  refused([](Shape& s) { s.k = 96; }, "K is 128 and 96");
  refused([](Shape& s) { s.code = CodeType::fp4; }, "codes are int4 and fp4");
  refused([](Shape& s) { s.group = 64; }, "scale rows are 4 and 2");
  refused([](Shape& s) { s.scale_type = DType::bf16; }, "scales are F16 and BF16");
  refused([](Shape& s) { s.zeros = Zeros::constant; }, "zero points are U8 and absent");
  refused([](Shape& s) { s.zeros = Zeros::i16; }, "zero points are U8 and I16");
  refused([](Shape& s) { s.act_order = true; }, "different scale rows");
}

TEST(Pack, TensorsThatMakeNoSenseAreRefused) {
  Random random(20);
  const auto refused = [&](auto change) {
    QuantTensor t = random_tensor(random, {CodeType::int4, 64, 128, 32});
    change(t);
    const auto w = pack(t, 1);
    EXPECT_FALSE(w.ok());
    if (!w.ok()) {
      EXPECT_EQ(w.status().code(), Code::invalid_argument);
    }
  };
  refused([](QuantTensor& t) { t.n = 0; });
  refused([](QuantTensor& t) { t.k = 0; });
  refused([](QuantTensor& t) { t.codes = nullptr; });
  refused([](QuantTensor& t) { t.scales = {}; });
  refused([](QuantTensor& t) { t.scales.type = DType::i32; });
  refused([](QuantTensor& t) { t.group_size = 0; });
  refused([](QuantTensor& t) { t.group_size = 16; });  // 8 rows needed, 4 there
  refused([](QuantTensor& t) { t.row_of_k.assign(127, 0); });
  refused([](QuantTensor& t) { t.row_of_k.assign(128, 4); });
  refused([](QuantTensor& t) { t.row_of_k.assign(128, -1); });
  refused([](QuantTensor& t) { t.rows = 0; });
  EXPECT_FALSE(pack({}, "nothing").ok());
}

// What a kernel computes must not see padding: with x poisoned wherever no column is, and every code, scale and offset taken from
// the packed bytes alone, padded columns add exactly 0 and padded rows give exactly 0.
TEST(Pack, PaddingIsNeutral) {
  Random random(21);
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    for (const Zeros zeros : {Zeros::constant, Zeros::u8, Zeros::offsets}) {
      for (const bool act_order : {false, true}) {
        QuantTensor t = random_tensor(random, {code, 37, 75, 32, zeros, DType::f16, act_order});
        const auto w = pack(t, 1);
        ASSERT_TRUE(w.ok());
        const PackedView& v = w->view;
        for (std::int64_t n = 0; n < 64; ++n) {
          for (std::int64_t j = 0; j < v.packed_k(); ++j) {
            const bool column = v.gather != nullptr ? v.gather[j] >= 0 : j < v.k;
            if (column && n < t.n) continue;
            const auto* block = static_cast<const std::uint8_t*>(v.codes) + j / v.block_k() * 2048;
            const int q =
                mma64::code_at(block, code == CodeType::int8 ? 8 : 4, static_cast<int>(n), static_cast<int>(j % v.block_k()));
            const std::int64_t at = v.row(j / 16) * 64 + n;
            const int zero = v.zeros != nullptr ? static_cast<const std::uint8_t*>(v.zeros)[at] : v.zero;
            ASSERT_EQ(q, zero);
            if (n < t.n) continue;
            ASSERT_EQ(static_cast<const std::uint16_t*>(v.scales)[at], 0);
            if (v.offsets != nullptr) {
              ASSERT_EQ(static_cast<const std::uint16_t*>(v.offsets)[at], 0);
            }
          }
        }
      }
    }
  }
}

TEST(Pack, MovesKeepTheViewRight) {
  Random random(22);
  const QuantTensor t = random_tensor(random, {CodeType::int4, 100, 200, 24, Zeros::u8, DType::f16, true});
  auto packed = pack(t, 1);
  ASSERT_TRUE(packed.ok());
  PackedWeight a = std::move(packed).value();
  PackedWeight b(std::move(a));
  EXPECT_EQ(a.view.codes, nullptr);
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_EQ(b.view.parts, b.parts.data());
  PackedWeight c;
  c = std::move(b);
  std::vector<QuantTensor> parts{t};
  check(parts, c);
  EXPECT_EQ(c.bytes(),
            c.codes.size() + c.scales.size() + c.zeros.size() + c.row_of_slice.size() + c.gather.size() + sizeof(PackedPart));
}

TEST(Unpack, ReadsAnyRange) {
  Random random(23);
  for (const CodeType code : kCodes) {
    for (const bool act_order : {false, true}) {
      const QuantTensor t = random_tensor(random, {code, 150, 333, 32, Zeros::constant, DType::f16, act_order});
      const auto w = pack(t, 1);
      ASSERT_TRUE(w.ok());
      const auto u = unpack(w->view, 0);
      ASSERT_TRUE(u.ok());
      for (int round = 0; round < 200; ++round) {
        const std::int64_t n0 = test::pick(random, 0, 149), n = test::pick(random, 1, 150 - n0);
        const std::int64_t k0 = test::pick(random, 0, 332), k = test::pick(random, 1, 333 - k0);
        const auto stride = static_cast<std::size_t>(k + test::pick(random, 0, 5));
        std::vector<std::uint8_t> a(stride * static_cast<std::size_t>(n), 0xee), b(a);
        t.codes->read(n0, n, k0, k, a.data(), stride);
        u->codes->read(n0, n, k0, k, b.data(), stride);
        ASSERT_EQ(a, b);
      }
    }
  }
  const auto w = pack(random_tensor(random, {}), 1);
  EXPECT_FALSE(unpack(w->view, -1).ok());
  EXPECT_FALSE(unpack(w->view, 1).ok());
}

}  // namespace
}  // namespace swordfish
