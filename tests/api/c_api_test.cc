// The C ABI: the whole way from a file to y, versioned structs, and every kind of bad call.
#include "swordfish/swordfish.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

const std::string kCheckpoint = SWORDFISH_TEST_DATA "/fixtures/gptq_b4_g32_n40";

struct Opened {
  sf_checkpoint* checkpoint = nullptr;
  sf_weight* weight = nullptr;
  sf_context* context = nullptr;
  sf_weight_info info = {};
  std::vector<float> dense;

  Opened() {
    EXPECT_EQ(sf_checkpoint_open(kCheckpoint.c_str(), nullptr, &checkpoint), SF_OK) << sf_last_error();
    const size_t layer = 0;
    EXPECT_EQ(sf_weight_pack(checkpoint, &layer, 1, 0, 1, &weight), SF_OK) << sf_last_error();
    EXPECT_EQ(sf_context_create(2, &context), SF_OK);
    info.struct_size = sizeof info;
    EXPECT_EQ(sf_weight_get_info(weight, &info), SF_OK);
    dense.resize(static_cast<size_t>(info.n * info.k));
    EXPECT_EQ(sf_checkpoint_dequantize(checkpoint, 0, 0, dense.data(), info.k), SF_OK);
  }
  ~Opened() {
    sf_context_free(context);
    sf_weight_free(weight);
    sf_checkpoint_free(checkpoint);
  }
  sf_problem problem(int64_t m) const {
    sf_problem p = {};
    p.struct_size = sizeof p;
    p.m = m;
    p.y_type = SF_F32;
    p.threads = 2;
    return p;
  }
};

// y of an all-ones x is the row sum of the dense weight.
void run_and_check(const Opened& o, int64_t m) {
  const sf_problem problem = o.problem(m);
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(sf_plan_make(o.weight, &problem, &plan), SF_OK) << sf_last_error();
  std::vector<uint16_t> x(static_cast<size_t>(m * o.info.k), 0x3f80);
  std::vector<float> y(static_cast<size_t>(m * o.info.n), NAN);
  void* workspace = std::aligned_alloc(64, (plan.workspace + 127) / 64 * 64);
  ASSERT_EQ(sf_workspace_init(&plan, workspace, plan.workspace, nullptr), SF_OK) << sf_last_error();
  sf_run_args args = {};
  args.struct_size = sizeof args;
  args.x = x.data();
  args.ldx = o.info.k;
  args.y = y.data();
  args.ldy = o.info.n;
  args.workspace = workspace;
  args.workspace_size = plan.workspace;
  EXPECT_EQ(sf_run(o.context, o.weight, &plan, &args), SF_OK) << sf_last_error();
  std::free(workspace);
  for (int64_t i = 0; i < m * o.info.n; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < o.info.k; ++k) {
      const double w = static_cast<double>(o.dense[static_cast<size_t>((i % o.info.n) * o.info.k + k)]);
      sum += w;
      magnitude += std::abs(w);
    }
    ASSERT_NEAR(y[static_cast<size_t>(i)], sum, 1e-4 * magnitude) << i;
  }
}

TEST(CApi, FromFileToY) {
  const Opened o;
  EXPECT_STREQ(o.info.layout, "mma64/1");
  for (int64_t m : {1, 3, 20}) run_and_check(o, m);
}

TEST(CApi, ManyThreadsOnOneContext) {
  const Opened o;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&o, i] { run_and_check(o, 1 + i); });
  for (std::thread& t : threads) t.join();
}

TEST(CApi, WeightThroughPackedBytesIsTheSame) {
  const Opened o;
  std::vector<float> again(o.dense.size());
  ASSERT_EQ(sf_weight_dequantize(o.weight, again.data(), o.info.k), SF_OK);
  EXPECT_EQ(std::memcmp(again.data(), o.dense.data(), again.size() * sizeof(float)), 0);
}

