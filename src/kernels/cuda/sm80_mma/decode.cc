// Which instance of the decode kernels runs a product, and how its work is cut.
#include <algorithm>

#include "kernels/cuda/sm80_mma/decode.h"

namespace swordfish::mma {
namespace {

// Whether each scale row covers so many whole columns.
bool rows_cover(const PackedView& w, std::int64_t k) {
  return w.row_of_slice == nullptr && (w.rows == 1 ? w.packed_k() : w.group_size) >= k;
}

Weights weights_of(const PackedView& w, bool bf16) {
  switch (w.code) {
    case CodeType::int4: return Weights::int4;
    case CodeType::int8: return Weights::int8;
    case CodeType::fp4: break;
  }
  if (w.scale_type == DType::f8_e4m3 && rows_cover(w, 16)) return Weights::fp4_e4m3;
  return w.scale_type == DType::f8_e8m0 && bf16 && rows_cover(w, 32) ? Weights::fp4_e8m0 : Weights::fp4;
}
Flush flush_of(const PackedView& w, const DecodePlan& p, SharedMemory shared) {
  if (scaled_in_fragment(p.weights)) return folded_flush(p.weights);
  const std::int64_t step = w.block_k() * decode_units(p.weights, p.m8, Flush::units, shared);
  if (p.weights != Weights::fp4 && rows_cover(w, step)) return Flush::units;
  const bool pairs = p.weights == Weights::int4 || (p.weights == Weights::fp4 && !p.bf16);
  return pairs && rows_cover(w, 32) ? Flush::pairs : Flush::slices;
}

int element_shift(DType type) {
  return type == DType::f32 ? 2 : type == DType::f16 || type == DType::bf16 || type == DType::i16 ? 1 : 0;
}
int extra_shift(const PackedView& w, bool has_zeros, bool has_offsets) {
  return has_zeros ? element_shift(w.zero_type) : has_offsets ? element_shift(w.offset_type) : -1;
}

// Bytes of shared memory a warp.
template <Weights weights, int m8, Flush flush, int units>
int warp_bytes(int scale, int extra, SharedMemory shared) {
  using Shape = DecodeShape<weights, m8, flush, units>;
  return decode_stages(units, shared) * slot_bytes<Shape>(scale, extra) + Shape::converted_bytes;
}
template <Weights weights, int m8, Flush flush>
int warp_bytes(int scale, int extra, SharedMemory shared) {
  return decode_units(weights, m8, flush, shared) == 2 ? warp_bytes<weights, m8, flush, 2>(scale, extra, shared)
                                                       : warp_bytes<weights, m8, flush, 1>(scale, extra, shared);
}
template <Weights weights, int m8>
int warp_bytes(Flush flush, int scale, int extra, SharedMemory shared) {
  if constexpr (scaled_in_fragment(weights)) return warp_bytes<weights, m8, folded_flush(weights)>(scale, extra, shared);
  switch (flush) {
    case Flush::units: return warp_bytes<weights, m8, Flush::units>(scale, extra, shared);
    case Flush::pairs: return warp_bytes<weights, m8, Flush::pairs>(scale, extra, shared);
    case Flush::slices: break;
  }
  return warp_bytes<weights, m8, Flush::slices>(scale, extra, shared);
}
template <int m8>
int warp_bytes(const DecodePlan& p, int scale, int extra, SharedMemory shared) {
  switch (p.weights) {
    case Weights::int4: return warp_bytes<Weights::int4, m8>(p.flush, scale, extra, shared);
    case Weights::int8: return warp_bytes<Weights::int8, m8>(p.flush, scale, extra, shared);
    case Weights::fp4: return warp_bytes<Weights::fp4, m8>(p.flush, scale, extra, shared);
    case Weights::fp4_e8m0: return warp_bytes<Weights::fp4_e8m0, m8>(p.flush, scale, extra, shared);
    case Weights::fp4_e4m3: break;
  }
  return warp_bytes<Weights::fp4_e4m3, m8>(p.flush, scale, extra, shared);
}

std::int64_t shared_bytes(const PackedView& w, const Gpu& gpu, const DecodePlan& p, int warps, int cluster) {
  const int scale = element_shift(w.scale_type), extra = extra_shift(w, w.zeros != nullptr, w.offsets != nullptr);
  const SharedMemory shared = shared_memory(gpu.arch);
  const int warp = p.m8 == 1 ? warp_bytes<1>(p, scale, extra, shared) : warp_bytes<2>(p, scale, extra, shared);
  return std::int64_t{warps} * warp + (cluster - 1) * p.m8 * 2048;
}

// How many CTAs, of how many warps. In order: no column is split; columns are split inside of clusters of two; by flags. An SM
// holds one CTA of 16 warps, or two of 8, which hide each other's ends (28672 × 4096: 19.2 against 20.0 us) but where columns are
// many, or must be split, cost more. Clusters of four are no gain: too few of them are co-resident (4096 × 4096: 7.8 against 5.2
// us). Where columns fill the SMs evenly enough, as they soon do on parts with few, none is split.
void choose_split(const PackedView& w, const Gpu& gpu, DecodePlan& p) {
  const std::int64_t columns = w.n_blocks, steps = columns * ((w.k_blocks + p.units - 1) / p.units), sms = gpu.sms;
  const int warps = decode_warps(p.weights, p.m8, p.flush, shared_memory(gpu.arch));
  const auto set = [&p, columns](int n, std::int64_t ctas, int cluster) {
    p.warps = n;
    p.ctas = static_cast<int>(ctas);
    p.cluster = cluster;
    p.whole = columns % ctas == 0;
  };
  if (columns <= sms && 10 * columns >= 7 * sms) return set(warps, columns, 1);
  for (std::int64_t c = sms; 100 * c >= 86 * sms; --c)
    if (columns % c == 0) return set(warps, c, 1);
  if (p.flush == Flush::units && p.weights == Weights::int4 && warps == 16 &&
      2 * (shared_bytes(w, gpu, p, 8, 1) + 1024) <= gpu.smem_sm) {
    for (std::int64_t c = 2 * sms; 100 * c >= 168 * sms; --c) {
      if (columns % c != 0) continue;
      p.two_ctas = true;
      return set(8, c, 1);
    }
  }
  // Splitting costs about 2.5 us, as much as 33 blocks of a column (24 SMs of an H200).
  if (const std::int64_t rounds = (columns + sms - 1) / sms; columns >= sms && (rounds * sms - columns) * w.k_blocks <= 33 * sms) {
    set(warps, sms, 1);
    p.whole = true;
    return;
  }
  if (gpu.arch >= 90)
    for (std::int64_t c = sms / 2 * 2; 10 * c >= 9 * sms && c > 0; c -= 2)
      if (steps % c == 0 && columns % (c / 2) == 0) return set(warps, c, 2);
  for (std::int64_t c = sms; 10 * c >= 9 * sms; --c)
    if (steps % c == 0 && steps / c % warps == 0) return set(warps, c, 1);
  set(warps, std::min(sms, steps), 1);
}

// --- the middle kernel -----------------------------------------------------------------------------------------------------------
// The ring of an instance, and the size of a unit in it.
struct RingSize {
  MiddleRing ring;
  int unit;
};
template <class Shape>
RingSize ring_size(Flush flush, int scale, int extra, SharedMemory shared) {
  return {middle_ring<Shape>(flush, shared), Shape::unit_bytes(scale, extra)};
}
template <Weights weights, int m16>
RingSize ring_size(const DecodePlan& p, int scale, int extra, SharedMemory shared) {
  if (p.flush == Flush::units)
    return p.columns == 2 ? ring_size<MiddleShape<weights, m16, Flush::units, 2>>(p.flush, scale, extra, shared)
                          : ring_size<MiddleShape<weights, m16, Flush::units, 4>>(p.flush, scale, extra, shared);
  return p.columns == 2 ? ring_size<MiddleShape<weights, m16, Flush::slices, 2>>(p.flush, scale, extra, shared)
                        : ring_size<MiddleShape<weights, m16, Flush::slices, 4>>(p.flush, scale, extra, shared);
}
template <int m16>
RingSize ring_size(const DecodePlan& p, int scale, int extra, SharedMemory shared) {
  return p.weights == Weights::int8 ? ring_size<Weights::int8, m16>(p, scale, extra, shared)
                                    : ring_size<Weights::int4, m16>(p, scale, extra, shared);
}
RingSize ring_size(const DecodePlan& p, int scale, int extra, SharedMemory shared) {
  switch (p.m16) {
    case 2: return ring_size<2>(p, scale, extra, shared);
    case 3: return ring_size<3>(p, scale, extra, shared);
    case 4: return ring_size<4>(p, scale, extra, shared);
    default: return ring_size<8>(p, scale, extra, shared);
  }
}

// Whether the scales and zero points can go into fragments of x's type.
bool middle_can(const PackedView& w, DType x_type) {
  if (w.offsets || (w.zeros && w.zero_type != DType::u8)) return false;
  if (x_type == DType::f16 && w.scale_type != DType::f16 && w.scale_type != DType::f8_e4m3) return false;
  return w.code == CodeType::fp4 || w.zeros || (w.zero >= 0 && w.zero <= 128);
}

// What a cut of the line costs, in microseconds on an H200 (MEASURED.md, "H200: middle M"): the CTA with most to do. A turn is a
// step of every group of 8 warps; ending a segment but the last, and each piece that an owner adds, cost as much as some turns.
struct MiddleCost {
  std::int64_t tiles, k_steps;
  int groups, m16, columns, units;
  double turns(std::int64_t steps) const {
    const std::int64_t n = (steps + groups - 1) / groups;
    if (m16 == 8) return static_cast<double>(n * units) * 1.36 * groups * columns / 4;
    return static_cast<double>(n * units) * (0.49 + 0.23 * m16) * groups * columns / 8;
  }
  static constexpr double end = 2.2;
  double start() const { return m16 == 8 ? 5.5 : 2.3 + 1.37 * m16; }
  double split(std::int64_t ctas) const {
    double worst = 0;
    const std::int64_t steps = tiles * k_steps, each = steps / ctas, more = steps % ctas;
    for (std::int64_t c = 0, from = 0; c < ctas; ++c) {
      const std::int64_t to = from + each + (c < more);
      double sum = -end;
      for (std::int64_t at = from; at < to;) {
        const std::int64_t tile_end = (at / k_steps + 1) * k_steps;
        if (at % k_steps == 0 && tile_end <= to) {  // whole tiles cost the same
          const std::int64_t whole = (to - at) / k_steps;
          sum += static_cast<double>(whole) * (turns(k_steps) + end);
          at += whole * k_steps;
          continue;
        }
        const std::int64_t stop = std::min(tile_end, to);
        sum += turns(stop - at) + end;
        const std::int64_t pieces = at % k_steps == 0 ? (tile_end - to + each - 1) / each : 0;
        sum += 0.08 * m16 * columns * static_cast<double>(pieces);
        at = stop;
      }
      worst = std::max(worst, sum);
      from = to;
    }
    return worst + start();
  }
  double whole(std::int64_t rounds) const { return static_cast<double>(rounds) * (turns(k_steps) + end) - end + start(); }
};

// The number of CTAs, and the cost.
double choose_ctas(const MiddleCost& cost, std::int64_t sms, DecodePlan& p) {
  const std::int64_t tiles = cost.tiles, steps = tiles * cost.k_steps, most = std::min(sms, steps);
  const std::int64_t rounds = (tiles + most - 1) / most;
  p.ctas = static_cast<int>((tiles + rounds - 1) / rounds);
  p.whole = true;
  double least = cost.whole(rounds);
  const auto consider = [&](std::int64_t c) {
    if (const double v = cost.split(c); v < least) {
      least = v;
      p.ctas = static_cast<int>(c);
      p.whole = false;
    }
  };
  consider(most);
  if (tiles <= most) consider(most / tiles * tiles);
  for (std::int64_t c = most; 4 * c >= 3 * most && c > 0; --c) {
    if (steps % c != 0) continue;
    consider(c);
    break;
  }
  return least;
}

bool plan_middle(const PackedView& w, std::int64_t m, const Gpu& gpu, const DecodeChoice& choice, DecodePlan& p) {
  p.weights = w.code == CodeType::int4 ? Weights::int4 : w.code == CodeType::int8 ? Weights::int8 : Weights::fp4;
  p.flush = p.weights != Weights::fp4 && rows_cover(w, w.block_k()) ? Flush::units : Flush::slices;
  const bool most_instances = p.weights == Weights::int4 && p.flush == Flush::units;  // other tiles than 32 or 64 by 128
  const int scale = element_shift(w.scale_type), extra = extra_shift(w, w.zeros != nullptr, false);
  DecodePlan best;
  double least = 0;
  for (const int m16 : {2, 3, 4, 8}) {
    for (const int c : {2, 4}) {
      if ((choice.columns && c != choice.columns) || (choice.m16 && m16 != choice.m16)) continue;
      if ((!most_instances && (m16 == 3 || m16 == 8 || c == 4)) || ((m16 == 3 || m16 == 8) && c == 4)) continue;
      if (m16 == 8 && m <= 64) continue;
      p.m16 = m16;
      p.columns = c;
      const RingSize size = ring_size(p, scale, extra, shared_memory(gpu.arch));
      const int group_warps = m16 > 4 ? 2 * c : c;
      p.units = size.ring.units;
      const auto bytes = [&](int g) {
        return g * (std::int64_t{size.ring.stages} * p.units * size.unit + group_warps * kConvertedBytes);
      };
      int groups = kMiddleWarps / group_warps;
      while (groups > 1 && bytes(groups) > gpu.smem_block) --groups;
      if (bytes(groups) > gpu.smem_block) continue;
      p.warps = groups * group_warps;
      p.smem = static_cast<std::uint32_t>(bytes(groups));
      const std::int64_t tiles = (w.n_blocks + c - 1) / c * ((m + 16 * m16 - 1) / (16 * m16));
      const double cost = choose_ctas({tiles, (w.k_blocks + p.units - 1) / p.units, groups, m16, c, p.units}, gpu.sms, p);
      if (best.m16 && cost >= least) continue;
      least = cost;
      best = p;
    }
  }
  p = best;
  return best.m16 != 0;
}

// The largest tiles, in floats: 64 tokens of four columns or 128 of two; 16 of one.
constexpr std::size_t kMiddleTile = 64 * 256, kDecodeTile = 16 * 64;
constexpr std::size_t round_up(std::size_t n) { return (n + 255) / 256 * 256; }

}  // namespace

std::string decode_refuses(const PackedView& w, DType x_type, const Gpu& gpu) {
  if (gpu.arch < 80) return "mma.sync with bf16 needs compute capability 8.0";
  if (x_type != DType::bf16 && x_type != DType::f16) return "x must be bf16 or f16";
  if (w.n_parts > kMaxParts) return "more than 8 parts";
  const bool scale = w.scale_type == DType::f16 || w.scale_type == DType::bf16 || w.scale_type == DType::f32 ||
                     w.scale_type == DType::f8_e4m3 || w.scale_type == DType::f8_e8m0;
  if (!scale) return "scales must be f16, bf16, f32, e4m3 or e8m0";
  if (w.code == CodeType::fp4 && (w.zeros || w.offsets)) return "fp4 has no zero points";
  if (w.n_blocks >= (std::int64_t{1} << 31) / w.k_blocks - 1) return "2^31 blocks or more";
  const DecodePlan plan = plan_decode(w, 9, x_type, gpu);
  if (plan.smem > gpu.smem_block) return "its shared memory exceeds the device's";
  return {};
}

DecodePlan plan_decode(const PackedView& w, std::int64_t m, DType x_type, const Gpu& gpu, const DecodeChoice& choice) {
  DecodePlan start;
  start.bf16 = x_type == DType::bf16;
  start.packed_k = w.packed_k();
  start.dependent = gpu.arch >= 90;
  DecodePlan p = start;
  const bool middle = choice.kernel == DecodeChoice::best && m > 16 && middle_can(w, x_type) && plan_middle(w, m, gpu, choice, p);
  if (!middle) {
    p = start;
    const SharedMemory shared = shared_memory(gpu.arch);
    p.weights = weights_of(w, p.bf16);
    p.m8 = m <= 8 ? 1 : 2;
    p.flush = flush_of(w, p, shared);
    p.units = decode_units(p.weights, p.m8, p.flush, shared);
    choose_split(w, gpu, p);
    p.smem = static_cast<std::uint32_t>(shared_bytes(w, gpu, p, p.warps, p.cluster));
  }
  // The same places for every M of a weight, and never less for more rows: one workspace serves all. The flags stay zero.
  const auto sms = static_cast<std::size_t>(gpu.sms);
  p.flags_bytes = round_up(4 * 2 * sms);
  p.pieces_offset = p.flags_bytes;
  p.x_offset = p.pieces_offset + round_up(m > 16 ? 4 * sms * kMiddleTile : 4 * 2 * sms * kDecodeTile);
  p.workspace = p.x_offset + round_up(static_cast<std::size_t>(m) * static_cast<std::size_t>(p.packed_k) * 2);
  return p;
}

}  // namespace swordfish::mma
