// The launches of kernels/cuda/blockscaled/launch.h on a GPU: activations to FP4 and scales into atoms, every byte against the
// scalar definitions.
#include <gtest/gtest.h>

#include <random>

#include "device/gpu.h"
#include "kernels/cuda/blockscaled/launch.h"
#include "pack/sm1xx_pack.h"
#include "quant/quantize_activation.h"

namespace swordfish::test {
namespace {

template <class T>
std::vector<T> read(const DeviceBuffer& from) {
  std::vector<T> values(from.size() / sizeof(T));
  must(copy(kGpu, values.data(), from.data(), from.size()));
  return values;
}
DeviceBuffer poisoned(std::size_t size) {
  DeviceBuffer buffer = must(DeviceBuffer::allocate(kGpu, size));
  must(fill(kGpu, buffer.data(), 0xff, size));
  return buffer;
}

// By the CPU, which writes whole lines: from a line's start.
std::vector<std::uint8_t> atoms_of(const std::uint8_t* scales, std::int64_t n, std::int64_t s) {
  Buffer atoms(static_cast<std::size_t>((n + 127) / 128 * sm1xx::k_atoms(s) * sm1xx::atom_bytes));
  sm1xx::swizzle_scales(scales, s, n, s, atoms.as<std::uint8_t>());
  return {atoms.as<std::uint8_t>(), atoms.as<std::uint8_t>() + atoms.size()};
}

class QuantizeOnGpu : public OnGpu {};

TEST_F(QuantizeOnGpu, EqualsTheDefinition) {
  std::mt19937_64 random(std::random_device{}());
  struct Case {
    std::int64_t m, k, ldx, shift;
  };
  for (const Case& c : {Case{300, 1024, 1024, 0}, Case{1, 352, 360, 0}, Case{130, 96, 97, 1}}) {
    for (const DType type : {DType::bf16, DType::f16}) {
      for (const int block : {16, 32}) {
        for (const float given : {0.0f, 0.02f}) {
          std::vector<std::uint16_t> x(static_cast<std::size_t>(c.shift + c.m * c.ldx));
          std::normal_distribution<float> normal;
          for (auto& v : x) v = to_bits(type, normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 16) - 8));
          const std::uint16_t* first = x.data() + c.shift;
          const float global = block == 32 ? 1 : given != 0 ? given : activation_global(type, first, c.m, c.k, c.ldx);
          const auto want = block == 16 ? quantize_activations(type, first, c.m, c.k, c.ldx, global)
                                        : quantize_activations_mx(type, first, c.m, c.k, c.ldx);
          const std::int64_t scales = (c.k + block - 1) / block;
          const std::vector<std::uint8_t> atoms = atoms_of(want->scales.as<std::uint8_t>(), c.m, scales);

          const std::vector<float> factors{1.0f, 0.3f};
          const DeviceBuffer on_x = on_gpu(x), counter = on_gpu(std::vector<std::uint32_t>{0}), partial = poisoned(4 * 8 * 200),
                             scale = poisoned(12), alpha = poisoned(8), codes = poisoned(want->codes.size()),
                             to = poisoned(atoms.size());
          blockscaled::QuantizeCall call;
          call.x = static_cast<const std::uint16_t*>(on_x.data()) + c.shift;
          call.x_type = type;
          call.m = c.m, call.k = c.k, call.ldx = c.ldx;
          call.block = block;
          call.global = given;
          call.factor = factors.data();
          call.alphas = 2;
          call.counter = static_cast<std::uint32_t*>(counter.data());
          call.partial = static_cast<std::uint32_t*>(partial.data());
          call.scale = static_cast<float*>(scale.data());
          call.alpha = static_cast<float*>(alpha.data());
          call.codes = static_cast<std::uint8_t*>(codes.data());
          call.scales = static_cast<std::uint8_t*>(to.data());
          call.sms = 132;
          for (int repeat = 0; repeat < 2; ++repeat) must(blockscaled::launch_quantize(call));
          must(synchronize(kGpu));
          EXPECT_EQ(read<std::uint8_t>(to), atoms);
          EXPECT_EQ(0, std::memcmp(read<std::uint8_t>(codes).data(), want->codes.data(), want->codes.size()));
          EXPECT_EQ(read<float>(alpha), (std::vector<float>{global * factors[0], global * factors[1]}));
          EXPECT_EQ(read<std::uint32_t>(counter)[0], 0u);
        }
      }
    }
  }
}

TEST_F(QuantizeOnGpu, SwizzlesAndCopiesRows) {
  std::mt19937_64 random(std::random_device{}());
  for (const std::int64_t s : {64, 180, 90, 451}) {
    const std::int64_t n = 300;
    std::vector<std::uint8_t> from(static_cast<std::size_t>(n * s));
    for (auto& b : from) b = static_cast<std::uint8_t>(random());
    const std::vector<std::uint8_t> want = atoms_of(from.data(), n, s);
    const DeviceBuffer source = on_gpu(from), to = poisoned(want.size()), rows = poisoned(static_cast<std::size_t>(n * 500));
    must(blockscaled::launch_swizzle(static_cast<const std::uint8_t*>(source.data()), s, n, s,
                                     static_cast<std::uint8_t*>(to.data()), nullptr));
    must(blockscaled::launch_copy_rows(rows.data(), 500, source.data(), s, s, n, nullptr));
    must(synchronize(kGpu));
    EXPECT_EQ(read<std::uint8_t>(to), want);
    const auto copied = read<std::uint8_t>(rows);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < 500; ++j)
        ASSERT_EQ(copied[static_cast<std::size_t>(i * 500 + j)], j < s ? from[static_cast<std::size_t>(i * s + j)] : 0xff);
  }
}

}  // namespace
}  // namespace swordfish::test
