// Vector pieces that the CPU kernels share: the order of rows inside a tile, expanding a scale row, reading x.
//
// Included once per Highway target, inside foreach_target.h (hence the toggled guard).
//
// Tile order. The words of mma64/1 keep four rows of W side by side, so the kernels keep the 64 rows of a block in the order in
// which they come out of a word: place 4·c + lane, c = 8·h + g, holds row
//
//     int4, fp4:  n = 16·lane + 8·h + g        (h: lower or upper byte of a 16-bit half word)
//     int8:       n = 32·h + 8·lane + g        (h: half of the sub-tile)
//
// with g = l / 4 as in src/pack/mma64.h. Scales are put into tile order once a scale row, sums leave it in the epilogue: nothing is
// shuffled per code. row_of_place() in cpu.h is the same map for scalar code.
#if defined(SWORDFISH_KERNELS_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SWORDFISH_KERNELS_CPU_VECTOR_INL_H
#undef SWORDFISH_KERNELS_CPU_VECTOR_INL_H
#else
#define SWORDFISH_KERNELS_CPU_VECTOR_INL_H
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace swordfish::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<std::uint32_t>;
using DI = hn::ScalableTag<std::int32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));  // 4, 8 or 16

// The value of a stored number of 8 or 16 bits, zero-extended to 32, as fp32. Exact, f16 infinities and NaN included.
template <DType kType>
HWY_INLINE VF ToFloat(VU v) {
  const DF df;
  const DU du;
  const DI di;
  if constexpr (kType == DType::bf16) {
    return hn::BitCast(df, hn::ShiftLeft<16>(v));
  } else if constexpr (kType == DType::f16) {
    const VU sign = hn::ShiftLeft<16>(hn::And(v, hn::Set(du, 0x8000u)));
    const VU magnitude = hn::And(v, hn::Set(du, 0x7fffu));
    const VU bits = hn::ShiftLeft<13>(magnitude);
    const VU finite = hn::BitCast(du, hn::Mul(hn::BitCast(df, bits), hn::Set(df, 0x1p112f)));
    const VU special = hn::Or(bits, hn::Set(du, 0x7f800000u));
    const auto is_special = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff)));
    return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
  } else if constexpr (kType == DType::f8_e4m3) {  // readers refuse its NaN
    const VU sign = hn::ShiftLeft<24>(hn::And(v, hn::Set(du, 0x80u)));
    const VF magnitude = hn::Mul(hn::BitCast(df, hn::ShiftLeft<20>(hn::And(v, hn::Set(du, 0x7fu)))), hn::Set(df, 0x1p120f));
    return hn::BitCast(df, hn::Or(sign, hn::BitCast(du, magnitude)));
  } else if constexpr (kType == DType::f8_e8m0) {  // 0 is 2^-127, an fp32 subnormal; readers refuse its NaN
    return hn::BitCast(df, hn::Max(hn::ShiftLeft<23>(v), hn::Set(du, 0x00400000u)));
  } else if constexpr (kType == DType::u8) {
    return hn::ConvertTo(df, hn::BitCast(di, v));
  } else {
    static_assert(kType == DType::i16);
    return hn::ConvertTo(df, hn::ShiftRight<16>(hn::BitCast(di, hn::ShiftLeft<16>(v))));
  }
}

// 64 values of a plane's row into tile order: out[4·(8h+g) + lane] = value(in[base·h + step·lane + g]).
template <DType kType>
HWY_INLINE void ExpandRow16(const std::uint16_t* HWY_RESTRICT in, int base, int step, float* HWY_RESTRICT out) {
  const hn::Full128<std::uint16_t> d16;
  const hn::Full128<std::uint32_t> d32;
  for (int h = 0; h < 2; ++h) {
    const std::uint16_t* row = in + base * h;
    const auto r0 = hn::LoadU(d16, row), r1 = hn::LoadU(d16, row + step);
    const auto r2 = hn::LoadU(d16, row + 2 * step), r3 = hn::LoadU(d16, row + 3 * step);
    const auto a0 = hn::BitCast(d32, hn::InterleaveLower(d16, r0, r1)), a1 = hn::BitCast(d32, hn::InterleaveUpper(d16, r0, r1));
    const auto b0 = hn::BitCast(d32, hn::InterleaveLower(d16, r2, r3)), b1 = hn::BitCast(d32, hn::InterleaveUpper(d16, r2, r3));
    alignas(64) std::uint16_t t[32];  // [g][lane]
    hn::Store(hn::BitCast(d16, hn::InterleaveLower(d32, a0, b0)), d16, t);
    hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d32, a0, b0)), d16, t + 8);
    hn::Store(hn::BitCast(d16, hn::InterleaveLower(d32, a1, b1)), d16, t + 16);
    hn::Store(hn::BitCast(d16, hn::InterleaveUpper(d32, a1, b1)), d16, t + 24);
    for (int i = 0; i < 32; i += kLanes) {
      const hn::Rebind<std::uint16_t, DU> half;
      hn::Store(ToFloat<kType>(hn::PromoteTo(DU(), hn::Load(half, t + i))), DF(), out + 32 * h + i);
    }
  }
}

