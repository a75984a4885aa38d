// quantize_checkpoint: a plain round-to-nearest quantizer for dense safetensors checkpoints, so that anyone can make an input.
//
// No calibration: each group of weights is rounded by itself. The result is a folder in a standard format that others read:
// compressed-tensors pack-quantized (int4, int8) or mxfp4-pack-quantized, or ModelOpt W4A16_NVFP4.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

enum class QuantizeScheme : std::uint8_t { int4, int8, nvfp4, mxfp4 };
std::string_view name(QuantizeScheme scheme);  // "int4", "int8", "nvfp4", "mxfp4"
std::optional<QuantizeScheme> parse_quantize_scheme(std::string_view text);

struct QuantizeOptions {
  QuantizeScheme scheme = QuantizeScheme::int4;
  std::int64_t group_size = 128;   // int4, int8: columns per scale, or -1 for one scale per row; FP4 has its own (16, 32)
  bool symmetric = true;           // int4, int8: zero point 8 (128), or one stored with each scale
  DType scale_type = DType::bf16;  // int4, int8: bf16, f16 or f32
  std::string layers;              // PCRE2 pattern searched in module paths; the others stay dense; empty: every linear layer
  bool force = false;              // replace an earlier result (a folder with nothing else in it)
  int threads = 0;                 // 0: all cores
};

struct QuantizeReport {
  std::int64_t quantized = 0;  // matrices
  std::int64_t copied = 0;     // tensors
  std::uint64_t source_bytes = 0, written_bytes = 0;
};

// Quantizes `path` (a folder of safetensors or one .safetensors file, dense BF16, F16 or F32) into the new folder `out`, which
// holds model.safetensors, config.json (the keys of the input's, with quantization_config) and for NVFP4 hf_quant_config.json.
// Every two-dimensional <module>.weight is quantized except routers, embeddings and output heads; these, and those that `layers`
// does not match, are copied and listed as ignored. Never holds more than one tensor. `out` appears complete or not at all. Errors:
// a weight that is NaN or infinite, a K that is not a multiple of the group size, an F16 scale that overflows, an input that is
// quantized already. `progress(done_bytes, total_bytes, user)` returns false to cancel; its first call, with 0 bytes done, says
// that the input has been accepted.
Result<QuantizeReport> quantize_checkpoint(const std::string& path, const std::string& out, const QuantizeOptions& options,
                                           bool (*progress)(std::uint64_t, std::uint64_t, void*) = nullptr, void* user = nullptr);

}  // namespace swordfish
