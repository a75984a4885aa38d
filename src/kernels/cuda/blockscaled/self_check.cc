// make_check, verdict and self_check of self_check.h.
#include "kernels/cuda/blockscaled/self_check.h"

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>

#include <fmt/format.h>

#include "base/try.h"
#include "device/device.h"
#include "kernels/cuda/blockscaled/jobs.h"
#include "kernels/cuda/blockscaled/w4a4.h"
#include "pack/sm1xx_pack.h"
#include "quant/numeric.h"
#include "quant/quantize_activation.h"

namespace swordfish::blockscaled {
namespace {

constexpr std::int64_t kM = 136, kK = 352;
constexpr std::array<std::int64_t, 2> kRows{160, 96};

class PlainCodes final : public CodeSource {
 public:
  explicit PlainCodes(std::vector<std::uint8_t> codes) : codes_(std::move(codes)) {}
  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i)
      std::memcpy(out + static_cast<std::size_t>(i) * stride, codes_.data() + (n0 + i) * kK + k0, static_cast<std::size_t>(k));
  }

 private:
  std::vector<std::uint8_t> codes_;
};

QuantTensor random_part(std::mt19937_64& random, std::int64_t n, int block, float global) {
  const std::int64_t rows = (kK + block - 1) / block;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * kK));
  for (auto& c : codes) c = static_cast<std::uint8_t>(random() % 16);
  auto scales = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(n * rows));
  // 2^-4 to 2^4 with every mantissa; 2^-6 to 2^5.
  for (auto& s : *scales) s = static_cast<std::uint8_t>(block == 16 ? 24 + random() % 64 : 121 + random() % 12);
  QuantTensor t;
  t.name = "self-check";
  t.n = n;
  t.k = kK;
  t.code = CodeType::fp4;
  t.zero = 0;
  t.codes = std::make_shared<PlainCodes>(std::move(codes));
  t.group_size = block;
  t.rows = rows;
  t.scales = {block == 16 ? DType::f8_e4m3 : DType::f8_e8m0, reinterpret_cast<const std::byte*>(scales->data()), rows, 1};
  t.keep_alive.push_back(std::move(scales));
  t.global = {global, Global::Op::multiply};
  return t;
}

// The quantized x as fp64.
std::vector<double> quantized_x(const Check& check, int block) {
  const auto q = block == 16 ? quantize_activations(check.type, check.x.data(), kM, kK, kK,
                                                    activation_global(check.type, check.x.data(), kM, kK, kK))
                             : quantize_activations_mx(check.type, check.x.data(), kM, kK, kK);
  const std::int64_t blocks = (kK + block - 1) / block;
  std::vector<double> x(static_cast<std::size_t>(kM * kK));
  for (std::int64_t i = 0; i < kM; ++i) {
    for (std::int64_t k = 0; k < kK; ++k) {
      const std::uint8_t code = q->codes.as<std::uint8_t>()[(i * kK + k) / 2] >> (k % 2 * 4) & 15;
      const std::uint8_t scale = q->scales.as<std::uint8_t>()[i * blocks + k / block];
      x[static_cast<std::size_t>(i * kK + k)] = static_cast<double>(kE2m1[code]) *
                                                (block == 16 ? e4m3_to_f32(scale) : e8m0_to_f32(scale)) *
                                                static_cast<double>(q->global);
    }
  }
  return x;
}

Result<std::vector<std::uint16_t>> run_check(const Instance& instance, const Check& check, Device device, int sms) {
  SF_ASSIGN(Stream stream, Stream::create(device));
  SF_ASSIGN(DeviceWeight weight, DeviceWeight::upload(check.weight, device, stream.get()));
  const Jobs jobs = make_jobs(weight.view(), check.m, sms, instance.workspace(sms));
  const auto upload = [&](const void* data, std::size_t size) -> Result<DeviceBuffer> {
    SF_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device, size));
    if (size == 0) return buffer;
    if (data) {
      SF_TRY(copy(device, buffer.data(), data, size, stream.get()));
    } else {
      SF_TRY(fill(device, buffer.data(), 0xff, size, stream.get()));
    }
    return buffer;
  };
  std::vector<std::uint16_t> y(check.y.size());
  SF_ASSIGN(DeviceBuffer x, upload(check.x.data(), check.x.size() * sizeof(std::uint16_t)));
  SF_ASSIGN(DeviceBuffer bias, upload(check.bias.data(), check.bias.size() * sizeof(float)));
  SF_ASSIGN(DeviceBuffer out, upload(nullptr, y.size() * sizeof(std::uint16_t)));
  SF_ASSIGN(DeviceBuffer workspace, upload(nullptr, jobs.workspace));
  SF_TRY(fill(device, workspace.data(), 0, jobs.partial, stream.get()));
  Problem p;
  p.weight = &weight.view();
  p.m = check.m;
  p.x_type = p.y_type = check.type;
  p.has_bias = !check.bias.empty();
  p.device = device;
  RunArgs a;
  a.x = x.data();
  a.ldx = kK;
  a.y = out.data();
  a.ldy = weight.view().n;
  a.bias = static_cast<const float*>(bias.data());
  a.workspace = workspace.data();
  a.workspace_size = workspace.size();
  a.stream = stream.get();
  const CurrentDevice current(device);
  SF_TRY(current.status());
  SF_TRY(launch_w4a4(instance, p, jobs, sms, a));
  SF_TRY(copy(device, y.data(), out.data(), y.size() * sizeof(std::uint16_t), stream.get()));
  return y;
}

}  // namespace

