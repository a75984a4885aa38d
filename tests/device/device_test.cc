// The rows of the kernel table on a GPU against fp64, and what a server does with them: streams, reuse, repeats, bad arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "device/gpu.h"
#include "kernels/kernel.h"
#include "kernels/shapes.h"

namespace swordfish::test {
namespace {

using ::testing::HasSubstr;

class Decode : public OnGpu {
 protected:
  Context context{1};
};
class Gpu : public OnGpu {
 protected:
  Context context{1};
};

// An element may be off by error_bound; besides, the whole may be off by little more than dequantizing and then multiplying
// exactly.
void check(const std::vector<double>& y, const Expected& e, const Plan& plan, DType y_type, const std::vector<float>* bias,
           std::int64_t n, std::int64_t k, const std::string& what) {
  ASSERT_FALSE(y.empty()) << what;
  double error2 = 0, model2 = 0, norm2 = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double b = bias ? (*bias)[i % static_cast<std::size_t>(n)] : 0.0, exact = e.y[i] + b;
    ASSERT_LE(std::abs(y[i] - exact),
              error_bound(y_type, exact, e.magnitude[i] + std::abs(b), k, plan.rounds_weights ? e.rounding[i] : 0))
        << what << ", element " << i << ": " << y[i] << " for " << exact;
    const auto f = static_cast<float>(e.dequantized[i] + b);
    const double model = y_type == DType::f32 ? f : from_bits(y_type, to_bits(y_type, f));
    error2 += (y[i] - exact) * (y[i] - exact);
    model2 += (model - exact) * (model - exact);
    norm2 += exact * exact;
  }
  EXPECT_LE(std::sqrt(error2), 1.1 * std::sqrt(model2) + 2e-6 * std::sqrt(norm2)) << what;
}

TEST_F(Decode, WithinTheBoundForEveryWeightAndM) {
  std::mt19937 random(3);
  std::vector<float> bias(200);
  for (auto& b : bias) b = std::normal_distribution<float>(0, 3)(random);
  unsigned turn = 0;
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
    const std::vector<std::int64_t> ms = {1, 3, 8, 9, 16, 17, 32, 33, 70};
    const DType x_type = turn % 2 ? DType::bf16 : DType::f16;
    if (!can_run(weight, x_type, s.text())) continue;
    const float mean = turn % 3 == 0 ? 100.0f : 0.0f;
    const auto x = gaussian(ms.back() * w.k(), x_type, turn, mean);
    const auto e = expect(w, ms.back(), x, x_type);
    for (const std::int64_t m : ms) {
      const unsigned v = ++turn;
      GpuCall c;
      c.x_type = x_type;
      c.y_type = std::array{DType::bf16, DType::f16, DType::f32}[v % 3];
      if (c.y_type == DType::f16 && mean > 0) c.y_type = DType::f32;  // whose sums overflow f16
      c.pad_x = v % 2 ? 0 : 1 + v % 70;
      c.pad_y = v % 3 ? 0 : 1 + v % 5;
      c.shift_x = v % 5 ? 0 : 1 + v % 9;
      c.shift_y = v % 4 ? 0 : 1 + v % 7;
      c.dependent = v % 7 != 0;
      if (v % 5 == 0) c.bias = &bias;
      Product product(w, weight, m, x, c);
      for (int call = 0; call < 2; ++call) {  // the first call leaves the workspace ready for the second
        product.forget_y();
        product.launch(context);
        ASSERT_NO_FATAL_FAILURE(
            check(product.values(), e, product.planned, c.y_type, c.bias, w.n(), w.k(), "M " + std::to_string(m)));
      }
    }
  }
}

// Columns enough to fill a GPU in each way of cutting the work; K long enough to be split.
TEST_F(Decode, WithinTheBoundForEveryCut) {
  unsigned turn = 0;
  for (const CodeType code : {CodeType::int4, CodeType::int8, CodeType::fp4})
    for (const auto& [n, k] : {std::pair{64, 8192}, {512, 4096}, {2112, 512}, {4096, 640}, {8448, 128}, {12000, 64}}) {
      Shape s;
      s.code = code;
      s.group = code == CodeType::fp4 ? 16 : 128;
      s.scale_type = code == CodeType::fp4 ? DType::f8_e4m3 : DType::bf16;
      s.part_n = {n};
      s.k = k;
      SCOPED_TRACE(s.text());
      const Weight w(s, ++turn);
      const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
      const auto x = gaussian(20 * w.k(), DType::bf16, turn);
      const auto e = expect(w, 20, x, DType::bf16);
      for (const std::int64_t m : {1, 9, 20}) {
        GpuCall c;
        c.y_type = m == 1 ? DType::f32 : DType::bf16;
        Product product(w, weight, m, x, c);
        product.launch(context);
        ASSERT_NO_FATAL_FAILURE(
            check(product.values(), e, product.planned, c.y_type, nullptr, w.n(), w.k(), "M " + std::to_string(m)));
      }
    }
}

