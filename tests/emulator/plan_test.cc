// Plans of the mma.sync kernels for described GPUs: within their shared memory, without clusters where there are none, whole
// columns where SMs are few; and plans for small parts run on the machine model.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulator/mma_case.h"
#include "kernels/cuda/sm80_mma/decode.cuh"
#include "kernels/cuda/sm80_mma/decode.h"
#include "kernels/cuda/sm80_mma/middle.cuh"

namespace swordfish::mma {
namespace {

struct Part {
  const char* name;
  Gpu gpu;
};
// SMs, compute capability, bytes of shared memory a block may have and an SM has (CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability").
const std::vector<Part> parts = {
    {"A100", {108, 80, 166912, 167936}}, {"Orin", {16, 87, 166912, 167936}},       {"RTX 3090", {82, 86, 101376, 102400}},
    {"L4", {58, 89, 101376, 102400}},    {"H200", {132, 90, 232448, 233472}},      {"B200", {148, 100, 232448, 233472}},
    {"Thor", {20, 110, 232448, 233472}}, {"RTX 5090", {170, 120, 101376, 102400}}, {"DGX Spark", {48, 121, 101376, 102400}}};

const std::byte something{};

struct Format {
  const char* name;
  CodeType code;
  DType x, scale;
  int group;
  bool zeros, offsets, any_order;
};
const std::vector<Format> formats = {
    {"int4", CodeType::int4, DType::bf16, DType::bf16, 128, false, false, false},
    {"int4 f16", CodeType::int4, DType::f16, DType::f16, 128, false, false, false},
    {"int4 f32 scales, f16 x", CodeType::int4, DType::f16, DType::f32, 64, false, false, false},
    {"int4 zeros", CodeType::int4, DType::bf16, DType::f16, 128, true, false, false},
    {"int4 offsets", CodeType::int4, DType::bf16, DType::f16, 32, false, true, false},
    {"int4 by slice", CodeType::int4, DType::bf16, DType::bf16, 128, true, false, true},
    {"int4 channelwise", CodeType::int4, DType::bf16, DType::f32, 0, false, false, false},
    {"int8", CodeType::int8, DType::bf16, DType::bf16, 128, false, false, false},
    {"int8 by slice", CodeType::int8, DType::f16, DType::f16, 16, true, false, false},
    {"mxfp4", CodeType::fp4, DType::bf16, DType::f8_e8m0, 32, false, false, false},
    {"mxfp4, f16 x", CodeType::fp4, DType::f16, DType::f8_e8m0, 32, false, false, false},
    {"nvfp4", CodeType::fp4, DType::bf16, DType::f8_e4m3, 16, false, false, false},
};

PackedView weight(const Format& f, std::int64_t n, std::int64_t k) {
  PackedView w;
  w.code = f.code;
  w.n = n, w.k = k;
  w.n_blocks = (n + 63) / 64;
  w.k_blocks = (k + w.block_k() - 1) / w.block_k();
  w.rows = f.group ? (k + f.group - 1) / f.group : 1;
  w.group_size = f.group ? f.group : w.packed_k();
  w.zero = f.code == CodeType::int4 ? 8 : f.code == CodeType::int8 ? 128 : 0;
  w.scale_type = f.scale;
  w.codes = w.scales = &something;
  if (f.zeros) w.zeros = &something;
  if (f.offsets) w.offsets = &something;
  if (f.any_order) w.row_of_slice = reinterpret_cast<const std::int32_t*>(&something);
  return w;
}
const std::vector<std::pair<std::int64_t, std::int64_t>> layers = {{6144, 4096},  {4096, 4096},  {28672, 4096}, {4096, 14336},
                                                                   {10240, 8192}, {57344, 8192}, {8192, 28672}, {64, 64},
                                                                   {200, 1000},   {1088, 96},    {151936, 1024}};

TEST(DecodePlan, FitsEveryPart) {
  for (const Part& part : parts) {
    for (const Format& f : formats) {
      for (const auto& [n, k] : layers) {
        const PackedView w = weight(f, n, k);
        ASSERT_EQ(decode_refuses(w, f.x, part.gpu), "");
        for (const std::int64_t m : {1, 8, 9, 16, 17, 33, 48, 64, 65, 100, 1000}) {
          const DecodePlan p = plan_decode(w, m, f.x, part.gpu);
          const std::string what = std::string(part.name) + ", " + f.name + ", " + std::to_string(n) + " x " + std::to_string(k) +
                                   ", m " + std::to_string(m);
          EXPECT_LE(p.smem, part.gpu.smem_block) << what;
          EXPECT_GT(p.smem, 0u) << what;
          EXPECT_GE(p.ctas, 1) << what;
          EXPECT_LE(p.ctas, (p.m16 ? 1 : 2) * part.gpu.sms) << what;
          EXPECT_EQ(p.dependent, part.gpu.arch >= 90) << what;
          EXPECT_GE(p.flags_bytes, 4 * static_cast<std::size_t>(p.ctas)) << what;
          EXPECT_TRUE(part.gpu.arch >= 90 || p.cluster == 1) << what;
          if (p.m16) {
            EXPECT_GT(m, 16) << what;
            EXPECT_EQ(p.warps % p.columns, 0) << what;
            EXPECT_LE(p.warps, kMiddleWarps) << what;
            EXPECT_GE(p.x_offset - p.pieces_offset, static_cast<std::size_t>(p.ctas * p.m16 * p.columns) * 4096) << what;
          } else {
            EXPECT_EQ(p.warps % 4, 0) << what;
            EXPECT_LE(p.warps, 16) << what;
            EXPECT_TRUE(m <= 16 || f.offsets || f.x == DType::f16) << what;
            EXPECT_EQ(p.m8, m <= 8 ? 1 : 2) << what;
          }
        }
      }
    }
  }
}

// Once columns fill a part with few SMs evenly enough, none is split.
TEST(DecodePlan, FewSmsSplitNothing) {
  const Format& f = formats[0];
  const Gpu orin = parts[1].gpu, thor = parts[6].gpu;
  for (const int n : {4096, 8192, 28672}) EXPECT_TRUE(plan_decode(weight(f, n, 4096), 1, f.x, orin).whole) << n;
  EXPECT_FALSE(plan_decode(weight(f, 4096, 4096), 1, f.x, thor).whole);  // 64 columns on 20 SMs: a fifth would idle
  EXPECT_FALSE(plan_decode(weight(f, 256, 4096), 1, f.x, orin).whole);
  // As measured in a green context of 24 SMs of an H200.
  Gpu few = parts[4].gpu;
  few.sms = 24;
  EXPECT_TRUE(plan_decode(weight(f, 4096, 4096), 1, f.x, few).whole);
  EXPECT_FALSE(plan_decode(weight(f, 8192, 8192), 1, f.x, few).whole);
}

// The flags lie in the same place for every M, and a larger M needs no less: one workspace serves all.
TEST(DecodePlan, OneWorkspaceServesEveryM) {
  const Format& f = formats[0];
  for (const Part& part : parts) {
    for (const auto& [n, k] : {std::pair{4096, 4096}, {28672, 4096}, {192, 640}}) {
      const PackedView w = weight(f, n, k);
      const std::size_t flags = plan_decode(w, 1, f.x, part.gpu).flags_bytes;
      std::size_t most = 0;
      for (std::int64_t m = 1; m <= 300; ++m) {
        const DecodePlan p = plan_decode(w, m, f.x, part.gpu);
        EXPECT_EQ(p.flags_bytes, flags) << m;
        EXPECT_GE(p.workspace, most) << m;
        EXPECT_GE(p.flags_bytes, 4 * static_cast<std::size_t>(p.ctas)) << m;
        EXPECT_GE(p.x_offset - p.pieces_offset, sizeof(float) * static_cast<std::size_t>(p.ctas * p.tile_m() * p.tile_n())) << m;
        most = p.workspace;
      }
    }
  }
}

TEST(DecodePlan, WeightsOfTheH200) {
  const PackedView w = weight(formats[0], 4096, 4096);
  const DecodePlan p = plan_decode(w, 1, DType::bf16, parts[4].gpu);
  EXPECT_EQ(p.warps, 16);
  EXPECT_EQ(p.cluster, 2);
  EXPECT_EQ(p.ctas, 128);
}

// Tiles by the cost of what they split: a small layer takes smaller tiles, a wide one four columns.
TEST(DecodePlan, TilesOfTheH200) {
  const Format& f = formats[0];
  const Gpu h200 = parts[4].gpu;
  const DecodePlan small = plan_decode(weight(f, 4096, 4096), 64, f.x, h200),
                   wide = plan_decode(weight(f, 28672, 4096), 64, f.x, h200);
  EXPECT_EQ(small.m16, 2);
  // As measured: 12.6 us against 13.0 for two tiles of 32; 19.5 against 21.5 for 128; 61 against 67 for 64.
  EXPECT_EQ(plan_decode(weight(f, 4096, 4096), 48, f.x, h200).m16, 3);
  EXPECT_EQ(plan_decode(weight(f, 4096, 4096), 128, f.x, h200).m16, 4);
  EXPECT_EQ(plan_decode(weight(f, 6144, 4096), 128, f.x, h200).m16, 4);
  for (const auto& [n, k] : {std::pair{10240, 8192}, {28672, 4096}, {57344, 8192}, {8192, 28672}})
    EXPECT_EQ(plan_decode(weight(f, n, k), 128, f.x, h200).m16, 8) << n;
  EXPECT_EQ(small.columns, 2);
  EXPECT_EQ(wide.m16, 4);
  EXPECT_EQ(wide.columns, 4);
}

// A plan of a part with so many SMs, no clusters and 99 KB of shared memory a block, run on the model.
template <int kM8>
void run_decode(int sms, int n, int k, int m) {
  const Format& f = formats[0];
  const DecodePlan p = plan_decode(weight(f, n, k), m, f.x, {sms, 89, 101376, 102400});
  ASSERT_EQ(p.m16, 0);
  ASSERT_EQ(p.m8, kM8);
  const Case c{.n = n, .k = k, .m = m, .ctas = p.ctas};
  Prepared run(c, Half::bf16, false);
  if (p.whole) run.args.grain = run.args.k_blocks;
  run.cut(run.args.columns * run.args.k_blocks, p.ctas, kM8 * 512);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(p.ctas);
  shape.threads = static_cast<std::uint32_t>(32 * p.warps);
  shape.dynamic_smem = p.smem;
  run.product.outcome = emu::launch(shape, {.kernel = "decode"}, [a = run.args] {
    decode_kernel<Weights::int4, Half::bf16, kM8, Flush::units, decode_warps(Weights::int4, kM8, Flush::units, SharedMemory::small),
                  decode_stages(1, SharedMemory::small), 1, 1>(a);
  });
  check(run.finish(c), c, false);
}
TEST(DecodePlan, RunsOnSmallParts) {
  run_decode<1>(3, 256, 1024, 5);
  run_decode<2>(3, 256, 1024, 12);
  run_decode<1>(4, 512, 512, 2);  // whole columns
}
template <int kM16, int kColumns>
void run_middle(const DecodePlan& p, const Case& c) {
  Prepared run(c, Half::bf16, true);
  run.args.m_groups = (c.m + 16 * kM16 - 1) / (16 * kM16);
  run.args.steps = (run.args.k_blocks + p.units - 1) / p.units;
  if (p.whole) run.args.grain = run.args.steps;
  run.cut((run.args.columns + kColumns - 1) / kColumns * run.args.m_groups * run.args.steps, p.ctas, 16 * kM16 * 64 * kColumns);
  ptx::LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(p.ctas);
  shape.threads = static_cast<std::uint32_t>(32 * p.warps);
  shape.dynamic_smem = p.smem;
  run.product.outcome = emu::launch(shape, {.kernel = "middle"}, [a = run.args] {
    constexpr MiddleRing ring =
        middle_ring<MiddleShape<Weights::int4, kM16, Flush::units, kColumns>>(Flush::units, SharedMemory::small);
    middle_kernel<Weights::int4, Half::bf16, kM16, Flush::units, kColumns, kMiddleWarps, ring.units, ring.stages>(a);
  });
  check(run.finish(c), c, false);
}
TEST(DecodePlan, MiddleRunsOnSmallParts) {
  const Format& f = formats[0];
  for (const int n : {384, 1024}) {
    for (const int columns : {2, 4}) {
      const DecodePlan p = plan_decode(weight(f, n, 512), 60, f.x, {4, 89, 101376, 102400}, {.columns = columns});
      const Case c{.n = n, .k = 512, .m = 60, .ctas = p.ctas};
      ASSERT_EQ(p.columns, columns);
      if (p.m16 == 2)
        columns == 2 ? run_middle<2, 2>(p, c) : run_middle<2, 4>(p, c);
      else if (p.m16 == 3)
        run_middle<3, 2>(p, c);
      else
        columns == 2 ? run_middle<4, 2>(p, c) : run_middle<4, 4>(p, c);
    }
  }
}

}  // namespace
}  // namespace swordfish::mma
