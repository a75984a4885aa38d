// What holds on every machine: planning for a described GPU, and sentences instead of crashes where there is no GPU or no driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/gpu.h"
#include "kernels/kernel.h"
#include "swordfish/swordfish.h"

namespace swordfish::test {
namespace {

using ::testing::HasSubstr;

TEST(Gpus, AreFoundOrItIsSaidWhyNot) {
  const Gpus& all = gpus();
  EXPECT_EQ(all.found.empty(), !all.none.empty());
  for (const GpuInfo& gpu : all.found) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.sms, 0);
    EXPECT_GT(gpu.memory, 0);
  }
  const auto none_such = usable_gpu({Device::Kind::cuda, 63});
  EXPECT_EQ(none_such.status().code(), Code::unavailable);
  EXPECT_THAT(none_such.status().message(), HasSubstr("cuda:63"));
  EXPECT_EQ(usable_gpu({}).status().code(), Code::invalid_argument);
}

TEST(Gpus, EveryCallSaysThatADeviceIsMissing) {
  const Device none{Device::Kind::cuda, 63};
  const Weight w{Shape{}};
  char byte = 0;
  EXPECT_EQ(DeviceBuffer::allocate(none, 16).status().code(), Code::unavailable);
  EXPECT_EQ(Stream::create(none).status().code(), Code::unavailable);
  EXPECT_EQ(copy(none, &byte, &byte, 1).code(), Code::unavailable);
  EXPECT_EQ(fill(none, &byte, 0, 1).code(), Code::unavailable);
  EXPECT_EQ(synchronize(none).code(), Code::unavailable);
  EXPECT_EQ(DeviceWeight::upload(w.packed, none).status().code(), Code::unavailable);
  alignas(256) std::byte memory[256] = {};
  EXPECT_FALSE(DeviceWeight::at(w.packed.view, none, memory, sizeof memory).ok());
  EXPECT_FALSE(DeviceWeight::at(w.packed.view, none, nullptr, 1 << 20).ok());
  Problem p;
  p.weight = &w.packed.view;
  p.m = 1;
  p.device = none;
  const auto planned = plan(p);
  EXPECT_EQ(planned.status().code(), Code::unavailable);
  EXPECT_THAT(planned.status().message(), HasSubstr("cuda:63"));
}

TEST(DescribedGpu, IsParsed) {
  const auto h200 = describe_gpu("sm_90:132");
  ASSERT_TRUE(h200.ok());
  EXPECT_EQ(h200->arch, 90);
  EXPECT_EQ(h200->sms, 132);
  EXPECT_EQ(h200->smem_block, 227 * 1024);
  for (const char* bad : {"", "sm_90", "sm_90:", "sm_90:0", "sm_91:4", "90:132", "sm_90:132x", "sm_90:99999"})
    EXPECT_EQ(describe_gpu(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(DescribedGpu, IsPlannedForButNotRunOn) {
  const Weight w{Shape{}};
  Problem p;
  p.weight = &w.packed.view;
  p.device = kGpu;
  for (const char* text : {"sm_80:108", "sm_86:84", "sm_89:128", "sm_90:132", "sm_100:148", "sm_110:20", "sm_120:170"}) {
    const GpuInfo gpu = must(describe_gpu(text));
    p.described = &gpu;
    for (const std::int64_t m : {1, 8, 16, 17, 64, 1000}) {
      p.m = m;
      const auto planned = plan(p);
      if (!planned.ok()) {  // a GPU with too little shared memory for the kernels
        EXPECT_LT(gpu.smem_block, 200 * 1024) << text;
        EXPECT_THAT(planned.status().message(), HasSubstr("shared memory"));
        continue;
      }
      EXPECT_EQ(planned->m, m);
      EXPECT_GT(planned->tasks, 0);
      EXPECT_GE(planned->workspace, static_cast<std::size_t>(m * w.k() * 2));
      int chosen = 0;
      for (const Explanation& row : explain(p)) chosen += row.chosen;
      EXPECT_EQ(chosen, 1) << text;
    }
  }
  const GpuInfo gpu = must(describe_gpu("sm_90:132"));
  p.described = &gpu;
  Context context(1);
  EXPECT_FALSE(run(context, p, must(plan(p)), {}).ok());
  p.device = {};
  EXPECT_EQ(plan(p).status().code(), Code::invalid_argument);
}

// The counters of a workspace have the same room under every plan, so that a workspace may serve another M.
TEST(DescribedGpu, ScratchOfAPlanGrowsWithM) {
  const Weight w{Shape{}};
  const GpuInfo gpu = must(describe_gpu("sm_90:132"));
  Problem p;
  p.weight = &w.packed.view;
  p.device = kGpu;
  p.described = &gpu;
  for (p.m = 1; p.m <= 64; ++p.m) EXPECT_GT(must(plan(p)).workspace, std::size_t{16} * 1024);
}

TEST(HostWeight, IsRefusedByAGpuAndADeviceWeightByTheCpu) {
  const Weight w{Shape{}};
  PackedView elsewhere = w.packed.view;
  elsewhere.cuda_device = 0;
  Problem p;
  p.weight = &elsewhere;
  p.m = 1;
  const Plan planned = must(plan(p));
  std::vector<std::uint16_t> x(static_cast<std::size_t>(w.k())), y(static_cast<std::size_t>(w.n()));
  Buffer workspace(planned.workspace + 64);
  Context context(1);
  const RunArgs args{x.data(), w.k(), y.data(), w.n(), nullptr, workspace.data(), planned.workspace, nullptr};
  const Status s = run(context, p, planned, args);
  EXPECT_EQ(s.code(), Code::invalid_argument);
  EXPECT_THAT(s.message(), HasSubstr("memory of cuda:0"));
}

TEST(DeviceWeightBytes, HoldEveryPlaneAligned) {
  Shape s;
  s.zeros = Zeros::u8;
  s.act_order = true;
  const Weight w(s);
  const std::size_t bytes = DeviceWeight::bytes(w.packed.view);
  EXPECT_EQ(bytes % 256, 0u);
  EXPECT_GE(bytes + 256, w.packed.bytes());
  PackedView less = w.packed.view;
  less.zeros = nullptr;
  EXPECT_LT(DeviceWeight::bytes(less), bytes);
}

TEST(CApiGpu, SaysWhatIsThere) {
  sf_gpus_info all = {};
  all.struct_size = sizeof all;
  ASSERT_EQ(sf_gpus(&all), SF_OK);
  EXPECT_EQ(all.count == 0, all.none != nullptr);
  EXPECT_NE(all.machine_code, nullptr);
  sf_gpu_info one = {};
  one.struct_size = sizeof one;
  EXPECT_EQ(sf_gpu(63, &one), SF_UNAVAILABLE);
  EXPECT_EQ(sf_gpu(-1, &one), SF_UNAVAILABLE);
  void* p = nullptr;
  EXPECT_EQ(sf_gpu_alloc(63, 16, &p), SF_UNAVAILABLE);
  EXPECT_EQ(sf_gpu_stream_create(63, &p), SF_UNAVAILABLE);
  EXPECT_EQ(sf_gpu_free(63, nullptr), SF_OK);
  EXPECT_EQ(sf_gpu_alloc(0, 16, nullptr), SF_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace swordfish::test