TEST(CApi, FindLayerAndInfo) {
  const Opened o;
  sf_layer_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(sf_checkpoint_layer(o.checkpoint, 0, &info), SF_OK);
  size_t found = 99;
  EXPECT_EQ(sf_checkpoint_find(o.checkpoint, info.name, &found), SF_OK);
  EXPECT_EQ(found, 0u);
  EXPECT_EQ(sf_checkpoint_find(o.checkpoint, "no.such.layer", &found), SF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(sf_last_error()).find("no.such.layer"), std::string::npos);
  EXPECT_EQ(sf_checkpoint_layer(o.checkpoint, 1u << 20, &info), SF_INVALID_ARGUMENT);
}

TEST(CApi, ExplainVisitsEveryKernelAndOneIsChosen) {
  const Opened o;
  const sf_problem problem = o.problem(1);
  std::vector<int> chosen;
  ASSERT_EQ(sf_explain(
                o.weight, &problem,
                [](void* user, const char* kernel, int is_chosen, const char* reason) {
                  EXPECT_GT(std::strlen(kernel), 0u);
                  EXPECT_GT(std::strlen(reason), 0u);
                  static_cast<std::vector<int>*>(user)->push_back(is_chosen);
                },
                &chosen),
            SF_OK);
  EXPECT_EQ(std::count(chosen.begin(), chosen.end(), 1), 1);
}

TEST(CApi, StructsOfOlderAndNewerPrograms) {
  const Opened o;
  // An older program knows only the first fields of the plan.
  struct {
    size_t struct_size;
    const char* kernel;
    unsigned char guard[8];
  } old = {offsetof(sf_plan, kernel_index), nullptr, {1, 2, 3, 4, 5, 6, 7, 8}};
  const sf_problem problem = o.problem(1);
  ASSERT_EQ(sf_plan_make(o.weight, &problem, reinterpret_cast<sf_plan*>(&old)), SF_OK);
  EXPECT_NE(old.kernel, nullptr);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(old.guard[i], i + 1);

  // A newer one has more; zero there means "not used".
  struct {
    sf_problem known;
    unsigned char more[16];
  } newer = {};
  newer.known = problem;
  newer.known.struct_size = sizeof newer;
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  EXPECT_EQ(sf_plan_make(o.weight, &newer.known, &plan), SF_OK) << sf_last_error();
  newer.more[3] = 1;
  EXPECT_EQ(sf_plan_make(o.weight, &newer.known, &plan), SF_INVALID_ARGUMENT);

  sf_problem unset = problem;
  unset.struct_size = size_t{1} << 40;  // was never set: not read that far
  EXPECT_EQ(sf_plan_make(o.weight, &unset, &plan), SF_INVALID_ARGUMENT);
  unset.struct_size = 0;
  EXPECT_EQ(sf_plan_make(o.weight, &unset, &plan), SF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(sf_last_error()).find("struct_size"), std::string::npos);
}

TEST(CApi, NullPointersAreSaid) {
  const Opened o;
  const sf_problem problem = o.problem(1);
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  sf_checkpoint* checkpoint = nullptr;
  EXPECT_EQ(sf_checkpoint_open(nullptr, nullptr, &checkpoint), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_checkpoint_open("x", nullptr, nullptr), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_plan_make(nullptr, &problem, &plan), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_plan_make(o.weight, nullptr, &plan), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_run(o.context, o.weight, nullptr, nullptr), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_weight_pack(o.checkpoint, nullptr, 1, 0, 0, nullptr), SF_INVALID_ARGUMENT);
  sf_checkpoint_free(nullptr);
  sf_weight_free(nullptr);
  sf_context_free(nullptr);
  sf_packed_file_free(nullptr);
  EXPECT_EQ(sf_checkpoint_layer_count(nullptr), 0u);
}

