// Tests of the value scans: rows 44-47 of formats.md section 9, over every bit pattern of the narrow types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/build_files.h"
#include "formats/format.h"
#include "quant/numeric.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Values : public testing::Test {
 protected:
  void SetUp() override {
    auto file = io::File::open(folder_.write("scales.bin", "x"));
    ASSERT_TRUE(file.ok());
    container_.files.push_back(file.value());
    tensor_.name = "layer.weight_scale";
  }
  template <class T>
  Status check(const std::vector<T>& values, DType type, std::size_t stride = 0) const {
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    return check_scales(container_, tensor_, data, values.size() * sizeof(T) / (stride ? stride : sizeof(T)), type, stride);
  }
  TempFolder folder_;
  Container container_;
  Tensor tensor_;
};

TEST_F(Values, EveryHalfAndBfloat) {
  for (unsigned v = 0; v < 65536; ++v) {
    const auto bits = static_cast<std::uint16_t>(v);
    ASSERT_EQ(check<std::uint16_t>({bits}, DType::f16).ok(), std::isfinite(f16_to_f32(bits))) << v;
    ASSERT_EQ(check<std::uint16_t>({bits}, DType::bf16).ok(), std::isfinite(bf16_to_f32(bits))) << v;
  }
}

TEST_F(Values, EveryE4m3AndE8m0) {
  for (unsigned v = 0; v < 256; ++v) {
    const auto bits = static_cast<std::uint8_t>(v);
    // Row 45: NaN 7F and FF, negative from 81 on; 80 (-0) and 00 are legal.
    ASSERT_EQ(check<std::uint8_t>({bits}, DType::f8_e4m3).ok(), v <= 0x7e || v == 0x80) << v;
    ASSERT_EQ(check<std::uint8_t>({bits}, DType::f8_e8m0).ok(), v != 0xff) << v;
  }
}

TEST_F(Values, Floats) {
  constexpr float inf = std::numeric_limits<float>::infinity(), max = std::numeric_limits<float>::max();
  EXPECT_TRUE(check<float>({0, -0.0f, 1, -1, max, -max, std::numeric_limits<float>::denorm_min()}, DType::f32).ok());
  EXPECT_FALSE(check<float>({inf}, DType::f32).ok());
  EXPECT_FALSE(check<float>({-inf}, DType::f32).ok());
  EXPECT_FALSE(check<float>({std::nanf("")}, DType::f32).ok());
}

TEST_F(Values, FirstBadIndexWhereverItIs) {
  for (const std::size_t at : {0, 1, 15, 1023, 1024, 1025, 4999}) {
    std::vector<std::uint16_t> values(5000, 0x3c00);
    values[at] = 0x7e01;
    values.back() = 0xfc00;
    const Status status = check(values, DType::f16);
    EXPECT_EQ(status.code(), Code::malformed);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder_.path("scales.bin")), HasSubstr("'layer.weight_scale'"),
                                        HasSubstr("index " + std::to_string(at) + " ")));
    EXPECT_THAT(status.message(), HasSubstr(at == 4999 ? "Inf (raw F16 bits 0xfc00)" : "NaN (raw F16 bits 0x7e01)"));
  }
}

TEST_F(Values, SaysWhatIsWrong) {
  EXPECT_THAT(check<std::uint8_t>({0x38, 0xb8}, DType::f8_e4m3).message(),
              HasSubstr("index 1 is negative (raw F8_E4M3 bits 0xb8)"));
  EXPECT_THAT(check<std::uint8_t>({0xff}, DType::f8_e4m3).message(), HasSubstr("NaN (raw F8_E4M3 bits 0xff)"));
  EXPECT_THAT(check<std::uint8_t>({0, 0, 0xff}, DType::f8_e8m0).message(), HasSubstr("index 2 is NaN (raw F8_E8M0 bits 0xff)"));
  EXPECT_THAT(check<std::uint16_t>({0x7f80}, DType::bf16).message(), HasSubstr("Inf (raw BF16 bits 0x7f80)"));
  EXPECT_THAT(check<std::uint32_t>({0x7f800001}, DType::f32).message(), HasSubstr("NaN (raw F32 bits 0x7f800001)"));
}

TEST_F(Values, StrideSkipsWhatIsBetween) {
  std::vector<std::uint16_t> values(9 * 3000, 0x7e00);  // blocks of 18 bytes with NaN patterns as codes
  for (std::size_t i = 0; i < values.size(); i += 9) values[i] = 0x3c00;
  EXPECT_TRUE(check(values, DType::f16, 18).ok());
  values[9 * 2048] = 0x7c00;
  EXPECT_THAT(check(values, DType::f16, 18).message(), HasSubstr("index 2048 "));
}

TEST_F(Values, UnalignedData) {
  std::vector<std::uint8_t> bytes = {0xee, 0x00, 0x3c, 0x00, 0x7e};
  const auto* odd = reinterpret_cast<const std::byte*>(bytes.data()) + 1;
  EXPECT_TRUE(check_scales(container_, tensor_, odd, 1, DType::f16).ok());
  EXPECT_FALSE(check_scales(container_, tensor_, odd, 2, DType::f16).ok());
}

TEST_F(Values, Globals) {
  const float tiny = std::numeric_limits<float>::denorm_min(), max = std::numeric_limits<float>::max();
  for (const float good : {1.0f, 0.00111607f, 896.0f, max, 0x1p-126f})
    EXPECT_TRUE(check_global(container_, tensor_, good, false).ok());
  for (const float bad : {0.0f, -0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity(), tiny}) {
    for (const bool divisor : {false, true}) {
      const Status status = check_global(container_, tensor_, bad, divisor);
      EXPECT_EQ(status.code(), Code::malformed) << bad;
      EXPECT_THAT(status.message(), AllOf(HasSubstr("'layer.weight_scale'"), HasSubstr("global"), HasSubstr("scales.bin")));
      EXPECT_THAT(status.message(), HasSubstr(divisor ? "divisor" : "multiplier"));
    }
  }
  EXPECT_THAT(check_global(container_, tensor_, tiny, true).message(), HasSubstr("reciprocal"));
}

}  // namespace
}  // namespace swordfish