template <DType kType>
HWY_INLINE void ExpandRow8(const std::uint8_t* HWY_RESTRICT in, int base, int step, float* HWY_RESTRICT out) {
  const hn::Full64<std::uint8_t> d8;
  const hn::Full128<std::uint8_t> q8;
  const hn::Full128<std::uint16_t> d16;
  for (int h = 0; h < 2; ++h) {
    const std::uint8_t* row = in + base * h;
    const auto load = [&](int i) { return hn::ZeroExtendVector(q8, hn::LoadU(d8, row + i * step)); };
    const auto ab = hn::InterleaveLower(q8, load(0), load(1)), cd = hn::InterleaveLower(q8, load(2), load(3));
    alignas(64) std::uint8_t t[32];  // [g][lane]
    hn::Store(hn::BitCast(q8, hn::InterleaveLower(d16, hn::BitCast(d16, ab), hn::BitCast(d16, cd))), q8, t);
    hn::Store(hn::BitCast(q8, hn::InterleaveUpper(d16, hn::BitCast(d16, ab), hn::BitCast(d16, cd))), q8, t + 16);
    for (int i = 0; i < 32; i += kLanes) {
      const hn::Rebind<std::uint8_t, DU> quarter;
      hn::Store(ToFloat<kType>(hn::PromoteTo(DU(), hn::Load(quarter, t + i))), DF(), out + 32 * h + i);
    }
  }
}

// Scale row `row` of block `nb` of a plane [n_blocks, rows, 64], as fp32 in tile order.
HWY_INLINE void ExpandRow(const PackedView& w, DType type, const void* plane, std::int64_t nb, std::int64_t row,
                          float* HWY_RESTRICT out) {
  const int base = w.code == CodeType::int8 ? 32 : 8, step = w.code == CodeType::int8 ? 8 : 16;
  const std::size_t at = static_cast<std::size_t>(nb * w.rows + row) * 64;
  const auto* p8 = static_cast<const std::uint8_t*>(plane) + at;
  const auto* p16 = static_cast<const std::uint16_t*>(plane) + at;
  switch (type) {
    case DType::f16: return ExpandRow16<DType::f16>(p16, base, step, out);
    case DType::bf16: return ExpandRow16<DType::bf16>(p16, base, step, out);
    case DType::i16: return ExpandRow16<DType::i16>(p16, base, step, out);
    case DType::f8_e4m3: return ExpandRow8<DType::f8_e4m3>(p8, base, step, out);
    case DType::f8_e8m0: return ExpandRow8<DType::f8_e8m0>(p8, base, step, out);
    case DType::u8: return ExpandRow8<DType::u8>(p8, base, step, out);
    default: {  // f32
      const float* p = static_cast<const float*>(plane) + at;
      for (int c = 0; c < 16; ++c)
        for (int lane = 0; lane < 4; ++lane) out[4 * c + lane] = p[base * (c / 8) + step * lane + c % 8];
    }
  }
}

// Columns 16·slice … +15 of one row of x in packed order, as fp32. Columns past K and padding columns read as 0; nothing past
// x[k-1] is touched.
HWY_INLINE void LoadSlice(const PackedView& w, DType type, const std::uint16_t* HWY_RESTRICT x, std::int64_t slice,
                          float* HWY_RESTRICT out) {
  alignas(64) std::uint16_t gathered[16];
  const std::uint16_t* in = x + 16 * slice;
  if (w.gather) {
    const std::int32_t* index = w.gather + 16 * slice;
    for (int i = 0; i < 16; ++i) gathered[i] = index[i] < 0 ? std::uint16_t{0} : x[index[i]];
    in = gathered;
  } else if (const std::int64_t left = w.k - 16 * slice; left < 16) {
    for (int i = 0; i < 16; ++i) gathered[i] = i < left ? in[i] : std::uint16_t{0};
    in = gathered;
  }
  const hn::Rebind<std::uint16_t, DU> half;
  for (int i = 0; i < 16; i += kLanes) {
    const VU bits = hn::PromoteTo(DU(), hn::LoadU(half, in + i));
    hn::Store(type == DType::bf16 ? ToFloat<DType::bf16>(bits) : ToFloat<DType::f16>(bits), DF(), out + i);
  }
}
#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace swordfish::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
