// GPTQ zero points: two versions on disk, and what to do where writers of the first disagree (formats.md 2.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/container.h"
#include "swordfish/checkpoint.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {

enum class GptqVersion {
  v1,  // stored = zero - 1
  v2,  // stored = zero
};

struct GptqZeroRule {
  GptqVersion version = GptqVersion::v1;
  bool word_wise = false;                       // the writer is known to subtract 1 from all lanes in one go, with borrows
  std::optional<bool> sym;                      // absent: the stored values decide
  GptqV1Zeros ambiguous = GptqV1Zeros::refuse;  // what the caller wants where the rule below finds no answer
};

struct GptqZeros {
  int constant = 0;  // when `plane` is empty
  Buffer plane;      // [groups, n] u8, or i16 where an 8-bit zero point is 256
  DType type = DType::u8;
  std::string note;  // sym is true, but the stored values are those of the other version
};

// `data`: the words of `tensor` (qzeros), [groups, words] with words = ceil(n·bits/32). Rows 40 and 41.
Result<GptqZeros> decode_gptq_zeros(const Container& container, const Tensor& tensor, const std::byte* data, std::int64_t groups,
                                    std::int64_t n, int bits, const GptqZeroRule& rule);

}  // namespace swordfish
