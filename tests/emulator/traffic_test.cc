// What a 64×64 block of weights costs in the main loops: bytes and load-store wavefronts, counted by the machine model and pinned,
// so that a slower access pattern shows without a GPU. docs/kernels.md shows the numbers.
#include <gtest/gtest.h>

#include <cstdint>

#include "emulator/mma_case.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/middle.cuh"

namespace swordfish::mma {
namespace {

struct Cost {
  std::uint64_t load_wavefronts, load_conflicts;  // of shared memory, per block
  std::uint64_t copy_bytes;                       // by cp.async: codes, scales and x, per block
  friend bool operator==(const Cost&, const Cost&) = default;
};
void PrintTo(const Cost& c, std::ostream* out) {
  *out << "{" << c.load_wavefronts << ", " << c.load_conflicts << ", " << c.copy_bytes << "}";
}

// The difference of two runs that differ in K alone, over their blocks: ends and beginnings cancel out.
template <class Run>
Cost per_block(const Run& run, int columns) {
  constexpr int short_k = 1024, long_k = 2048;
  const emu::Counters a = run(short_k), b = run(long_k);
  const auto blocks = static_cast<std::uint64_t>((long_k - short_k) / 64 * columns);
  const auto wavefronts = b.shared_loads.shared_wavefronts - a.shared_loads.shared_wavefronts;
  const auto ideal = b.shared_loads.shared_ideal - a.shared_loads.shared_ideal;
  return {wavefronts / blocks, (wavefronts - ideal) / blocks, (b.async_copies.bytes - a.async_copies.bytes) / blocks};
}

template <Weights weights, int kM8, Flush flush>
Cost decode(int m, int group, PlaneType scale) {
  return per_block(
      [&](int k) {
        constexpr int warps = 4, units = decode_units(weights, kM8, flush, SharedMemory::large), stages = units == 2 ? 2 : 3;
        using Shape = DecodeShape<weights, kM8, flush, units>;
        const Case c{.weights = weights, .n = 64, .k = k, .m = m, .group = group, .scale_type = scale};
        Prepared p(c, Half::bf16, false);
        p.args.steps = (p.args.k_blocks + units - 1) / units;
        p.cut(p.args.steps, 1, kM8 * 512);
        ptx::LaunchShape shape{.threads = 32 * warps};
        shape.dynamic_smem =
            static_cast<std::uint32_t>(warps * (stages * slot_bytes<Shape>(plane_shift(scale), -1) + Shape::converted_bytes));
        const emu::Outcome o = emu::launch(shape, {.kernel = "decode", .races = false, .count = true},
                                           [a = p.args] { decode_kernel<weights, Half::bf16, kM8, flush, warps, stages>(a); });
        EXPECT_FALSE(o.fault) << o.fault->message();
        return o.counters;
      },
      1);
}
template <Weights weights, int kM16, Flush flush, int kColumns>
Cost middle(int m, int group, PlaneType scale) {
  return per_block(
      [&](int k) {
        using Shape = MiddleShape<weights, kM16, flush, kColumns>;
        const Case c{.weights = weights, .n = 64 * kColumns, .k = k, .m = m, .group = group, .scale_type = scale};
        Prepared p(c, Half::bf16, true);
        constexpr MiddleRing ring = middle_ring<Shape>(flush, SharedMemory::large);
        p.args.steps = (p.args.k_blocks + ring.units - 1) / ring.units;
        p.cut(p.args.steps, 1, Shape::tokens * 64 * kColumns);
        ptx::LaunchShape shape{.threads = 32 * Shape::warps};
        shape.dynamic_smem = static_cast<std::uint32_t>(ring.stages * ring.units * Shape::unit_bytes(plane_shift(scale), -1) +
                                                        Shape::warps * kConvertedBytes);
        const emu::Outcome o = emu::launch(shape, {.kernel = "middle", .races = false, .count = true},
                                           [a = p.args] { middle_kernel<weights, Half::bf16, kM16, flush, kColumns, 8>(a); });
        EXPECT_FALSE(o.fault) << o.fault->message();
        return o.counters;
      },
      kColumns);
}

TEST(Traffic, Decode) {
  EXPECT_EQ((decode<Weights::int4, 1, Flush::units>(8, 128, PlaneType::bf16)), (Cost{26, 0, 3136}));
  EXPECT_EQ((decode<Weights::int4, 2, Flush::units>(16, 128, PlaneType::bf16)), (Cost{34, 0, 4160}));
  EXPECT_EQ((decode<Weights::int8, 1, Flush::units>(8, 128, PlaneType::bf16)), (Cost{42, 0, 5184}));
  EXPECT_EQ((decode<Weights::fp4_e8m0, 1, Flush::pairs>(8, 32, PlaneType::e8m0)), (Cost{33, 0, 3200}));
  EXPECT_EQ((decode<Weights::fp4_e4m3, 1, Flush::slices>(8, 16, PlaneType::e4m3)), (Cost{42, 0, 3328}));
}
TEST(Traffic, Middle) {
  EXPECT_EQ((middle<Weights::int4, 2, Flush::units, 4>(32, 128, PlaneType::bf16)), (Cost{52, 0, 3136}));
  EXPECT_EQ((middle<Weights::int4, 4, Flush::units, 4>(64, 128, PlaneType::bf16)), (Cost{84, 0, 4160}));
  EXPECT_EQ((middle<Weights::int4, 4, Flush::units, 2>(64, 128, PlaneType::bf16)), (Cost{84, 0, 6208}));
  EXPECT_EQ((middle<Weights::int8, 2, Flush::units, 2>(32, 128, PlaneType::bf16)), (Cost{68, 0, 6208}));
  EXPECT_EQ((middle<Weights::fp4, 2, Flush::slices, 2>(32, 16, PlaneType::e4m3)), (Cost{82, 0, 4352}));
}

}  // namespace
}  // namespace swordfish::mma
