// Products on a GPU for tests: everything around x and y poisoned, the workspace too; skipped with the reason where no GPU is.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/weights.h"
#include "plan/error_bound.h"
#include "swordfish/device.h"

namespace swordfish::test {

inline constexpr Device kGpu{Device::Kind::cuda, 0};

// For the tests that need a GPU.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status s = usable_gpu(kGpu).status(); !s.ok()) GTEST_SKIP() << "not run, it needs a GPU: " << s.message();
  }
};

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}
inline void must(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

inline DeviceBuffer on_gpu(const void* data, std::size_t size) {
  DeviceBuffer buffer = must(DeviceBuffer::allocate(kGpu, size));
  must(copy(kGpu, buffer.data(), data, size));
  return buffer;
}
template <class T>
DeviceBuffer on_gpu(const std::vector<T>& values) {
  return on_gpu(values.data(), values.size() * sizeof(T));
}

// Whether the table has a kernel for this weight on the GPU; what it has not, for want of shared memory, is printed.
inline bool can_run(const DeviceWeight& weight, DType x_type, const std::string& what) {
  Problem p;
  p.weight = &weight.view();
  p.m = 1;
  p.x_type = x_type;
  p.device = kGpu;
  const auto planned = plan(p);
  if (planned.ok()) return true;
  std::printf("[ refused  ] %s: %s\n", what.c_str(), planned.status().message().c_str());
  EXPECT_NE(planned.status().message().find("shared memory"), std::string::npos);
  return false;
}

struct GpuCall {
  DType x_type = DType::bf16, y_type = DType::f32;
  std::int64_t pad_x = 0, pad_y = 0;      // elements of stride gap
  std::int64_t shift_x = 0, shift_y = 0;  // elements from a 256-byte boundary to the first of x and y
  bool dependent = true;
  const std::vector<float>* bias = nullptr;
};

// One product's plan and memory on the GPU, for running it as often as a test wants.
class Product {
 public:
  Product(const Weight& w, const DeviceWeight& weight, std::int64_t m, const std::vector<std::uint16_t>& x, const GpuCall& c)
      : call(c), n(w.n()), ldy(n + c.pad_y) {
    problem.weight = &weight.view();
    problem.m = m;
    problem.x_type = c.x_type;
    problem.y_type = c.y_type;
    problem.has_bias = c.bias != nullptr;
    problem.device = kGpu;
    planned = must(plan(problem));
    constexpr std::uint16_t kNan16 = 0x7fff;  // NaN in bf16 and f16
    const std::int64_t k = w.k(), ldx = k + c.pad_x;
    std::vector<std::uint16_t> xs(static_cast<std::size_t>(c.shift_x + (m - 1) * ldx + k), kNan16);
    for (std::int64_t i = 0; i < m; ++i) std::copy_n(x.begin() + i * k, k, xs.begin() + c.shift_x + i * ldx);
    x_memory = on_gpu(xs);
    element = static_cast<std::size_t>(bits(c.y_type)) / 8;
    poison.assign(static_cast<std::size_t>(c.shift_y + m * ldy + kGuard) * element, std::byte{0xff});
    y_memory = on_gpu(poison);
    if (c.bias) bias_memory = on_gpu(*c.bias);
    new_workspace();
    args.x = static_cast<const std::uint16_t*>(x_memory.data()) + c.shift_x;
    args.ldx = ldx;
    args.y = static_cast<std::byte*>(y_memory.data()) + static_cast<std::size_t>(c.shift_y) * element;
    args.ldy = ldy;
    args.bias = static_cast<const float*>(bias_memory.data());
    args.dependent = c.dependent;
  }

  void new_workspace() {
    workspace = must(DeviceBuffer::allocate(kGpu, planned.workspace));
    must(fill(kGpu, workspace.data(), 0xff, workspace.size()));
    must(workspace_init(planned, kGpu, workspace.data(), workspace.size()));
    must(synchronize(kGpu));
    args.workspace = workspace.data();
    args.workspace_size = workspace.size();
  }
  void launch(Context& context, void* stream = nullptr) {
    RunArgs a = args;
    a.stream = stream;
    must(run(context, problem, planned, a));
  }
  void forget_y() { must(copy(kGpu, y_memory.data(), poison.data(), poison.size())); }

  // y after all streams have ended; nothing around it was written.
  std::vector<std::byte> bytes(void* stream = nullptr) {
    must(synchronize(kGpu, stream));
    std::vector<std::byte> all(poison.size());
    must(copy(kGpu, all.data(), y_memory.data(), all.size()));
    return all;
  }
  std::vector<double> values(void* stream = nullptr) {
    const std::vector<std::byte> all = bytes(stream);
    std::vector<double> y(static_cast<std::size_t>(problem.m * n));
    bool clean = true;
    for (std::size_t at = 0; at < all.size() / element; ++at) {
      const std::int64_t i = static_cast<std::int64_t>(at) - call.shift_y;
      const std::byte* e = all.data() + at * element;
      if (i >= 0 && i < problem.m * ldy && i % ldy < n) {
        y[static_cast<std::size_t>(i / ldy * n + i % ldy)] =
            call.y_type == DType::f32 ? load_unaligned<float>(e) : from_bits(call.y_type, load_unaligned<std::uint16_t>(e));
      } else {
        for (std::size_t b = 0; b < element; ++b) clean = clean && e[b] == std::byte{0xff};
      }
    }
    EXPECT_TRUE(clean) << "wrote outside of y";
    return y;
  }

  static constexpr std::int64_t kGuard = 64;
  GpuCall call;
  std::int64_t n, ldy;
  std::size_t element = 0;
  Problem problem;
  Plan planned;
  RunArgs args;
  DeviceBuffer x_memory, y_memory, bias_memory, workspace;
  std::vector<std::byte> poison;
};

// y in fp64 without bias; the same with weights rounded to the type of x, as dequantizing them first would have them (ahead of the
// global, as the kernels do: where a few large rows make the norm, another place of rounding is another error); and what the error
// bound sums up (plan/error_bound.h).
struct Expected {
  std::vector<double> y, dequantized, magnitude, rounding;
};
inline Expected expect(const Weight& w, std::int64_t m, const std::vector<std::uint16_t>& x, DType x_type) {
  const std::int64_t n = w.n(), k = w.k();
  std::vector<double> xs(static_cast<std::size_t>(m * k)), row(static_cast<std::size_t>(k)), added(row.size()), rounded(row.size());
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = from_bits(x_type, x[i]);
  Expected out;
  for (auto* v : {&out.y, &out.dequantized, &out.magnitude, &out.rounding}) v->resize(static_cast<std::size_t>(m * n));
  std::int64_t n0 = 0;
  for (const QuantTensor& t : w.tensors) {
    QuantTensor plain = t;
    plain.global = {};
    const double global = t.global.op == Global::Op::multiply ? t.global.value : 1.0 / t.global.value;
    for (std::int64_t i = 0; i < t.n; ++i) {
      dequantize(plain, i, 1, row.data(), k);
      for (std::size_t j = 0; j < row.size(); ++j)
        rounded[j] = global * from_bits(x_type, to_bits(x_type, static_cast<float>(row[j])));
      dequantize(t, i, 1, row.data(), k);
      added_magnitude(t, i, 1, added.data(), k);
      for (std::int64_t r = 0; r < m; ++r) {
        double sum = 0, of_rounded = 0, magnitude = 0, weights = 0, sum_x = 0;
        for (std::size_t j = 0; j < row.size(); ++j) {
          const double v = xs[static_cast<std::size_t>(r * k) + j];
          sum += v * row[j];
          weights += std::abs(v * row[j]);
          sum_x += std::abs(v);
          of_rounded += v * rounded[j];
          magnitude += std::abs(v) * added[j];
        }
        const auto at = static_cast<std::size_t>(r * n + n0 + i);
        out.y[at] = sum;
        out.dequantized[at] = of_rounded;
        out.magnitude[at] = magnitude;
        out.rounding[at] = weight_rounding(x_type, weights, sum_x, t.global);
      }
    }
    n0 += t.n;
  }
  return out;
}

}  // namespace swordfish::test
