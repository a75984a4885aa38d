// One FP4 matrix (or stack of expert matrices) of a safetensors file: e2m1 codes, block scales and perhaps a global, as ModelOpt,
// compressed-tensors, gpt-oss and DeepSeek store them (formats.md 5, 6).
#pragma once

#include <memory>

#include "checkpoint/container.h"
#include "formats/format.h"

namespace swordfish {

struct Fp4Matrix {
  LayerInfo info;                  // name, weight_name, scheme, n, k, experts, group_size (the block), bias; the rest is filled in
  const Tensor* codes = nullptr;   // two codes a byte along K, low nibble first: [experts..., N, K/2] in any split of dimensions
  const Tensor* scales = nullptr;  // one byte a block: [experts..., N, K/block]
  DType scale_type = DType::f8_e4m3;  // what those bytes mean: f8_e4m3 or f8_e8m0
  const Tensor* global = nullptr;     // F32, one or one an expert; or null
  Global::Op global_op = Global::Op::multiply;
  bool transposed = false;  // codes [experts, K/2, N] and scales [experts, K/block, N]
};
// The layer that reads it; shapes and types must have been checked. The tensors are those of `container`.
FormatLayer fp4_layer(std::shared_ptr<const Container> container, Fp4Matrix matrix);

}  // namespace swordfish
