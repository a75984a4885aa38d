// Hugging Face names of GGUF tensors of architecture "llama", and the row gather that undoes the rotary permutation of its
// converter (formats.md 7.5).
#pragma once

#include <string_view>

#include "checkpoint/container.h"
#include "swordfish/checkpoint.h"

namespace swordfish {

// The name and gather of a weight tensor of n rows. Another architecture, a name that has no single Hugging Face tensor (stacked
// experts among them), or an attn_q / attn_k whose heads the keys do not give: the GGUF name itself, rows as they are.
Checkpoint::HfName gguf_hf_name(const Container& container, std::string_view name, std::int64_t n);
// gather[h*D + j*(D/2) + i] = h*D + 2*i + j for `heads` heads of D = n / heads rows.
std::vector<std::int64_t> rotary_gather(std::int64_t n, std::int64_t heads);

}  // namespace swordfish
