// What a format reader is: a function that looks at a container and its configuration and returns layers that can be loaded.
//
// Adding a format: one file in this folder with an open_*() function, one row in the dispatch of src/checkpoint/checkpoint.cc, its
// test under tests/formats and its row in docs/formats.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/container.h"
#include "swordfish/checkpoint.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {

// The JSON configuration of a checkpoint folder, read by the rules of formats.md 0.2 (src/formats/config.cc).
struct Config {
  // One place that states quantization facts: the quantization object inside a file.
  struct Source {
    std::string file;  // path
    std::string key;   // "quantization_config", "text_config.quantization_config", "quantization", "" (the whole file)
    std::shared_ptr<const Json> json;
    simdjson::dom::element object;
  };
  std::string folder;
  std::shared_ptr<const Json> model;  // config.json, or null
  std::string model_type;             // config.json "model_type", or empty
  std::vector<Source> sources;        // in order of precedence; they have been compared and do not contradict each other
  std::string method;  // lower case: "gptq", "awq", "compressed-tensors", "modelopt", "mxfp4", "auto-round", "fp8" ...
};
// Reads and compares every source; a folder without any configuration is refused.
Result<Config> read_config(const std::string& folder);

// A layer that can be loaded. load(expert) reads bytes and checks values; it is thread-safe and keeps nothing.
struct FormatLayer {
  LayerInfo info;
  std::function<Result<QuantTensor>(std::int64_t expert)> load;
};

// What a format reader works on and fills. It appends; on failure what was appended so far stays valid (for `inspect`).
struct FormatContext {
  std::shared_ptr<const Container> container;
  const Config* config = nullptr;  // null for GGUF
  OpenOptions options;
  std::vector<FormatLayer> layers;
  std::vector<std::string> not_packed;  // GGUF block types without a rule
  std::vector<Warning> warnings;
};

Status open_gptq(FormatContext& context);                // formats.md 2
Status open_awq(FormatContext& context);                 // formats.md 3
Status open_compressed_tensors(FormatContext& context);  // formats.md 4, 5.3, 6.3
Status open_modelopt(FormatContext& context);            // formats.md 5, 6.3
Status open_mxfp4(FormatContext& context);               // formats.md 6.2 (gpt-oss), original names, DeepSeek-V4 experts
Status open_gguf_blocks(FormatContext& context);         // formats.md 7.2-7.5

// --- shared by two or more formats -----------------------------------------------------------------------------------------------

// Appends the layers of modules 0 .. modules-1, in order; `layer` makes one and is called from several threads. A module that is
// refused does not hide the others: the first problem is returned after all have been looked at.
Status add_layers(FormatContext& context, std::size_t modules, const std::function<Result<FormatLayer>(std::size_t)>& layer);

// Codes of 4 bits in columns of pairs, as stacked experts of ModelOpt have them: byte (j, n) of a [K/2, N] matrix holds q[n, 2j]
// and q[n, 2j+1]. (In rows: quant/nibble_rows.h.)
std::shared_ptr<const CodeSource> nibble_columns(std::shared_ptr<const Buffer> bytes, std::size_t offset,
                                                 std::size_t column_stride);
// Codes of 8 bits along K, each XORed with `flip` (0x80 turns I8 into offset-128).
std::shared_ptr<const CodeSource> byte_rows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes,
                                            std::uint8_t flip);

// Value scans of formats.md section 9 over a stored plane; messages name file, tensor, flat index and raw bits.
// Rows 44 (floats: NaN, Inf), 45 (e4m3: NaN, negative; -0 is allowed), 46 (e8m0: 0xff). `type` is what the bits mean (U8 tensors
// hold e4m3 or e8m0); `stride` in bytes from one element to the next, 0: dense.
Status check_scales(const Container& container, const Tensor& tensor, const std::byte* data, std::uint64_t count, DType type,
                    std::size_t stride = 0);
// The same for dense F16, BF16 or F32 weights that are to be quantized.
Status check_weights(const Container& container, const Tensor& tensor, const std::byte* data, std::uint64_t count);
// Row 47.
Status check_global(const Container& container, const Tensor& tensor, float value, bool divisor);

}  // namespace swordfish
