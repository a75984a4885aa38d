// Checkpoint: opens a quantized checkpoint, says what is in it, and reads one layer at a time.
//
// open() reads headers and configuration; of tensor data it reads only compressed-tensors' weight_shape (two or three numbers per
// module, without which K is not known). load() reads the bytes of one layer. Nothing larger than that layer is ever held, and no
// file is mapped. What load() returns owns its bytes and may outlive the Checkpoint; references that the accessors return live as
// long as the Checkpoint. Const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "swordfish/buffer.h"
#include "swordfish/quant_tensor.h"

namespace [[gnu::visibility("default")]] swordfish {

// How to read the zero points of an asymmetric GPTQ v1 file in which some stored lane is all ones (docs/formats.md).
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
  std::int64_t group_size = 0;  // columns per scale row; equal to k when channelwise or per tensor
  bool act_order = false;       // as the configuration says; the contents decide at load
  ZeroKind zero = ZeroKind::constant;
  DType scale_type = DType::f16;
  bool has_global = false;
  bool k_first = false;     // the first dimension of codes and scales runs along K (GPTQ, AWQ, ModelOpt's stacked experts), not N
  std::string fused_into;   // "model.layers.0.self_attn.qkv_proj" when it is a part of a module that engines fuse, else empty
  int fused_index = 0;      // its place among the parts
  std::string bias;         // tensor name; empty when there is none. It may be an all-zero placeholder, which load_bias() drops
  std::uint64_t bytes = 0;  // stored bytes of all its tensors
  std::vector<std::string> tensors;  // names of those tensors
  // Several projections in one tensor, one below the other (q | k | v, gate | up): the dense name and the rows of each, where the
  // format and the configuration state them. Empty: one projection, or not known.
  struct Projection {
    std::string weight_name;
    std::int64_t n = 0;
    std::int64_t heads = 0;  // attention heads that the rows belong to; 0: none
  };
  std::vector<Projection> projections;
};

// Something that a user should know, but that is no reason to refuse the file: "file, tensor: sentence".
using Warning = std::string;

class Checkpoint {
 public:
  // `path`: a folder of safetensors files with its configuration, one .safetensors file (with its configuration beside it), or a
  // .gguf file (the first one of a split model). Files written by `swordfish pack` are read by PackedFile (pack.h). Refuses what
  // headers and configuration show to be malformed or unsupported (docs/formats.md).
  static Result<Checkpoint> open(const std::string& path, const OpenOptions& options = {});
  // The same, for `inspect`: when something is refused, what could be read is kept, and `problem` says why (else it is ok).
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

  // Reads one layer, or one expert of a stacked layer, and checks its values: indices in range, no NaN or infinity in scales,
  // globals positive and finite.
  Result<QuantTensor> load(std::size_t layer, std::int64_t expert = 0) const;
  // Only its global scale (a few bytes are read); 1 when it has none.
  Result<Global> load_global(std::size_t layer, std::int64_t expert = 0) const;
  // Its bias as fp32 [n]; nullopt when there is none, or when every element is zero (a placeholder).
  Result<std::optional<std::vector<float>>> load_bias(std::size_t layer, std::int64_t expert = 0) const;
  // The stored bytes of any tensor of the container.
  Result<Buffer> read(const TensorInfo& tensor) const;
  // For GGUF files of architecture "llama": the Hugging Face name and, for attn_q and attn_k, the row gather that undoes the rotary
  // permutation (hf_row[i] = gguf_row[gather[i]]; empty: rows as they are). Otherwise weight_name itself. `layer` must be in range.
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