// One-hot x gives each column of w as fl(scale · (code − zero)), bit for bit.
TEST_F(Decode, OneHotGivesEachColumnExactly) {
  unsigned turn = 100;
  for (Shape s : shapes()) {
    if (s.k > 400 || s.zeros == Zeros::offsets) continue;
    s.globals = false;
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
    const std::int64_t n = w.n(), k = w.k();
    for (std::int64_t k0 = 0; k0 < k; k0 += 16) {
      const std::int64_t m = std::min<std::int64_t>(16, k - k0);
      std::vector<std::uint16_t> x(static_cast<std::size_t>(m * k), 0);
      for (std::int64_t i = 0; i < m; ++i) x[static_cast<std::size_t>(i * k + k0 + i)] = to_bits(DType::bf16, 1.0f);
      Product product(w, weight, m, x, {});
      product.launch(context);
      const auto y = product.values();
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const Element e = w.at(j, k0 + i);
          ASSERT_EQ(static_cast<float>(y[static_cast<std::size_t>(i * n + j)]), static_cast<float>(e.scale * (e.value - e.zero)))
              << "n " << j << " k " << k0 + i;
        }
    }
  }
}

// Small integers and powers of two: no rounding anywhere, so every bit is known.
TEST_F(Decode, SmallIntegersAreExact) {
  unsigned turn = 200;
  for (Shape s : shapes()) {
    if (s.scale_type == DType::f8_e4m3) continue;
    s.exact = true;
    SCOPED_TRACE(s.text());
    const Weight w(s, ++turn);
    const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
    if (!can_run(weight, DType::f16, s.text())) continue;
    std::mt19937 random(turn);
    for (const std::int64_t m : {1, 12, 40}) {
      std::vector<std::uint16_t> x(static_cast<std::size_t>(m * w.k()));
      for (auto& v : x) v = to_bits(DType::f16, static_cast<float>(static_cast<int>(random() % 5) - 2));
      const auto e = expect(w, m, x, DType::f16);
      GpuCall c;
      c.x_type = DType::f16;
      Product product(w, weight, m, x, c);
      product.launch(context);
      const auto y = product.values();
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], e.y[i]) << "M " << m << " element " << i;
    }
  }
}

Shape large(CodeType code = CodeType::int4) {
  Shape s;
  s.code = code;
  s.part_n = {1000, 536};
  s.k = 2100;
  s.act_order = code == CodeType::int8;
  return s;
}

TEST_F(Gpu, HundredRunsAreBitEqual) {
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    const Weight w(large(code), 7);
    const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
    for (const std::int64_t m : {1, 11, 40}) {
      Product product(w, weight, m, gaussian(m * w.k(), DType::bf16, 5), {});
      product.launch(context);
      const auto first = product.bytes();
      for (int i = 1; i < 100; ++i) {
        product.forget_y();
        if (i % 10 == 0) product.new_workspace();
        product.launch(context);
        ASSERT_EQ(product.bytes(), first) << "run " << i << " M " << m;
      }
    }
  }
}

TEST_F(Gpu, DependentLaunchesChangeNothing) {
  const Weight w(large(), 8);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  for (const std::int64_t m : {1, 16, 33}) {
    GpuCall c;
    Product with(w, weight, m, gaussian(m * w.k(), DType::bf16, 6), c);
    c.dependent = false;
    Product without(w, weight, m, gaussian(m * w.k(), DType::bf16, 6), c);
    for (int i = 0; i < 20; ++i) with.launch(context);  // one behind the other, each ahead of the next one's wait
    without.launch(context);
    EXPECT_EQ(with.bytes(), without.bytes());
  }
}

