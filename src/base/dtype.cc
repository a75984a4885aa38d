// Names and sizes of element types.
#include "swordfish/dtype.h"

#include <array>

namespace swordfish {
namespace {
struct Row {
  DType type;
  std::string_view name;
  int bits;
};
constexpr std::array<Row, 22> kRows = {{
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::u16, "U16", 16},
    {DType::i16, "I16", 16},
    {DType::u32, "U32", 32},
    {DType::i32, "I32", 32},
    {DType::u64, "U64", 64},
    {DType::i64, "I64", 64},
    {DType::f4, "F4", 4},
    {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},
    {DType::c64, "C64", 64},
}};
constexpr const Row& row(DType type) { return kRows[static_cast<std::size_t>(type)]; }
constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].type) != i) return false;
  return true;
}
static_assert(in_enum_order());
}  // namespace

int bits(DType type) { return row(type).bits; }
std::string_view name(DType type) { return row(type).name; }
std::optional<DType> parse_dtype(std::string_view text) {
  for (const Row& r : kRows)
    if (r.name == text) return r.type;
  return std::nullopt;
}

}  // namespace swordfish