TEST(CApi, BadProblemsAndArguments) {
  const Opened o;
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  sf_problem p = o.problem(-1);
  EXPECT_EQ(sf_plan_make(o.weight, &p, &plan), SF_INVALID_ARGUMENT);
  p = o.problem(1);
  p.x_type = SF_F32;
  EXPECT_NE(sf_plan_make(o.weight, &p, &plan), SF_OK);
  p = o.problem(1);
  p.device = SF_CUDA;
  p.device_index = 63;
  EXPECT_EQ(sf_plan_make(o.weight, &p, &plan), SF_UNAVAILABLE);
  p = o.problem(1);
  p.kernel = "no_such_kernel";
  EXPECT_EQ(sf_plan_make(o.weight, &p, &plan), SF_INVALID_ARGUMENT);
  const size_t layer = 0;
  sf_weight* weight = nullptr;
  EXPECT_EQ(sf_weight_pack(o.checkpoint, &layer, 1, -1, -1, &weight), SF_INVALID_ARGUMENT);
  sf_pack_options pack_options = {};
  pack_options.struct_size = sizeof pack_options;
  pack_options.threads = -1;
  EXPECT_EQ(sf_pack_file(o.checkpoint, "never.safetensors", &pack_options), SF_INVALID_ARGUMENT);
  sf_context* context = nullptr;
  EXPECT_EQ(sf_context_create(-1, &context), SF_INVALID_ARGUMENT);

  p = o.problem(0);
  ASSERT_EQ(sf_plan_make(o.weight, &p, &plan), SF_OK) << sf_last_error();
  sf_run_args args = {};
  args.struct_size = sizeof args;
  EXPECT_EQ(sf_run(o.context, o.weight, &plan, &args), SF_OK) << "m = 0 is a no-op: " << sf_last_error();

  p = o.problem(2);
  ASSERT_EQ(sf_plan_make(o.weight, &p, &plan), SF_OK);
  std::vector<uint16_t> x(static_cast<size_t>(2 * o.info.k), 0x3f80);
  std::vector<float> y(static_cast<size_t>(2 * o.info.n));
  args.x = x.data();
  args.y = y.data();
  args.ldx = o.info.k - 1;
  args.ldy = o.info.n;
  EXPECT_EQ(sf_run(o.context, o.weight, &plan, &args), SF_INVALID_ARGUMENT);
  args.ldx = o.info.k;
  args.ldy = o.info.n - 1;
  EXPECT_EQ(sf_run(o.context, o.weight, &plan, &args), SF_INVALID_ARGUMENT);
  args.ldy = o.info.n;
  args.x = nullptr;
  EXPECT_EQ(sf_run(o.context, o.weight, &plan, &args), SF_INVALID_ARGUMENT);
}

TEST(CApi, DescribedWeightPlansButDoesNotRun) {
  const Opened o;
  sf_weight* weight = nullptr;
  ASSERT_EQ(sf_weight_describe(SF_INT4, 4096, 4096, 128, &weight), SF_OK);
  const sf_problem problem = o.problem(1);
  sf_plan plan = {};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(sf_plan_make(weight, &problem, &plan), SF_OK);
  sf_run_args args = {};
  args.struct_size = sizeof args;
  EXPECT_EQ(sf_run(o.context, weight, &plan, &args), SF_INVALID_ARGUMENT);
  sf_weight_free(weight);
  EXPECT_EQ(sf_weight_describe(SF_INT4, 0, 4096, 128, &weight), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_weight_describe(SF_INT4, 64, 64, 17, &weight), SF_INVALID_ARGUMENT);
}

TEST(CApi, ErrorsBelongToTheirThread) {
  sf_checkpoint* checkpoint = nullptr;
  EXPECT_NE(sf_checkpoint_open("/no/such/path/one", nullptr, &checkpoint), SF_OK);
  std::thread([] { EXPECT_STREQ(sf_last_error(), ""); }).join();
  EXPECT_NE(std::string(sf_last_error()).find("/no/such/path/one"), std::string::npos);
}

