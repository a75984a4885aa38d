// Code sources over GGUF blocks: what gguf_blocks.cc needs to read the codes of each block type (formats.md 7.2-7.4).
#pragma once

#include <cstddef>
#include <memory>

#include "swordfish/buffer.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {

// ggml type ids with a rule.
enum class GgufBlock : int {
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  mxfp4 = 39,
  nvfp4 = 40,
};

// The codes of a matrix whose rows are `row_blocks` consecutive blocks, the first row at bytes[0]. Codes as QuantTensor wants them:
// int4 0..15 (Q4_0 with zero 8; Q4_1, Q4_K), int8 0..31 (Q5_1, Q5_K), int8 around 128 (Q5_0: q+112, Q6_K: q+96, Q8_0: q+128), e2m1.
std::shared_ptr<const CodeSource> gguf_codes(GgufBlock type, std::shared_ptr<const Buffer> bytes, std::size_t row_blocks);

}  // namespace swordfish
