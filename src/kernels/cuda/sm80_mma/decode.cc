// Which instance of the decode kernels runs a product, and how its work is cut.
#include <algorithm>

#include "kernels/cuda/sm80_mma/decode.h"

namespace swordfish::mma {
namespace {

Weights weights_of(const PackedView& w) {
  switch (w.code) {
    case CodeType::int4: return Weights::int4;
    case CodeType::int8: return Weights::int8;
    case CodeType::fp4: break;
  }
  return w.scale_type == DType::f8_e4m3 ? Weights::fp4_e4m3 : Weights::fp4;
}

Flush flush_of(const PackedView& w) {
  const Weights weights = weights_of(w);
  if (weights == Weights::fp4_e4m3) return Flush::slices;
  const bool regular = w.row_of_slice == nullptr;
  const std::int64_t covered = w.rows == 1 ? w.packed_k() : w.group_size;
  if (regular && weights != Weights::fp4 && covered >= w.block_k()) return Flush::units;
  if (regular && weights != Weights::int8 && covered >= 32) return Flush::pairs;
  return Flush::slices;
}

int element_shift(DType type) {
  return type == DType::f32 ? 2 : type == DType::f16 || type == DType::bf16 || type == DType::i16 ? 1 : 0;
}
int extra_shift(const PackedView& w, bool has_zeros, bool has_offsets) {
  return has_zeros ? element_shift(w.zero_type) : has_offsets ? element_shift(w.offset_type) : -1;
}

template <Weights weights, int m8>
int slot_of(Flush flush, int scale, int extra) {
  switch (flush) {
    case Flush::units: return slot_bytes<DecodeShape<weights, m8, Flush::units>>(scale, extra);
    case Flush::pairs: return slot_bytes<DecodeShape<weights, m8, Flush::pairs>>(scale, extra);
    case Flush::slices: break;
  }
  return slot_bytes<DecodeShape<weights, m8, Flush::slices>>(scale, extra);
}
template <int m8>
int slot_of(Weights weights, Flush flush, int scale, int extra) {
  switch (weights) {
    case Weights::int4: return slot_of<Weights::int4, m8>(flush, scale, extra);
    case Weights::int8: return slot_of<Weights::int8, m8>(flush, scale, extra);
    case Weights::fp4: return slot_of<Weights::fp4, m8>(flush, scale, extra);
    case Weights::fp4_e4m3: break;
  }
  return slot_of<Weights::fp4_e4m3, m8>(flush, scale, extra);
}

std::int64_t shared_bytes(const PackedView& w, const DecodePlan& p, int warps, int cluster) {
  const int scale = element_shift(w.scale_type), extra = extra_shift(w, w.zeros != nullptr, w.offsets != nullptr);
  const int slot = p.m8 == 1   ? slot_of<1>(p.weights, p.flush, scale, extra)
                   : p.m8 == 2 ? slot_of<2>(p.weights, p.flush, scale, extra)
                               : slot_of<4>(p.weights, p.flush, scale, extra);
  return std::int64_t{warps} * kStages * slot + (cluster - 1) * p.m8 * 2048 + (p.weights == Weights::fp4_e4m3 ? warps * 512 : 0);
}

// The warps of the instance that has an SM to itself.
int warps_of(const DecodePlan& p) { return p.m8 == 4 ? 8 : p.m8 == 2 && p.flush == Flush::slices ? 12 : 16; }

// How many CTAs, of how many warps. In order: no column is split; columns are split inside of clusters of two; by flags. An SM
// holds one CTA of 16 warps, or two of 8, which hide each other's ends (28672 × 4096: 19.2 against 20.0 us) but where columns are
// many, or must be split, cost more. Clusters of four are no gain: too few of them are co-resident (4096 × 4096: 7.8 against 5.2
// us).
void choose_split(const PackedView& w, const Gpu& gpu, DecodePlan& p) {
  const std::int64_t columns = w.n_blocks, units = columns * w.k_blocks, sms = gpu.sms;
  const int warps = warps_of(p);
  const auto set = [&p](int n, std::int64_t ctas, int cluster) {
    p.warps = n;
    p.ctas = static_cast<int>(ctas);
    p.cluster = cluster;
  };
  if (columns <= sms && 10 * columns >= 7 * sms) return set(warps, columns, 1);
  for (std::int64_t c = sms; 100 * c >= 86 * sms; --c)
    if (columns % c == 0) return set(warps, c, 1);
  if (p.flush == Flush::units && p.m8 <= 2 && p.weights == Weights::int4 && 2 * (shared_bytes(w, p, 8, 1) + 1024) <= gpu.smem_sm)
    for (std::int64_t c = 2 * sms; 100 * c >= 168 * sms; --c)
      if (columns % c == 0) return set(8, c, 1);
  if (gpu.arch >= 90)
    for (std::int64_t c = sms / 2 * 2; 10 * c >= 9 * sms && c > 0; c -= 2)
      if (units % c == 0 && columns % (c / 2) == 0) return set(warps, c, 2);
  for (std::int64_t c = sms; 10 * c >= 9 * sms; --c)
    if (units % c == 0 && units / c % warps == 0) return set(warps, c, 1);
  set(warps, std::min(sms, units), 1);
}

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

DecodePlan plan_decode(const PackedView& w, std::int64_t m, DType x_type, const Gpu& gpu) {
  DecodePlan p;
  p.weights = weights_of(w);
  p.flush = flush_of(w);
  p.bf16 = x_type == DType::bf16;
  p.m8 = m <= 8 ? 1 : m > 16 && p.flush == Flush::units ? 4 : 2;
  p.packed_k = w.packed_k();
  choose_split(w, gpu, p);
  p.smem = static_cast<std::uint32_t>(shared_bytes(w, p, p.warps, p.cluster));
  const auto ctas = static_cast<std::size_t>(p.ctas);
  p.flags_bytes = round_up(4 * ctas);
  p.pieces_offset = p.flags_bytes;
  p.x_offset = p.pieces_offset + round_up(ctas * static_cast<std::size_t>(p.m8) * 2048);
  p.workspace = p.x_offset + round_up(static_cast<std::size_t>(m) * static_cast<std::size_t>(p.packed_k) * 2);
  return p;
}

}  // namespace swordfish::mma
