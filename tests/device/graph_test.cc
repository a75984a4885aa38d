// Calls inside of CUDA graphs, memory that they do not take, the current device, and the way through the C ABI, with the CUDA
// runtime as a caller has it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "device/gpu.h"
#include "swordfish/swordfish.h"

namespace swordfish::test {
namespace {

#define MUST(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())

class Graph : public OnGpu {
 protected:
  Context context{1};
};

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

// Every weight family and M, the very first call of a kernel captured too.
TEST_F(Graph, CapturedCallsReplayWithNewInput) {
  const Stream own = must(Stream::create(kGpu));
  const auto stream = static_cast<cudaStream_t>(own.get());
  for (const CodeType code : {CodeType::fp4, CodeType::int4, CodeType::int8})
    for (const std::int64_t m : {1, 9, 16, 33}) {
      Shape s;
      s.code = code;
      s.scale_type = code == CodeType::fp4 ? DType::f8_e8m0 : DType::f16;
      s.group = 32;
      s.part_n = {700};
      s.k = 1100;
      s.act_order = code == CodeType::int8;
      const Weight w(s, 31);
      const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
      const auto x0 = gaussian(m * w.k(), DType::bf16, 32), x1 = gaussian(m * w.k(), DType::bf16, 33);
      for (const bool dependent : {true, false}) {
        GpuCall c;
        c.dependent = dependent;
        Product product(w, weight, m, x0, c);
        const std::size_t before = free_memory();
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));  // forbids anything that allocates
        for (int i = 0; i < 3; ++i) product.launch(context, stream);
        cudaGraph_t graph = nullptr;
        MUST(cudaStreamEndCapture(stream, &graph));
        cudaGraphExec_t exec = nullptr;
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        const std::size_t after = free_memory();
        for (const auto& x : {x0, x1}) {
          must(copy(kGpu, product.x_memory.data(), x.data(), x.size() * 2));
          product.forget_y();
          for (int i = 0; i < 5; ++i) MUST(cudaGraphLaunch(exec, stream));
          const auto replayed = product.bytes(stream);
          product.forget_y();
          product.launch(context);
          ASSERT_EQ(replayed, product.bytes()) << "M " << m << " dependent " << dependent;
        }
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaGraphDestroy(graph));
        RecordProperty("bytes taken by capture and instantiation", std::to_string(static_cast<long long>(before - after)));
      }
    }
}

TEST_F(Graph, ACallAllocatesNothing) {
  Shape s;
  s.part_n = {4096};
  s.k = 4096;
  const Weight w(s, 34);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  for (const std::int64_t m : {1, 16, 100}) {
    Product product(w, weight, m, gaussian(m * w.k(), DType::bf16, 35), {});
    product.launch(context);
    must(synchronize(kGpu));
    const std::size_t before = free_memory();
    for (int i = 0; i < 50; ++i) product.launch(context);
    must(synchronize(kGpu));
    EXPECT_EQ(free_memory(), before);
  }
}

TEST_F(Graph, TheCurrentDeviceStays) {
  int count = 0;
  MUST(cudaGetDeviceCount(&count));
  const Weight w(Shape{}, 36);
  for (int other = 0; other < count; ++other) {
    MUST(cudaSetDevice(other));
    for (int index = 0; index < count; ++index) {
      const Device device{Device::Kind::cuda, index};
      const DeviceWeight weight = must(DeviceWeight::upload(w.packed, device));
      const DeviceBuffer x = must(DeviceBuffer::allocate(device, 4096)), y = must(DeviceBuffer::allocate(device, 4096));
      must(fill(device, x.data(), 0, x.size()));
      Problem p;
      p.weight = &weight.view();
      p.m = 1;
      p.device = device;
      const Plan planned = must(plan(p));
      const DeviceBuffer workspace = must(DeviceBuffer::allocate(device, planned.workspace));
      must(workspace_init(planned, device, workspace.data(), workspace.size()));
      RunArgs a;
      a.x = x.data();
      a.ldx = w.k();
      a.y = y.data();
      a.ldy = w.n();
      a.workspace = workspace.data();
      a.workspace_size = workspace.size();
      must(run(context, p, planned, a));
      must(synchronize(device));
      int now = -1;
      MUST(cudaGetDevice(&now));
      EXPECT_EQ(now, other);
      if (count > 1) {  // memory of another GPU is refused
        p.device.index = (index + 1) % count;
        EXPECT_EQ(run(context, p, must(plan(p)), a).code(), Code::invalid_argument);
      }
    }
  }
  MUST(cudaSetDevice(0));
}

