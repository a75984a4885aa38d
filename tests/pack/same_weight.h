// Equality of two packed weights, plane by plane.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "swordfish/pack.h"

namespace swordfish::test {

inline bool same_bytes(const void* a, const void* b, std::size_t size) {
  return (a == nullptr) == (b == nullptr) && (a == nullptr || std::memcmp(a, b, size) == 0);
}

// All that a kernel sees.
inline void expect_same(const PackedWeight& a, const PackedWeight& b) {
  const PackedView &v = a.view, &w = b.view;
  EXPECT_EQ(v.code, w.code);
  EXPECT_EQ(v.n, w.n);
  EXPECT_EQ(v.k, w.k);
  EXPECT_EQ(v.n_blocks, w.n_blocks);
  EXPECT_EQ(v.k_blocks, w.k_blocks);
  EXPECT_EQ(v.rows, w.rows);
  EXPECT_EQ(v.group_size, w.group_size);
  EXPECT_EQ(v.zero, w.zero);
  EXPECT_EQ(v.scale_type, w.scale_type);
  EXPECT_EQ(v.zero_type, w.zero_type);
  EXPECT_EQ(v.offset_type, w.offset_type);
  ASSERT_EQ(a.codes.size(), b.codes.size());
  ASSERT_EQ(a.scales.size(), b.scales.size());
  EXPECT_TRUE(same_bytes(v.codes, w.codes, a.codes.size()));
  EXPECT_TRUE(same_bytes(v.scales, w.scales, a.scales.size()));
  EXPECT_TRUE(same_bytes(v.zeros, w.zeros, a.zeros.size()));
  EXPECT_TRUE(same_bytes(v.offsets, w.offsets, a.offsets.size()));
  EXPECT_TRUE(same_bytes(v.gather, w.gather, a.gather.size()));
  EXPECT_TRUE(same_bytes(v.row_of_slice, w.row_of_slice, static_cast<std::size_t>(v.packed_k() / 16 * 4)));
  EXPECT_EQ(a.parts, b.parts);
  EXPECT_EQ(a.name, b.name);
}

}  // namespace swordfish::test