TEST(CApi, PackFileAndLoad) {
  const Opened o;
  const std::string out = testing::TempDir() + "c_api_packed.safetensors";
  std::remove(out.c_str());
  sf_pack_options options = {};
  options.struct_size = sizeof options;
  int calls = 0;
  options.progress = [](uint64_t, uint64_t, void* user) { return ++*static_cast<int*>(user), 1; };
  options.user = &calls;
  ASSERT_EQ(sf_pack_file(o.checkpoint, out.c_str(), &options), SF_OK) << sf_last_error();
  EXPECT_GT(calls, 0);
  EXPECT_EQ(sf_pack_file(o.checkpoint, out.c_str(), nullptr), SF_INVALID_ARGUMENT) << "an existing file is not replaced";
  sf_packed_file* file = nullptr;
  ASSERT_EQ(sf_packed_file_open(out.c_str(), &file), SF_OK) << sf_last_error();
  EXPECT_EQ(sf_packed_file_layer_count(file), sf_checkpoint_layer_count(o.checkpoint));
  EXPECT_EQ(sf_packed_file_layer_name(file, 1u << 20), nullptr);
  sf_weight* weight = nullptr;
  ASSERT_EQ(sf_packed_file_load(file, 0, 0, &weight), SF_OK);
  std::vector<float> again(o.dense.size());
  ASSERT_EQ(sf_weight_dequantize(weight, again.data(), o.info.k), SF_OK);
  EXPECT_EQ(std::memcmp(again.data(), o.dense.data(), again.size() * sizeof(float)), 0);
  sf_weight_free(weight);
  sf_packed_file_free(file);

  options.force = 1;
  options.progress = [](uint64_t, uint64_t, void*) { return 0; };
  EXPECT_EQ(sf_pack_file(o.checkpoint, out.c_str(), &options), SF_CANCELLED);
  std::remove(out.c_str());
}

// Two parts from a caller's arrays: scales transposed as GPTQ has them, zero points, activation order, a global each.
TEST(CApi, PacksTensorsOfTheCaller) {
  const int64_t n = 70, k = 96, group = 32, rows = 3;
  std::vector<uint8_t> codes(static_cast<size_t>(n * (k + 5))), zeros(static_cast<size_t>(n * rows));
  std::vector<float> scales(static_cast<size_t>(rows * n));
  std::vector<int32_t> row_of_k(static_cast<size_t>(k));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 7 % 16);
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<uint8_t>(i * 5 % 16);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25f + static_cast<float>(i % 13);
  for (size_t i = 0; i < row_of_k.size(); ++i) row_of_k[i] = static_cast<int32_t>(i * 11 % 3);
  sf_tensor parts[2] = {};
  for (sf_tensor& t : parts) {
    t.struct_size = sizeof t;
    t.code = SF_INT4;
    t.n = n;
    t.k = k;
    t.codes = codes.data();
    t.codes_stride = k + 5;
    t.group_size = group;
    t.rows = rows;
    t.row_of_k = row_of_k.data();
    t.scales = scales.data();
    t.scale_type = SF_F32;
    t.scale_stride_n = 1;
    t.scale_stride_row = n;
    t.zeros = zeros.data();
    t.zero_type = SF_U8;
    t.zero_stride_n = rows;
    t.zero_stride_row = 1;
  }
  parts[1].global = 2;
  parts[1].global_divides = 1;
  sf_weight* weight = nullptr;
  ASSERT_EQ(sf_weight_pack_tensors(parts, 2, 1, &weight), SF_OK) << sf_last_error();
  std::vector<float> w(static_cast<size_t>(2 * n * k));
  ASSERT_EQ(sf_weight_dequantize(weight, w.data(), k), SF_OK);
  for (int64_t i = 0; i < 2 * n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const int64_t in = i % n, r = row_of_k[static_cast<size_t>(j)];
      const float expected =
          scales[static_cast<size_t>(r * n + in)] *
          static_cast<float>(codes[static_cast<size_t>(in * (k + 5) + j)] - zeros[static_cast<size_t>(in * rows + r)]);
      ASSERT_EQ(w[static_cast<size_t>(i * k + j)], i < n ? expected : expected / 2) << i << " " << j;
    }
  sf_weight_free(weight);

  const auto refused = [&](auto change, const char* word) {
    sf_tensor t = parts[0];
    change(t);
    EXPECT_EQ(sf_weight_pack_tensors(&t, 1, 1, &weight), SF_INVALID_ARGUMENT) << word;
    EXPECT_NE(std::string(sf_last_error()).find(word), std::string::npos) << sf_last_error();
  };
  refused([](sf_tensor& t) { t.struct_size = 0; }, "struct_size");
  refused([](sf_tensor& t) { t.n = 0; }, "tensor of 0");
  refused([](sf_tensor& t) { t.codes = nullptr; }, "NULL");
  refused([](sf_tensor& t) { t.scales = nullptr; }, "NULL");
  refused([](sf_tensor& t) { t.codes_stride = 95; }, "codes_stride");
  refused([](sf_tensor& t) { t.code = static_cast<sf_code_type>(9); }, "code type");
  refused([](sf_tensor& t) { t.rows = 2; }, "row_of_k");
  refused([](sf_tensor& t) { t.row_of_k = nullptr, t.rows = 2; }, "too few");
  refused([](sf_tensor& t) { t.offsets = t.zeros; }, "zeros and offsets");
  refused([](sf_tensor& t) { t.scale_type = SF_U8; }, "scales");
  refused([](sf_tensor& t) { t.zero_type = SF_F16; }, "zeros");
  codes[3] = 16;
  refused([](sf_tensor&) {}, "above 15");
  EXPECT_EQ(sf_weight_pack_tensors(parts, 0, 1, &weight), SF_INVALID_ARGUMENT);
}

