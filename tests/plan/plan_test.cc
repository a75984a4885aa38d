// Choosing kernels, explaining, and refusing what a caller may get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "kernels/kernel.h"
#include "kernels/weights.h"

namespace swordfish::test {
namespace {

using ::testing::HasSubstr;

Problem problem(const Weight& w, std::int64_t m) {
  Problem p;
  p.weight = &w.packed.view;
  p.m = m;
  return p;
}

TEST(Plan, ChoosesByM) {
  const Weight w{Shape{}};
  EXPECT_EQ(plan(problem(w, 1))->kernel_name, "cpu_decode");
  EXPECT_EQ(plan(problem(w, 8))->kernel_name, "cpu_decode");
  EXPECT_EQ(plan(problem(w, 9))->kernel_name, "cpu_gemm");
  EXPECT_EQ(plan(problem(w, 100000))->kernel_name, "cpu_gemm");
  EXPECT_EQ(plan(problem(w, 0))->m, 0);
  EXPECT_EQ(plan(problem(w, 1), {"reference"})->kernel_name, "reference");
  EXPECT_EQ(plan(problem(w, 1), {"cpu_gemm"})->kernel_name, "cpu_gemm");
  EXPECT_EQ(plan(problem(w, 1), {{}, plan(problem(w, 9))->kernel})->kernel_name, "cpu_gemm");
  EXPECT_EQ(plan(problem(w, 1), {{}, 99}).status().code(), Code::invalid_argument);
  EXPECT_THAT(to_string(*plan(problem(w, 1))), HasSubstr("cpu_decode: M = 1"));
}

TEST(Plan, NeedsNoPointersOfTheWeight) {
  const Weight w{Shape{}};
  PackedView shape = w.packed.view;
  shape.codes = shape.scales = nullptr;
  shape.parts = nullptr;
  Problem p = problem(w, 4);
  p.weight = &shape;
  EXPECT_EQ(plan(p)->workspace, plan(problem(w, 4))->workspace);
}

TEST(Plan, KernelsThatCannotRunSayWhy) {
  const Weight w{Shape{}};
  const auto decode = plan(problem(w, 100), {"cpu_decode"});
  ASSERT_FALSE(decode.ok());
  EXPECT_EQ(decode.status().code(), Code::unavailable);
  EXPECT_THAT(decode.status().message(), HasSubstr("at most 8 rows of x; this problem has 100"));
  const auto unknown = plan(problem(w, 1), {"marlin"});
  EXPECT_EQ(unknown.status().code(), Code::invalid_argument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("cpu_decode, cpu_gemm, reference"));
}

TEST(Plan, RefusesADeviceThatIsNotThere) {
  const Weight w{Shape{}};
  Problem p = problem(w, 1);
  p.device = {Device::Kind::cuda, 63};
  const auto planned = plan(p);
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.status().code(), Code::unavailable);
  EXPECT_THAT(planned.status().message(), HasSubstr("cuda:63"));
  for (const Explanation& row : explain(p)) EXPECT_THAT(row.reason, HasSubstr("cuda:63")) << row.kernel;
}

TEST(Plan, RefusesBadProblems) {
  const Weight w{Shape{}};
  const auto refused = [&](auto change, const char* word) {
    PackedView view = w.packed.view;
    Problem p = problem(w, 4);
    p.weight = &view;
    change(p, view);
    const auto planned = plan(p);
    ASSERT_FALSE(planned.ok()) << word;
    EXPECT_EQ(planned.status().code(), Code::invalid_argument) << word;
    EXPECT_THAT(planned.status().message(), HasSubstr(word));
  };
  refused([](Problem& p, PackedView&) { p.weight = nullptr; }, "no weight");
  refused([](Problem& p, PackedView&) { p.m = -1; }, "m is -1");
  refused([](Problem& p, PackedView&) { p.m = std::numeric_limits<std::int64_t>::max(); }, "too large");
  refused([](Problem& p, PackedView&) { p.x_type = DType::f32; }, "x must be");
  refused([](Problem& p, PackedView&) { p.y_type = DType::i32; }, "y must be");
  refused([](Problem& p, PackedView&) { p.device.index = 1; }, "one device");
  refused([](Problem&, PackedView& v) { v.n = 0; }, "positive");
  refused([](Problem&, PackedView& v) { v.k = 0; }, "positive");
  refused([](Problem&, PackedView& v) { v.n_blocks = 0; }, "positive");
  refused([](Problem&, PackedView& v) { v.k_blocks = 0; }, "positive");
  refused([](Problem&, PackedView& v) { v.rows = -1; }, "positive");
  refused([](Problem&, PackedView& v) { v.n = std::numeric_limits<std::int64_t>::max(); }, "too large");
  refused([](Problem&, PackedView& v) { v.k_blocks = std::int64_t{1} << 58; }, "too large");
  refused([](Problem& p, PackedView&) { p.m = std::int64_t{1} << 53; }, "too large");  // of x: 2^53 · 200
  refused(
      [](Problem& p, PackedView& v) {
        p.m = std::int64_t{1} << 53;
        v.k = 64;  // now of y alone
        v.n = 200;
      },
      "too large");
  refused([](Problem& p, PackedView&) { p.device = {Device::Kind::cuda, -1}; }, "must not be negative");
  refused([](Problem&, PackedView& v) { v.group_size = 0; }, "group_size");
  refused([](Problem&, PackedView& v) { v.k_blocks = 1; }, "packed columns");
  refused([](Problem&, PackedView& v) { v.n_blocks = std::int64_t{1} << 60; }, "too large");
  refused(
      [](Problem&, PackedView& v) {
        v.zeros = v.offsets = v.codes;
        v.zero = 0;
      },
      "both zero points and offsets");
  refused([](Problem&, PackedView& v) { v.offsets = v.codes; }, "constant zero point 8");
}

// group_size means nothing where each slice names its scale row.
TEST(Plan, GroupSizeBesideRowsOfSlicesIsNotLookedAt) {
  Shape s;
  s.group = 48;
  const Weight w(s);
  PackedView view = w.packed.view;
  ASSERT_NE(view.row_of_slice, nullptr);
  view.group_size = 0;
  Problem p = problem(w, 1);
  p.weight = &view;
  EXPECT_TRUE(plan(p).ok());
}

TEST(Plan, WeightsThatOnlyTheReferenceTakes) {
  Shape s;
  s.code = CodeType::fp4;
  s.group = 16;
  const Weight w(s);
  PackedView view = w.packed.view;
  view.zero = 1;
  Problem p = problem(w, 1);
  p.weight = &view;
  EXPECT_EQ(plan(p)->kernel_name, "reference");
}

TEST(Explain, GivesAReasonForEveryRow) {
  const Weight w{Shape{}};
  const auto rows = explain(problem(w, 100));
  ASSERT_EQ(rows.size(), kernels().size());
  int chosen = 0;
  for (const Explanation& row : rows) {
    EXPECT_FALSE(row.reason.empty()) << row.kernel;
    chosen += row.chosen;
    if (row.kernel == "cpu_decode") {
      EXPECT_THAT(row.reason, HasSubstr("at most 8 rows"));
    } else if (row.kernel == "cpu_gemm") {
      EXPECT_TRUE(row.chosen);
    } else if (row.kernel == "reference") {
      EXPECT_EQ(row.reason, "can run, but cpu_gemm was preferred");
    }
  }
  EXPECT_EQ(chosen, 1);
  for (const Explanation& row : explain(problem(w, 1), {"reference"})) EXPECT_EQ(row.chosen, row.kernel == "reference");
  for (const Explanation& row : explain(problem(w, -1))) EXPECT_THAT(row.reason, HasSubstr("m is -1"));
}

TEST(Table, NamesAreUniqueAndTheReferenceIsTheLastCpuRow) {
  std::set<std::string_view> names;
  std::string_view last;
  for (const Kernel& kernel : kernel_table()) {
    EXPECT_TRUE(names.insert(kernel.info.name).second) << kernel.info.name;
    for (const auto text : {kernel.info.device, kernel.info.regime, kernel.info.weights, kernel.info.zeros, kernel.info.groups,
                            kernel.info.activations, kernel.info.layout, kernel.info.status})
      EXPECT_FALSE(text.empty()) << kernel.info.name;
    if (kernel.device == Device::Kind::cpu) last = kernel.info.name;
  }
  EXPECT_EQ(last, "reference");
}

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(to_string(*parse_device("cpu")), "cpu");
  EXPECT_EQ(to_string(*parse_device("cuda")), "cuda:0");
  EXPECT_EQ(to_string(*parse_device("cuda:3")), "cuda:3");
  for (const char* bad : {"", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999", "cudax3", "gpu"})
    EXPECT_EQ(parse_device(bad).status().code(), Code::invalid_argument) << bad;
}

// run() with one argument changed at a time.
class Run : public ::testing::Test {
 protected:
  Run() : w(Shape{}), context(1) {
    p = problem(w, m);
    p.y_type = DType::f32;
    planned = *plan(p);
    workspace = Buffer(planned.workspace + 64);
    a.x = x.data();
    a.ldx = w.k();
    a.y = y.data();
    a.ldy = w.n();
    a.workspace = workspace.data();
    a.workspace_size = planned.workspace;
  }
  void refused(Code code, const char* word) {
    const Status s = run(context, p, planned, a);
    EXPECT_EQ(s.code(), code) << word << ": " << s.message();
    EXPECT_THAT(s.message(), HasSubstr(word));
    for (const float f : y) ASSERT_EQ(f, -7.0f) << word;
  }
  static constexpr std::int64_t m = 2;
  Weight w;
  Context context;
  Problem p;
  Plan planned;
  Buffer workspace;
  RunArgs a;
  std::vector<std::uint16_t> x = std::vector<std::uint16_t>(1000, 0);
  std::vector<float> y = std::vector<float>(400, -7.0f);
};

TEST_F(Run, Works) {
  EXPECT_TRUE(run(context, p, planned, a).ok());
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[200], -7.0f);
}

TEST_F(Run, ZeroRowsAreANoOpWithoutPointers) {
  p.m = 0;
  planned = *plan(p);
  EXPECT_TRUE(run(context, p, planned, {}).ok());
}

TEST_F(Run, RefusesNullPointers) {
  const RunArgs good = a;
  a.x = nullptr;
  refused(Code::invalid_argument, "x is a null pointer");
  a = good;
  a.y = nullptr;
  refused(Code::invalid_argument, "y is a null pointer");
  a = good;
  a.workspace = nullptr;
  refused(Code::invalid_argument, "workspace is a null pointer");
  a = good;
  PackedView view = w.packed.view;
  p.weight = &view;
  view.codes = nullptr;
  refused(Code::invalid_argument, "codes are a null pointer");
  view = w.packed.view;
  view.scales = nullptr;
  refused(Code::invalid_argument, "scales are a null pointer");
  view = w.packed.view;
  view.parts = nullptr;
  refused(Code::invalid_argument, "no part table");
  view = w.packed.view;
  view.n_parts = 0;
  refused(Code::invalid_argument, "no part table");
  for (const void* PackedView::*plane : {&PackedView::codes, &PackedView::scales}) {
    view = w.packed.view;
    view.*plane = static_cast<const std::byte*>(view.*plane) + 32;
    refused(Code::invalid_argument, "not 64-byte aligned");
  }
}

TEST_F(Run, RefusesStridesAndAlignment) {
  const RunArgs good = a;
  a.ldx = w.k() - 1;
  refused(Code::invalid_argument, "ldx");
  a.ldx = -5;
  refused(Code::invalid_argument, "ldx");
  a.ldx = std::numeric_limits<std::int64_t>::max();
  refused(Code::invalid_argument, "overflow");
  a = good;
  a.ldy = w.n() - 1;
  refused(Code::invalid_argument, "ldy");
  a.ldy = std::numeric_limits<std::int64_t>::max() / 2;
  refused(Code::invalid_argument, "overflow");
  a = good;
  a.x = reinterpret_cast<const std::byte*>(x.data()) + 1;
  refused(Code::invalid_argument, "x is not aligned");
  a = good;
  a.y = reinterpret_cast<std::byte*>(y.data()) + 2;
  refused(Code::invalid_argument, "y is not aligned");
  a = good;
  a.x = x.data() + 1;  // an element, not 16 bytes: taken
  EXPECT_TRUE(run(context, p, planned, a).ok());
}

TEST_F(Run, RefusesABadWorkspaceOrPlan) {
  const RunArgs good = a;
  a.workspace_size = planned.workspace - 1;
  refused(Code::invalid_argument, "the plan needs");
  a = good;
  a.workspace = workspace.data() + 32;
  refused(Code::invalid_argument, "64-byte aligned");
  a = good;
  const Plan right = planned;
  planned.kernel = 99;
  refused(Code::invalid_argument, "kernel 99");
  planned.kernel = -1;
  refused(Code::invalid_argument, "kernel -1");
  planned = right;
  planned.m = 3;
  refused(Code::invalid_argument, "the plan is for m = 3");
  planned = right;
  planned.workspace = 0;
  refused(Code::invalid_argument, "plan again");
  planned = *plan(p, {"cpu_decode"});
  planned.m = p.m = 9;
  refused(Code::invalid_argument, "does not fit the problem: kernel cpu_decode takes at most 8 rows");
  p.m = m;
  planned = right;
  EXPECT_EQ(workspace_init(planned, {}, nullptr, 0).code(), Code::invalid_argument);
  EXPECT_EQ(workspace_init(planned, {}, workspace.data(), planned.workspace - 1).code(), Code::invalid_argument);
  EXPECT_EQ(workspace_init(planned, {Device::Kind::cuda, 0}, workspace.data(), planned.workspace).code(), Code::unavailable);
  EXPECT_TRUE(workspace_init(planned, {}, workspace.data(), planned.workspace).ok());
}

TEST_F(Run, RefusesBiasThatTheProblemDoesNotTellOf) {
  const float bias[200] = {};
  a.bias = bias;
  refused(Code::invalid_argument, "no bias");
  p.has_bias = true;
  EXPECT_TRUE(run(context, p, planned, a).ok());
  y.assign(y.size(), -7.0f);
  a.bias = nullptr;
  refused(Code::invalid_argument, "a bias");
  a.bias = reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(bias) + 2);
  refused(Code::invalid_argument, "bias is not aligned");
}

TEST_F(Run, RefusesAPartTableThatDoesNotCoverTheWeight) {
  PackedView view = w.packed.view;
  p.weight = &view;
  PackedPart part = view.parts[0];
  view.parts = &part;
  part.n = 70;
  refused(Code::invalid_argument, "parts");
  part.n = 1000;
  refused(Code::invalid_argument, "part 0");
  part.n = 0;
  refused(Code::invalid_argument, "part 0");
  part = w.packed.view.parts[0];
  part.n0 = 1;
  refused(Code::invalid_argument, "part 0");
  part = w.packed.view.parts[0];
  part.block0 = 1;
  refused(Code::invalid_argument, "part 0");
}

TEST_F(Run, LooksAtTheProblemAgain) {
  p.y_type = DType::i32;
  refused(Code::invalid_argument, "y must be");
  p.y_type = DType::f32;
  PackedView view = w.packed.view;
  p.weight = &view;
  view.n_blocks = 3;
  refused(Code::invalid_argument, "in 2 blocks; it has 100 in 3");
}

TEST_F(Run, RefusesAnotherDevice) {
  p.device = {Device::Kind::cuda, 63};
  refused(Code::unavailable, "cuda:63");
}

}  // namespace
}  // namespace swordfish::test