TEST_F(Graph, FromCodesToYThroughTheCAbi) {
  const std::int64_t n = 130, k = 256, group = 64, m = 5;
  std::mt19937 random(37);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k));
  for (auto& c : codes) c = static_cast<std::uint8_t>(random() & 15);
  std::vector<std::uint16_t> scales(static_cast<std::size_t>(n * (k / group)));  // [rows, n], as GPTQ has them
  for (auto& v : scales) v = f32_to_bf16(0.01f + 0.001f * static_cast<float>(random() % 16));
  sf_tensor t = {};
  t.struct_size = sizeof t;
  t.name = "layer";
  t.code = SF_INT4;
  t.n = n;
  t.k = k;
  t.codes = codes.data();
  t.codes_stride = k;
  t.group_size = group;
  t.rows = k / group;
  t.scales = scales.data();
  t.scale_type = SF_BF16;
  t.scale_stride_n = 1;
  t.scale_stride_row = n;
  sf_weight *host = nullptr, *gpu = nullptr, *borrowed = nullptr;
  ASSERT_EQ(sf_weight_pack_tensors(&t, 1, 1, &host), SF_OK) << sf_last_error();
  ASSERT_EQ(sf_weight_upload(host, 0, nullptr, 0, nullptr, &gpu), SF_OK) << sf_last_error();
  size_t bytes = 0;
  ASSERT_EQ(sf_weight_gpu_bytes(host, &bytes), SF_OK);
  void *memory = nullptr, *x = nullptr, *y = nullptr, *workspace = nullptr, *stream = nullptr;
  ASSERT_EQ(sf_gpu_alloc(0, bytes, &memory), SF_OK);
  sf_weight* uploaded = nullptr;
  ASSERT_EQ(sf_weight_upload(host, 0, memory, bytes, nullptr, &uploaded), SF_OK) << sf_last_error();
  ASSERT_EQ(sf_weight_borrow(gpu, 0, memory, bytes, &borrowed), SF_OK) << sf_last_error();
  sf_weight_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(sf_weight_get_info(gpu, &info), SF_OK);
  EXPECT_EQ(info.device, SF_CUDA);
  EXPECT_STREQ(info.name, "layer");
  EXPECT_EQ(sf_weight_upload(gpu, 0, nullptr, 0, nullptr, &uploaded), SF_INVALID_ARGUMENT);

  sf_problem problem = {};
  problem.struct_size = sizeof problem;
  problem.m = m;
  problem.y_type = SF_F32;
  problem.device = SF_CUDA;
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(sf_plan_make(gpu, &problem, &plan), SF_OK) << sf_last_error();
  sf_context* context_handle = nullptr;
  ASSERT_EQ(sf_context_create(1, &context_handle), SF_OK);
  ASSERT_EQ(sf_gpu_alloc(0, static_cast<size_t>(m * k) * 2, &x), SF_OK);
  ASSERT_EQ(sf_gpu_alloc(0, static_cast<size_t>(m * n) * 4, &y), SF_OK);
  ASSERT_EQ(sf_gpu_alloc(0, plan.workspace, &workspace), SF_OK);
  ASSERT_EQ(sf_gpu_stream_create(0, &stream), SF_OK);
  ASSERT_EQ(sf_workspace_init(&plan, workspace, plan.workspace, stream), SF_OK) << sf_last_error();
  const auto host_x = gaussian(m * k, DType::bf16, 38);
  ASSERT_EQ(sf_gpu_copy(0, x, host_x.data(), host_x.size() * 2, stream), SF_OK);
  sf_run_args args = {};
  args.struct_size = sizeof args;
  args.x = x;
  args.ldx = k;
  args.y = y;
  args.ldy = n;
  args.workspace = workspace;
  args.workspace_size = plan.workspace;
  args.stream = stream;
  for (const sf_weight* weight : {gpu, borrowed})
    for (const int no_dependent : {0, 1}) {
      args.no_dependent = no_dependent;
      ASSERT_EQ(sf_gpu_fill(0, y, 0xff, static_cast<size_t>(m * n) * 4, stream), SF_OK);
      ASSERT_EQ(sf_run(context_handle, weight, &plan, &args), SF_OK) << sf_last_error();
      ASSERT_EQ(sf_gpu_synchronize(0, stream), SF_OK);
      std::vector<float> out(static_cast<std::size_t>(m * n));
      ASSERT_EQ(sf_gpu_copy(0, out.data(), y, out.size() * 4, stream), SF_OK);
      for (std::int64_t i = 0; i < m * n; ++i) {
        double expected = 0, size = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const double xi = bf16_to_f32(host_x[static_cast<std::size_t>(i / n * k + j)]);
          const double scale = bf16_to_f32(scales[static_cast<std::size_t>(j / group * n + i % n)]);
          expected += xi * scale * (codes[static_cast<std::size_t>(i % n * k + j)] - 8);
          size += std::abs(xi) * scale * 40;
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(i)], expected, 1e-5 * size) << i;
      }
    }
  EXPECT_EQ(sf_run(context_handle, host, &plan, &args), SF_INVALID_ARGUMENT) << "a weight in host memory";
  EXPECT_EQ(sf_gpu_stream_free(0, stream), SF_OK);
  for (void* p : {x, y, workspace}) EXPECT_EQ(sf_gpu_free(0, p), SF_OK);
  for (sf_weight* weight : {host, gpu, borrowed}) sf_weight_free(weight);
  sf_weight_free(uploaded);
  EXPECT_EQ(sf_gpu_free(0, memory), SF_OK);
  sf_context_free(context_handle);
}

// What a call costs the caller's thread; printed, not judged.
TEST_F(Graph, HostTimeOfACall) {
  Shape s;
  s.k = 256;  // a launch, without one that prepares x
  const Weight w(s, 39);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  Product product(w, weight, 1, gaussian(w.k(), DType::bf16, 40), {});
  constexpr int kCalls = 500;
  for (int i = 0; i < kCalls; ++i) product.launch(context);
  must(synchronize(kGpu));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) product.launch(context);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kCalls;
  must(synchronize(kGpu));
  std::printf("[ measured ] %.2f us of the host for a call\n", us);
}

}  // namespace
}  // namespace swordfish::test