TEST(CApi, AWholeModel) {
  const Opened o;
  sf_load_options options = {};
  options.struct_size = sizeof options;
  options.progress = [](uint64_t, uint64_t, void* user) { return ++*static_cast<int*>(user); };
  int calls = 0;
  options.user = &calls;
  sf_model* model = nullptr;
  ASSERT_EQ(sf_load(kCheckpoint.c_str(), &options, &model), SF_OK) << sf_last_error();
  EXPECT_GT(calls, 0);
  ASSERT_EQ(sf_model_weight_count(model), sf_checkpoint_layer_count(o.checkpoint));
  const sf_weight* weight = nullptr;
  int64_t expert = -1;
  const float* bias = nullptr;
  ASSERT_EQ(sf_model_weight(model, 0, &weight, &expert, &bias), SF_OK) << sf_last_error();
  EXPECT_EQ(expert, 0);
  std::vector<float> dense(o.dense.size());
  ASSERT_EQ(sf_weight_dequantize(weight, dense.data(), o.info.k), SF_OK) << sf_last_error();
  EXPECT_EQ(dense, o.dense);
  ASSERT_GT(sf_model_tensor_count(model), 0u);
  sf_tensor_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(sf_model_tensor(model, 0, &info), SF_OK) << sf_last_error();
  EXPECT_GT(info.bytes, 0u);
  EXPECT_NE(info.data, nullptr);
  EXPECT_EQ(sf_model_tensor(model, sf_model_tensor_count(model), &info), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_model_weight(model, sf_model_weight_count(model), &weight, nullptr, nullptr), SF_INVALID_ARGUMENT);
  sf_model_free(model);
  options.progress = [](uint64_t, uint64_t, void*) { return 0; };
  options.layout = "mma65/1";
  EXPECT_EQ(sf_load(kCheckpoint.c_str(), &options, &model), SF_INVALID_ARGUMENT);
  options.layout = nullptr;
  options.device = "tpu";
  EXPECT_EQ(sf_load(kCheckpoint.c_str(), &options, &model), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_load("/nowhere", nullptr, &model), SF_IO);
  EXPECT_EQ(sf_load(nullptr, nullptr, &model), SF_INVALID_ARGUMENT);
  EXPECT_EQ(sf_model_weight_count(nullptr), 0u);
  sf_model_free(nullptr);
}

}  // namespace
