// Value scans of formats.md section 9: rows 44 (NaN, Inf), 45 (e4m3: NaN, negative), 46 (e8m0: NaN) and 47 (globals).
//
// A scan runs over chunks without looking at single elements (one OR of a predicate, which vectorises), and only a chunk that
// holds a bad element is searched for its first.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "formats/format.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

bool bad_f16(std::uint16_t v) { return (v & 0x7c00u) == 0x7c00u; }
bool bad_bf16(std::uint16_t v) { return (v & 0x7f80u) == 0x7f80u; }
bool bad_f32(std::uint32_t v) { return (v & 0x7f800000u) == 0x7f800000u; }
bool bad_e4m3(std::uint8_t v) { return v == 0x7f || v >= 0x81; }
bool bad_e8m0(std::uint8_t v) { return v == 0xff; }

// First element of `count` (each `stride` bytes apart) for which `bad` holds, or `count`.
template <class T, bool (*bad)(T)>
std::uint64_t find_bad(const std::byte* data, std::uint64_t count, std::size_t stride) {
  constexpr std::uint64_t chunk = 1024;
  for (std::uint64_t at = 0; at < count; at += chunk) {
    const std::uint64_t end = std::min(count, at + chunk);
    unsigned any = 0;
    if (stride == sizeof(T)) {
      for (std::uint64_t i = at; i < end; ++i) any |= static_cast<unsigned>(bad(load_unaligned<T>(data + i * sizeof(T))));
    } else {
      for (std::uint64_t i = at; i < end; ++i) any |= static_cast<unsigned>(bad(load_unaligned<T>(data + i * stride)));
    }
    if (any == 0) continue;
    for (std::uint64_t i = at; i < end; ++i) {
      if (bad(load_unaligned<T>(data + i * stride))) return i;
    }
  }
  return count;
}

template <class T, bool (*bad)(T)>
Status check(const Container& container, const Tensor& tensor, const std::byte* data, std::uint64_t count, std::size_t stride,
             std::string_view type, std::string_view expected, std::string_view what = "scale or offset") {
  const std::uint64_t at = find_bad<T, bad>(data, count, stride == 0 ? sizeof(T) : stride);
  if (at == count) return {};
  const T v = load_unaligned<T>(data + at * (stride == 0 ? sizeof(T) : stride));
  std::string_view kind;
  if constexpr (sizeof(T) == 1) {
    kind = (v & 0x7f) == 0x7f ? "NaN" : "negative";
  } else {
    const unsigned mantissa_bits = sizeof(T) == 4 ? 23 : type == "F16" ? 10 : 7;
    kind = (v & ((T{1} << mantissa_bits) - 1)) == 0 ? "Inf" : "NaN";
  }
  return malformed("{}: tensor '{}': {} at index {} is {} (raw {} bits 0x{:0{}x}); expected {}", container.path_of(tensor),
                   printable(tensor.name), what, at, kind, type, v, 2 * sizeof(T), expected);
}

}  // namespace

Status check_scales(const Container& container, const Tensor& tensor, const std::byte* data, std::uint64_t count, DType type,
                    std::size_t stride) {
  constexpr std::string_view finite = "a finite value";
  switch (type) {
    case DType::f16: return check<std::uint16_t, bad_f16>(container, tensor, data, count, stride, "F16", finite);
    case DType::bf16: return check<std::uint16_t, bad_bf16>(container, tensor, data, count, stride, "BF16", finite);
    case DType::f32: return check<std::uint32_t, bad_f32>(container, tensor, data, count, stride, "F32", finite);
    case DType::f8_e4m3:
      return check<std::uint8_t, bad_e4m3>(container, tensor, data, count, stride, "F8_E4M3",
                                           "a finite value that is not negative");
    case DType::f8_e8m0:
      return check<std::uint8_t, bad_e8m0>(container, tensor, data, count, stride, "F8_E8M0", "a scale below 0xff");
    default:
      return {Code::internal, fmt::format("{}: tensor '{}': no rule to check scales of type {}", container.path_of(tensor),
                                          printable(tensor.name), name(type))};
  }
}

Status check_weights(const Container& container, const Tensor& tensor, const std::byte* data, std::uint64_t count) {
  constexpr std::string_view finite = "a finite value", what = "weight";
  switch (tensor.dtype) {
    case DType::f16: return check<std::uint16_t, bad_f16>(container, tensor, data, count, 0, "F16", finite, what);
    case DType::bf16: return check<std::uint16_t, bad_bf16>(container, tensor, data, count, 0, "BF16", finite, what);
    default: return check<std::uint32_t, bad_f32>(container, tensor, data, count, 0, "F32", finite, what);
  }
}

Status check_global(const Container& container, const Tensor& tensor, float value, bool divisor) {
  const std::string_view kind = divisor ? "divisor" : "multiplier";
  std::string_view problem;
  if (std::isnan(value)) {
    problem = "is NaN";
  } else if (std::isinf(value)) {
    problem = "is not finite";
  } else if (value <= 0) {
    problem = "is not positive";
  } else if (!std::isfinite(1.0f / value)) {
    problem = "has a reciprocal that is not finite";
  } else {
    return {};
  }
  return malformed("{}: tensor '{}': global scale ({}) {} {}; expected a finite value > 0 with a finite reciprocal",
                   container.path_of(tensor), printable(tensor.name), kind, value, problem);
}

}  // namespace swordfish
