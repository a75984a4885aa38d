// Faults planted in the real kernels (planted.cmake has the list), each found by the machine model; without a fault, nothing is.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "emulator/mma_case.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/middle.cuh"

namespace swordfish::planted {
inline int fault = 0;
}
#include "planted/decode.cuh"
#include "planted/middle.cuh"

namespace swordfish::mma {
namespace {

using emu::FaultKind;

emu::Outcome decode(const emu::Options& options) {
  constexpr int warps = 4, stages = 3, units = 2;
  using Shape = DecodeShape<Weights::int4, 1, Flush::units, units>;
  const Case c{
      .n = 128, .k = 2624, .m = 3, .ctas = 3};  // the ring wraps, shares are uneven, columns are split, K's last step is half
  Prepared p(c, Half::bf16, false);
  p.args.steps = (p.args.k_blocks + units - 1) / units;
  p.cut(p.args.columns * p.args.steps, c.ctas, 512);
  ptx::LaunchShape shape{.grid_x = 3, .threads = 32 * warps};
  shape.dynamic_smem = static_cast<std::uint32_t>(warps * (stages * slot_bytes<Shape>(1, -1) + Shape::converted_bytes));
  shape.dependent = true;
  return emu::launch(shape, options,
                     [a = p.args] { planted::decode_kernel<Weights::int4, Half::bf16, 1, Flush::units, warps, stages>(a); });
}
emu::Outcome middle(const emu::Options& options) {
  using Shape = MiddleShape<Weights::int4, 2, Flush::units, 2>;
  constexpr int groups = 2, units = 2, stages = 3;
  // Two-number scales, so that rows are converted.
  const Case c{.n = 256, .k = 832, .m = 20, .scale_type = PlaneType::f16, .ctas = 3};
  Prepared p(c, Half::bf16, true);
  p.args.steps = (p.args.k_blocks + units - 1) / units;
  p.cut(p.args.columns / 2 * p.args.steps, c.ctas, Shape::tokens * 128);
  ptx::LaunchShape shape{.grid_x = 3, .threads = 64 * groups};
  shape.dynamic_smem = static_cast<std::uint32_t>(groups * (stages * units * Shape::unit_bytes(1, -1) + 2 * kConvertedBytes));
  shape.dependent = true;
  return emu::launch(shape, options,
                     [a = p.args] { planted::middle_kernel<Weights::int4, Half::bf16, 2, Flush::units, 2, 16, units, stages>(a); });
}

// Every seed must find the fault in one of the modes of asynchronous copies.
void expect_found(emu::Outcome (*run)(const emu::Options&), int number, const std::set<FaultKind>& kinds) {
  planted::fault = number;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    bool found = false;
    for (const auto copies : {emu::Copies::late, emu::Copies::early}) {
      const emu::Outcome o = run({.kernel = "planted", .seed = seed, .copies = copies});
      if (!o.fault) continue;
      found = true;
      EXPECT_TRUE(kinds.contains(o.fault->kind)) << "fault " << number << ": " << o.fault->message();
      EXPECT_NE(o.fault->file.find(".cuh"), std::string::npos) << o.fault->message();
    }
    EXPECT_TRUE(found) << "fault " << number << ", seed " << seed << ": nothing found";
  }
  planted::fault = 0;
}

TEST(Planted, NothingIsFoundWithoutAFault) {
  for (const auto copies : {emu::Copies::late, emu::Copies::early}) {
    const emu::Outcome d = decode({.copies = copies}), m = middle({.copies = copies});
    EXPECT_FALSE(d.fault) << d.fault->message();
    EXPECT_FALSE(m.fault) << m.fault->message();
  }
}
TEST(Planted, DroppedWait) { expect_found(decode, 1, {FaultKind::in_flight}); }
TEST(Planted, WrongGroupCount) {
  expect_found(decode, 2, {FaultKind::in_flight});
  expect_found(middle, 12, {FaultKind::in_flight});
}
TEST(Planted, StaleRingIndex) {
  expect_found(decode, 3, {FaultKind::in_flight, FaultKind::race});
  expect_found(middle, 13, {FaultKind::in_flight, FaultKind::race});
}
TEST(Planted, MissingWarpBarrier) {
  expect_found(decode, 4, {FaultKind::race, FaultKind::in_flight});
  expect_found(middle, 17, {FaultKind::race});
}
TEST(Planted, MissingGroupBarrier) { expect_found(middle, 11, {FaultKind::race, FaultKind::in_flight, FaultKind::uninitialised}); }
TEST(Planted, MissingCtaBarrier) {
  expect_found(decode, 6, {FaultKind::race, FaultKind::uninitialised});
  expect_found(middle, 15, {FaultKind::race, FaultKind::uninitialised});
}
TEST(Planted, OffByOneTail) {
  expect_found(decode, 5, {FaultKind::uninitialised, FaultKind::in_flight, FaultKind::race});
  expect_found(middle, 14, {FaultKind::uninitialised, FaultKind::in_flight, FaultKind::race});
  expect_found(middle, 18, {FaultKind::out_of_bounds});
  expect_found(middle, 19, {FaultKind::out_of_bounds});
}
TEST(Planted, DependentDataTooEarly) { expect_found(decode, 7, {FaultKind::dependency}); }
TEST(Planted, PiecesNotWaitedFor) {
  expect_found(decode, 8, {FaultKind::race, FaultKind::uninitialised});
  expect_found(middle, 16, {FaultKind::race, FaultKind::uninitialised});
}

}  // namespace
}  // namespace swordfish::mma
