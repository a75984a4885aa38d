// ldmatrix, stmatrix and mma.sync of the model.
#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/machine.h"
#include "emulator/mma.h"

namespace swordfish::emu {
namespace {

struct RowArgs {
  SharedAddress row;
  int matrices;
  bool transpose;
  const std::uint32_t* in;  // stmatrix
};

// The 8x8 elements of matrix m; rows are read or written by the lanes that named them.
struct Tile {
  std::uint16_t e[8][8];
};

// The registers that each lane has of a tile: lane l holds elements 2(l%4), +1 of row l/4 (transposed: of column l/4).
std::uint32_t fragment(const Tile& t, std::size_t lane_index, bool transpose) {
  const std::size_t r = lane_index / 4, c = 2 * (lane_index % 4);
  const std::uint32_t low = transpose ? t.e[c][r] : t.e[r][c], high = transpose ? t.e[c + 1][r] : t.e[r][c + 1];
  return low | high << 16;
}
void set_fragment(Tile& t, std::size_t lane_index, bool transpose, std::uint32_t v) {
  const std::size_t r = lane_index / 4, c = 2 * (lane_index % 4);
  (transpose ? t.e[c][r] : t.e[r][c]) = static_cast<std::uint16_t>(v);
  (transpose ? t.e[c + 1][r] : t.e[r][c + 1]) = static_cast<std::uint16_t>(v >> 16);
}

// The access of one row, made as the lane that gave its address.
std::byte* row_of(const WarpArgs& args, std::size_t lane_index, Access access, int phase) {
  Lane* running = grid->current;
  grid->current = running->warp->lanes[lane_index];
  const auto& row = static_cast<const RowArgs*>(args.in[lane_index])->row;
  Cta& cta = shared_target(row, 16, 16, args.at);
  touch_shared(cta, row.offset, 16, access, args.at);
  if (grid->options.count)
    sample(access == Access::read ? PlaceKind::shared_load : PlaceKind::shared_store, row.offset, 16, args.at,
           static_cast<std::uint8_t>(phase));
  grid->current = running;
  return cta.shared + row.offset;
}

void load(const WarpArgs& args) {
  const auto& a = *static_cast<const RowArgs*>(args.in[0]);
  for (int m = 0; m < a.matrices; ++m) {
    Tile t;
    for (std::size_t r = 0; r < 8; ++r) std::memcpy(t.e[r], row_of(args, 8 * static_cast<std::size_t>(m) + r, Access::read, m), 16);
    for (std::size_t l = 0; l < 32; ++l) static_cast<std::uint32_t*>(args.out[l])[m] = fragment(t, l, a.transpose);
  }
}

void store(const WarpArgs& args) {
  const auto& a = *static_cast<const RowArgs*>(args.in[0]);
  for (int m = 0; m < a.matrices; ++m) {
    Tile t;
    for (std::size_t l = 0; l < 32; ++l) set_fragment(t, l, a.transpose, static_cast<const RowArgs*>(args.in[l])->in[m]);
    for (std::size_t r = 0; r < 8; ++r)
      std::memcpy(row_of(args, 8 * static_cast<std::size_t>(m) + r, Access::write, m), t.e[r], 16);
  }
}

struct MmaArgs {
  const std::uint32_t *a, *b;
  const float* c;
};

template <bool bf16>
void multiply(const WarpArgs& args) {
  ++grid->outcome.counters.mma;
  std::uint16_t a[16][16], b[8][16];  // b by columns
  float c[16][8], d[16][8];
  for (std::size_t l = 0; l < 32; ++l) {
    const auto& m = *static_cast<const MmaArgs*>(args.in[l]);
    const std::size_t g = l / 4, t = 2 * (l % 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = g + 8 * (i & 1), k = t + 8 * (i >> 1);
      a[row][k] = static_cast<std::uint16_t>(m.a[i]);
      a[row][k + 1] = static_cast<std::uint16_t>(m.a[i] >> 16);
      c[g + 8 * (i >> 1)][t + (i & 1)] = m.c[i];
    }
    for (std::size_t i = 0; i < 2; ++i) {
      b[g][t + 8 * i] = static_cast<std::uint16_t>(m.b[i]);
      b[g][t + 8 * i + 1] = static_cast<std::uint16_t>(m.b[i] >> 16);
    }
  }
  mma_16x8x16(d, a, b, c, bf16);
  for (std::size_t l = 0; l < 32; ++l) {
    auto* out = static_cast<float*>(args.out[l]);
    for (std::size_t i = 0; i < 4; ++i) out[i] = d[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)];
  }
}

}  // namespace

void load_matrix(std::uint32_t* out, SharedAddress row, int matrices, bool transpose, Loc at) {
  const RowArgs args{row, matrices, transpose, nullptr};
  warp_op("ldmatrix", kWholeWarp, &args, out, load, true, false, at);
}

void store_matrix(const std::uint32_t* in, SharedAddress row, int matrices, bool transpose, Loc at) {
  const RowArgs args{row, matrices, transpose, in};
  warp_op("stmatrix", kWholeWarp, &args, nullptr, store, true, false, at);
}

void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, bool bf16, Loc at) {
  const MmaArgs args{a, b, c};
  warp_op("mma.sync", kWholeWarp, &args, d, bf16 ? multiply<true> : multiply<false>, true, false, at);
}

}  // namespace swordfish::emu
