// Element types of tensors, with the spellings and sizes of the safetensors container.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace [[gnu::visibility("default")]] swordfish {

enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f4,
  f6_e2m3,
  f6_e3m2,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f16,
  bf16,
  f32,
  f64,
  c64,
};

// Size of one element in bits (4 for f4, 6 for the f6 types, else a multiple of 8).
int bits(DType type);
// The safetensors spelling: "BF16", "F8_E4M3", "I32", ...
std::string_view name(DType type);
// The inverse of name(); exact and case-sensitive, as the reference reader is.
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace swordfish
