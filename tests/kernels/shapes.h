// The weights that kernel tests go through: every code type, zero kind and scale type, with all kinds of groups.
#pragma once

#include <array>
#include <vector>

#include "kernels/weights.h"

namespace swordfish::test {

inline std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const std::vector<std::int64_t> groups = {16, 32, 48, 64, 128, 0};
  std::size_t turn = 0;
  for (const CodeType code : {CodeType::int4, CodeType::int8}) {
    for (const Zeros zeros : {Zeros::constant, Zeros::u8, Zeros::i16, Zeros::offsets}) {
      for (const DType scale : {DType::f16, DType::bf16, DType::f32}) {
        for (const bool act_order : {false, true}) {
          Shape s;
          s.code = code;
          s.zeros = zeros;
          s.scale_type = scale;
          s.offset_type = std::array{DType::f16, DType::f32, DType::bf16}[turn % 3];
          s.group = groups[turn++ % groups.size()];
          s.act_order = act_order && s.group != 0;
          s.k = std::array{200, 33, 321, 64}[turn % 4];
          s.part_n = turn % 3 == 0 ? std::vector<std::int64_t>{70, 3, 64} : std::vector<std::int64_t>{101};
          s.globals = turn % 2 == 0;
          all.push_back(s);
        }
      }
    }
  }
  for (const DType scale : {DType::f8_e4m3, DType::f8_e8m0, DType::f16, DType::bf16, DType::f32}) {
    Shape s;
    s.code = CodeType::fp4;
    s.scale_type = scale;
    s.group = scale == DType::f8_e8m0 ? 32 : 16;
    s.k = 288;
    s.part_n = {65, 40};
    s.globals = scale == DType::f8_e4m3;
    all.push_back(s);
    s.k = 1184;
    all.push_back(s);
  }
  for (const Zeros zeros : {Zeros::constant, Zeros::u8, Zeros::offsets}) {  // long enough to be split along K
    Shape s;
    s.zeros = zeros;
    s.k = 4163;
    s.part_n = {40};
    all.push_back(s);
    s.code = CodeType::int8;
    s.act_order = true;
    all.push_back(s);
  }
  return all;
}

}  // namespace swordfish::test