// y of one product is x of the next: a dependent launch that read x too early would see the poison.
TEST_F(Gpu, DependentLaunchesWaitForTheirInput) {
  Shape s;
  s.part_n = {1024};
  s.k = 1024;
  const Weight w(s, 9);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  for (const bool dependent : {false, true})
    for (const std::int64_t pad : {0, 1}) {  // 1: through the kernel that prepares x
      GpuCall c;
      c.y_type = DType::bf16;
      c.dependent = dependent;
      c.pad_x = c.pad_y = pad;
      const std::int64_t m = 4;
      Product first(w, weight, m, gaussian(m * w.k(), DType::bf16, 10), c);
      Product second(w, weight, m, gaussian(m * w.k(), DType::bf16, 11), c);
      first.launch(context);
      const auto between = first.values();
      std::vector<std::uint16_t> x(between.size());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = to_bits(DType::bf16, static_cast<float>(between[i]));
      Product alone(w, weight, m, x, c);
      alone.launch(context);
      const auto expected = alone.bytes();
      second.args.x = first.args.y;
      for (int i = 0; i < 30; ++i) {
        first.forget_y();
        first.launch(context);
        second.launch(context);
        ASSERT_EQ(second.bytes(), expected) << "dependent " << dependent << " pad " << pad << " run " << i;
      }
    }
}

TEST_F(Gpu, OneWorkspaceServesEveryM) {
  const Weight w(large(), 12);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  std::vector<std::int64_t> ms = {1, 32, 8, 100, 16, 1, 17, 2, 64, 1};
  Product largest(w, weight, 100, gaussian(100 * w.k(), DType::bf16, 13), {});
  for (const std::int64_t m : ms) {
    Product own(w, weight, m, gaussian(m * w.k(), DType::bf16, 13), {});
    own.launch(context);
    const auto expected = own.bytes();
    own.args.workspace = largest.args.workspace;
    own.args.workspace_size = largest.args.workspace_size;
    own.forget_y();
    own.launch(context);
    EXPECT_EQ(own.bytes(), expected) << "M " << m;
  }
}

TEST_F(Gpu, StreamsMayInterleave) {
  const Weight w(large(), 14);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  std::vector<std::unique_ptr<Product>> products;
  std::vector<Stream> streams;
  std::vector<std::vector<std::byte>> expected;
  for (const std::int64_t m : {1, 16, 40}) {
    products.push_back(std::make_unique<Product>(w, weight, m, gaussian(m * w.k(), DType::bf16, 15), GpuCall{}));
    streams.push_back(must(Stream::create(kGpu)));
    products.back()->launch(context);
    expected.push_back(products.back()->bytes());
    products.back()->forget_y();
  }
  for (int i = 0; i < 200; ++i)
    for (std::size_t p = 0; p < products.size(); ++p) products[p]->launch(context, streams[p].get());
  for (std::size_t p = 0; p < products.size(); ++p) EXPECT_EQ(products[p]->bytes(streams[p].get()), expected[p]) << p;
}

TEST_F(Gpu, ZeroRowsAreANoOp) {
  const Weight w(large(), 16);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  Problem p;
  p.weight = &weight.view();
  p.m = 0;
  p.device = kGpu;
  EXPECT_TRUE(run(context, p, must(plan(p)), {}).ok());
}

