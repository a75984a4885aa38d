// The element types of scale, zero and offset planes, as kernels tell them apart at run time.
#pragma once

namespace swordfish::mma {

enum class PlaneType : int { f16, bf16, f32, e4m3, e8m0, u8, i16 };
// log2 of an element's bytes.
constexpr int plane_shift(PlaneType type) {
  return type == PlaneType::f32 ? 2 : type == PlaneType::e4m3 || type == PlaneType::e8m0 || type == PlaneType::u8 ? 0 : 1;
}

}  // namespace swordfish::mma