Check make_check(const Instance& instance) {
  std::mt19937_64 random(20261130);
  Check check;
  check.m = kM;
  check.type = instance.y_type;
  std::vector<QuantTensor> parts;
  parts.reserve(kRows.size());
  for (std::size_t i = 0; i < kRows.size(); ++i)
    parts.push_back(random_part(random, kRows[i], instance.block, i == 0 || instance.block == 32 ? 0x1p-7f : 0x1p-3f / 13));
  check.weight = std::move(pack_blockscaled(parts, "self-check", 1)).value();
  std::normal_distribution<float> normal;
  check.x.resize(static_cast<std::size_t>(kM * kK));
  for (std::size_t i = 0; i < check.x.size(); ++i) {
    const float v = std::ldexp(normal(random), static_cast<int>(i / static_cast<std::size_t>(instance.block) % 5) - 4);
    check.x[i] = f32_to_half(check.type, v);
  }
  const std::int64_t n = check.weight.view.n;
  if (instance.launch)
    for (std::int64_t i = 0; i < n; ++i) check.bias.push_back(normal(random));
  const std::vector<double> x = quantized_x(check, instance.block);
  check.y.resize(static_cast<std::size_t>(kM * n));
  check.slack.resize(check.y.size());
  const double rounding = check.type == DType::bf16 ? 0x1p-8 : 0x1p-11;
  std::vector<float> w(static_cast<std::size_t>(kK));
  std::int64_t n0 = 0;
  for (const QuantTensor& part : parts) {
    for (std::int64_t i = 0; i < part.n; ++i) {
      dequantize(part, i, 1, w.data(), kK);
      for (std::int64_t r = 0; r < kM; ++r) {
        double sum = 0, magnitude = 0;
        for (std::int64_t k = 0; k < kK; ++k) {
          const double term = x[static_cast<std::size_t>(r * kK + k)] * w[static_cast<std::size_t>(k)];
          sum += term;
          magnitude += std::fabs(term);
        }
        const auto at = static_cast<std::size_t>(r * n + n0 + i);
        check.y[at] = sum + (check.bias.empty() ? 0.0 : static_cast<double>(check.bias[static_cast<std::size_t>(n0 + i)]));
        // One rounding to y's type, and fp32 sums of K terms in any order.
        check.slack[at] = rounding * std::fabs(check.y[at]) + 0x1p-24 * (kK + 8) * (magnitude + std::fabs(check.y[at])) + 1e-30;
      }
    }
    n0 += part.n;
  }
  return check;
}

std::string verdict(const Check& check, const std::vector<std::uint16_t>& y) {
  if (y.size() != check.y.size()) return fmt::format("gave {} values instead of {}", y.size(), check.y.size());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = y.size(); i-- > 0;) {
    if (std::fabs(half_to_f32(check.type, y[i]) - check.y[i]) <= check.slack[i]) continue;  // a NaN is not
    ++wrong;
    first = i;
  }
  if (wrong == 0) return {};
  const auto n = static_cast<std::size_t>(check.weight.view.n);
  return fmt::format("{} of {} values were wrong, the first at row {}, column {}: {} instead of {}", wrong, y.size(), first / n,
                     first % n, half_to_f32(check.type, y[first]), check.y[first]);
}

const std::string& self_check(const Instance& instance, int device, int sms) {
  constexpr std::size_t kDevices = 64, kInstances = 16;
  struct Outcome {
    std::once_flag once;
    std::string why;
  };
  static std::array<std::array<Outcome, kInstances>, kDevices> outcomes;
  static const std::string out_of_range = "has no room to remember its self-check";
  const auto index = static_cast<std::size_t>(&instance - instances().data());
  if (device < 0 || static_cast<std::size_t>(device) >= kDevices || index >= kInstances) return out_of_range;
  Outcome& outcome = outcomes[static_cast<std::size_t>(device)][index];
  std::call_once(outcome.once, [&] {
    const RelaxedCapture relaxed;
    const Check check = make_check(instance);
    const auto y = run_check(instance, check, {Device::Kind::cuda, device}, sms);
    const std::string why = y.ok() ? verdict(check, *y) : y.status().message();
    if (!why.empty()) outcome.why = fmt::format("is disabled, its self-check on cuda:{} failed: {}", device, why);
  });
  return outcome.why;
}

}  // namespace swordfish::blockscaled