TEST_F(Gpu, BadArgumentsAreSentences) {
  const Weight w(large(), 17);
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  Product good(w, weight, 2, gaussian(2 * w.k(), DType::bf16, 18), {});
  const auto before = good.bytes();
  const auto refused = [&](auto change, const char* word) {
    Problem p = good.problem;
    Plan planned = good.planned;
    RunArgs a = good.args;
    change(p, planned, a);
    const Status s = run(context, p, planned, a);
    EXPECT_EQ(s.code(), Code::invalid_argument) << word << ": " << s.message();
    EXPECT_THAT(s.message(), HasSubstr(word));
    EXPECT_EQ(good.bytes(), before) << word;
  };
  std::vector<std::uint16_t> host(static_cast<std::size_t>(4 * w.k()));
  refused([&](Problem&, Plan&, RunArgs& a) { a.x = host.data(); }, "x is in host memory");
  refused([&](Problem&, Plan&, RunArgs& a) { a.y = host.data(); }, "y is in host memory");
  refused([&](Problem&, Plan&, RunArgs& a) { a.x = nullptr; }, "x is a null pointer");
  refused([&](Problem&, Plan&, RunArgs& a) { a.y = nullptr; }, "y is a null pointer");
  refused([&](Problem&, Plan&, RunArgs& a) { a.workspace = nullptr; }, "workspace is a null pointer");
  refused([&](Problem&, Plan&, RunArgs& a) { --a.workspace_size; }, "the plan needs");
  refused([&](Problem&, Plan&, RunArgs& a) { a.workspace = static_cast<std::byte*>(a.workspace) + 64; }, "256-byte aligned");
  refused([&](Problem&, Plan&, RunArgs& a) { a.ldx = w.k() - 1; }, "ldx");
  refused([&](Problem&, Plan&, RunArgs& a) { a.ldy = w.n() - 1; }, "ldy");
  refused([&](Problem&, Plan&, RunArgs& a) { a.x = static_cast<const std::byte*>(a.x) + 1; }, "x is not aligned");
  refused([&](Problem&, Plan&, RunArgs& a) { a.y = static_cast<std::byte*>(a.y) + 2; }, "y is not aligned");
  refused([&](Problem& p, Plan&, RunArgs&) { p.m = -1; }, "m is -1");
  refused([&](Problem& p, Plan&, RunArgs&) { p.m = 3; }, "the plan is for m = 2");
  refused([&](Problem& p, Plan&, RunArgs&) { p.x_type = DType::f32; }, "x must be");
  refused([&](Problem& p, Plan&, RunArgs&) { p.y_type = DType::i32; }, "y must be");
  refused([&](Problem& p, Plan&, RunArgs&) { p.weight = &w.packed.view; }, "the packed weight is in host memory");
  refused([&](Problem& p, Plan&, RunArgs&) { p.has_bias = true; }, "a bias");
  PackedView foreign = weight.view();
  foreign.codes = w.packed.view.codes;
  refused([&](Problem& p, Plan&, RunArgs&) { p.weight = &foreign; }, "the packed weight is in host memory");

  // Memory of the GPU handed to the CPU.
  Problem on_cpu = good.problem;
  on_cpu.device = {};
  on_cpu.weight = &w.packed.view;
  const Plan cpu_plan = must(plan(on_cpu));
  Buffer workspace(cpu_plan.workspace + 64);
  RunArgs a = good.args;
  a.workspace = workspace.data();
  a.workspace_size = cpu_plan.workspace;
  const Status s = run(context, on_cpu, cpu_plan, a);
  EXPECT_EQ(s.code(), Code::invalid_argument);
  EXPECT_THAT(s.message(), HasSubstr("memory of cuda:0"));

  std::vector<std::byte> host_workspace(good.planned.workspace + 256);
  void* aligned = host_workspace.data();
  std::size_t room = host_workspace.size();
  std::align(256, good.planned.workspace, aligned, room);
  EXPECT_EQ(workspace_init(good.planned, kGpu, aligned, room).code(), Code::invalid_argument);
  EXPECT_EQ(workspace_init(good.planned, {Device::Kind::cuda, 63}, good.args.workspace, good.args.workspace_size).code(),
            Code::unavailable);
}

TEST_F(Gpu, NoMemoryIsAStatus) {
  const auto huge = DeviceBuffer::allocate(kGpu, std::size_t{1} << 50);
  EXPECT_EQ(huge.status().code(), Code::out_of_memory) << huge.status().message();
  EXPECT_TRUE(DeviceBuffer::allocate(kGpu, 1 << 20).ok());
  const Weight w(large(), 19);  // and the error is forgotten
  const DeviceWeight weight = must(DeviceWeight::upload(w.packed, kGpu));
  Product product(w, weight, 1, gaussian(w.k(), DType::bf16, 20), {});
  product.launch(context);
  EXPECT_EQ(product.values().size(), static_cast<std::size_t>(w.n()));
}

TEST_F(Gpu, ExplainNamesTheRowAndAWeightInACallersMemoryRuns) {
  const Weight w(large(), 21);
  const DeviceWeight owned = must(DeviceWeight::upload(w.packed, kGpu));
  const std::size_t bytes = DeviceWeight::bytes(w.packed.view);
  const DeviceBuffer memory = must(DeviceBuffer::allocate(kGpu, bytes));
  EXPECT_FALSE(DeviceWeight::at(w.packed.view, kGpu, memory.data(), bytes - 1).ok());
  EXPECT_FALSE(DeviceWeight::at(w.packed.view, kGpu, static_cast<std::byte*>(memory.data()) + 64, bytes).ok());
  must(copy(kGpu, memory.data(), owned.memory(), bytes));
  const DeviceWeight borrowed = must(DeviceWeight::at(owned.view(), kGpu, memory.data(), bytes));
  const auto x = gaussian(3 * w.k(), DType::bf16, 22);
  Product a(w, owned, 3, x, {}), b(w, borrowed, 3, x, {});
  a.launch(context);
  b.launch(context);
  EXPECT_EQ(a.bytes(), b.bytes());
  int chosen = 0;
  for (const Explanation& row : explain(a.problem)) {
    chosen += row.chosen;
    if (row.kernel == "reference") {
      EXPECT_THAT(row.reason, HasSubstr("cuda:0"));
    }
  }
  EXPECT_EQ(chosen, 1);
}

}  // namespace
}  // namespace swordfish::test
