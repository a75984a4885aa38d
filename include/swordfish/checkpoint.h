// Checkpoint: opens a quantized checkpoint, says what is in it, and reads one layer at a time.
//
// open() reads headers and configuration only, and of tensor data no more than compressed-tensors' weight_shape (two or three
// numbers a module, without which K is not known). load() reads the bytes of one layer. Nothing larger than that layer is ever
// held, and nothing is mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "swordfish/buffer.h"
#include "swordfish/quant_tensor.h"

namespace [[gnu::visibility("default")]] swordfish {

// How to read the zero points of an asymmetric GPTQ v1 file in which some stored lane is all ones (formats.md 2.3).
enum class GptqV1Zeros {
  refuse,    // the default: readers of such files disagree
  lane,      // (stored + 1) & mask, lane by lane
  unmasked,  // stored + 1, lane by lane: 15 becomes 16
  word,      // lanes of word + 0x11111111 (8-bit: 0x01010101)
};

struct OpenOptions {
  GptqV1Zeros gptq_v1_zeros = GptqV1Zeros::refuse;
};

// One tensor of the container.
struct TensorInfo {
  std::string name;
  std::string type;                 // "BF16", "I32", "Q4_K", ...
  std::vector<std::int64_t> shape;  // slowest index first
  std::string file;                 // path of the file that holds it
  std::uint64_t offset = 0;         // absolute byte offset in that file
  std::uint64_t bytes = 0;
};

enum class ZeroKind : std::uint8_t { constant, integers, offsets };

// One quantized layer: a matrix, or `experts` stacked matrices of equal shape.
struct LayerInfo {
  std::string name;         // module path: "model.layers.0.mlp.down_proj", GGUF "blk.0.ffn_down"
  std::string weight_name;  // the name of its dense weight in `dequantize`'s output
  std::string scheme;       // "gptq", "awq", "compressed-tensors pack-quantized", "modelopt nvfp4", "gguf Q4_K", ...
  CodeType code = CodeType::int4;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t experts = 0;     // 0: a plain matrix; else stacked [experts, n, k]
  std::int64_t group_size = 0;  // columns a scale row; equal to k when channelwise or per tensor
  bool act_order = false;       // as the configuration says; the contents decide at load
  ZeroKind zero = ZeroKind::constant;
  DType scale_type = DType::f16;
  bool has_global = false;
  std::string fused_into;   // "model.layers.0.self_attn.qkv_proj" when it is a part of a module that engines fuse, else empty
  int fused_index = 0;      // its place among the parts
  std::string bias;         // tensor name, empty when there is none (all-zero placeholders included: the contents decide)
  std::uint64_t bytes = 0;  // stored bytes of all its tensors
  std::vector<std::string> tensors;  // names of those tensors
  // Several projections in one tensor, one below the other (q | k | v, gate | up): the dense name and the rows of each, where
  // format and configuration say them. Empty: one projection, or not known.
  struct Projection {
    std::string weight_name;
    std::int64_t n = 0;
    std::int64_t heads = 0;  // attention heads that the rows belong to; 0: none
  };
  std::vector<Projection> projections;
};

// Something a user should know that is no reason to refuse: "file, tensor: sentence".
using Warning = std::string;

class Checkpoint {
 public:
  // `path`: a folder of safetensors with its configuration, one .safetensors file (beside its configuration), or a .gguf file (of a
  // split model, the first). Files written by `swordfish pack` are read by PackedFile (pack.h). Refuses by the rows of formats.md
  // section 9 that headers and configuration can decide.
  static Result<Checkpoint> open(const std::string& path, const OpenOptions& options = {});
  // The same, but keeps what could be read when something is refused (`problem` then says what; else it is ok): for `inspect`.
  static Checkpoint open_partial(const std::string& path, const OpenOptions& options, Status& problem);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const;
  const std::string& scheme() const;                    // of the whole: "gptq", "gguf", ...
  const std::vector<LayerInfo>& layers() const;         // in file order
  const std::vector<TensorInfo>& tensors() const;       // every tensor of the container
  const std::vector<std::string>& unquantized() const;  // names of tensors that belong to no quantized layer
  const std::vector<std::string>& not_packed() const;   // GGUF tensors of a block type without a rule: "name: IQ4_NL (20)"
  const std::vector<Warning>& warnings() const;

  // Reads one layer (one expert of a stacked one) and checks its values by formats.md section 9, rows 38-49.
  // Thread-safe.
  Result<QuantTensor> load(std::size_t layer, std::int64_t expert = 0) const;
  // Its global scale alone (a few bytes are read); 1 when it has none.
  Result<Global> load_global(std::size_t layer, std::int64_t expert = 0) const;
  // Its bias as fp32 [n]; nullopt when there is none or every element of a placeholder is zero.
  Result<std::optional<std::vector<float>>> load_bias(std::size_t layer, std::int64_t expert = 0) const;
  // Raw bytes of any tensor of the container.
  Result<Buffer> read(const TensorInfo& tensor) const;
  // For GGUF with general.architecture "llama": the Hugging Face name and, for attn_q and attn_k, the row gather that undoes the
  // rotary permutation (hf_row[i] = gguf_row[gather[i]]; empty: rows as they are). Elsewhere the weight_name itself.
  struct HfName {
    std::string name;
    std::vector<std::int64_t> gather;
  };
  HfName hf_name(std::size_t layer) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace swordfish
