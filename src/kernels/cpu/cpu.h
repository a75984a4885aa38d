// What the CPU kernels share outside the vector code: places and rows of a tile, cutting work into pieces, the epilogue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/parallel.h"
#include "swordfish/gemm.h"

namespace swordfish::cpu {

// The row of W in [0,64) at a place of a tile (vector-inl.h, "Tile order").
constexpr int row_of_place(CodeType code, int place) {
  const int lane = place % 4, c = place / 4, h = c / 8, g = c % 8;
  return code == CodeType::int8 ? 32 * h + 8 * lane + g : 16 * lane + 8 * h + g;
}

inline std::int64_t slices(const PackedView& w) { return w.packed_k() / 16; }

// Pieces of work: every n64 block, K cut into `split` ranges of whole k128 steps. A function of the shape alone, so that results do
// not depend on the number of threads.
struct Pieces {
  std::int64_t n_blocks = 0;
  std::int64_t slices = 0;
  int split = 1;
  std::int64_t count() const { return n_blocks * split; }
  // First slice of range s.
  std::int64_t begin(int s) const { return std::min(slices, (slices + 7) / 8 * s / split * 8); }
};
Pieces cut(const PackedView& w);

// Why neither vector kernel can do a problem, or empty: types, layout, device, and whether this processor has vectors.
std::string common_can_run(const Problem& p);

// y[m0 … m0+rows, rows of block nb] from fp32 sums in tile order, sums[row·row_stride + place]: adds the `split` partial sums in
// order (split_stride floats apart), applies the part's global (dividing where the file divides), adds the bias, and rounds once to
// y's type.
void store_tile(const Problem& p, const RunArgs& args, std::int64_t nb, std::int64_t m0, std::int64_t rows, const float* sums,
                std::int64_t row_stride, int split, std::int64_t split_stride);

// Calls fn(piece, slot) for every piece; slot is in [0, slots) and no two calls with one slot run at once, so that a slot may own
// scratch. Pieces are taken from a counter: any number of threads gives the same results.
template <class F>
void for_pieces(ThreadPool& pool, std::int64_t slots, std::int64_t pieces, F&& fn) {
  std::atomic<std::int64_t> next{0};
  pool.parallel_for(std::min(slots, pieces), [&](std::int64_t slot, int) {
    for (std::int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) fn(piece, slot);
  });
}

constexpr std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// 2·value + 12 of each e2m1 code: non-negative integers, so that vector code can treat fp4 like int4 with a zero point of 12.
alignas(16) inline constexpr std::uint8_t kDoubledE2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

}  // namespace swordfish::cpu
