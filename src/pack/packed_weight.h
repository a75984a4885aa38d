// What pack, unpack and the packed file share about a PackedWeight's shape.
#pragma once

#include <cstdint>

#include "pack/mma64.h"
#include "swordfish/pack.h"

namespace swordfish {

constexpr int code_bits(CodeType code) { return code == CodeType::int8 ? 8 : 4; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

// Points the view at the buffers and parts of its weight; an empty buffer gives a null pointer.
void bind(PackedWeight& weight);

}  // namespace swordfish
