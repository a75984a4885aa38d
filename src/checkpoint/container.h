// Container: the tensors of a safetensors file, of a sharded set, or of a (split) GGUF file, by name, before anybody asks what
// they mean. The readers beside this fill it; formats/ reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "io/file.h"
#include "swordfish/buffer.h"
#include "swordfish/checkpoint.h"
#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace swordfish {

// One tensor of a container. For safetensors `dtype` holds its type and gguf_type is -1; for GGUF gguf_type holds the ggml id, and
// dtype is meaningful only for the plain types (F32, F16, BF16, I8 ...).
struct Tensor {
  std::string name;
  DType dtype = DType::u8;
  int gguf_type = -1;
  std::vector<std::int64_t> shape;  // slowest index first (GGUF dims reversed)
  std::size_t file = 0;             // index into Container::files
  std::uint64_t offset = 0;         // absolute byte offset in that file
  std::uint64_t bytes = 0;
};

// A GGUF key's value. Arrays are kept only as their element type and count (tokenizer arrays are large and unused), except that
// numeric arrays of at most 4,096 elements are kept as doubles.
struct GgufArray {
  std::uint32_t type = 0;
  std::uint64_t count = 0;
  std::vector<double> numbers;
};
using GgufValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string, GgufArray>;

// Look-ups by any kind of text.
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};
using NameIndex = std::unordered_map<std::string, std::size_t, NameHash, std::equal_to<>>;

struct Container {
  enum class Kind { safetensors, gguf };
  Kind kind = Kind::safetensors;
  std::vector<std::shared_ptr<const io::File>> files;
  std::vector<Tensor> tensors;                  // header order, file by file
  NameIndex index;                              // name -> position in tensors
  std::map<std::string, std::string> metadata;  // __metadata__ of the (first) safetensors file
  std::map<std::string, GgufValue> gguf;        // keys of the (first) GGUF file
  std::vector<Warning> warnings;

  const Tensor* find(std::string_view name) const;
  const std::string& path_of(const Tensor& t) const { return files[t.file]->path(); }
  Result<Buffer> read(const Tensor& t) const;
  Status read(const Tensor& t, std::uint64_t offset, std::size_t size, void* out) const;  // a range of its bytes
};

// Rules of formats.md 1.1-1.4 (every "required here" of its table) on each file, in order; the headers are read in parallel.
// Appends to `into`, which is of no further use after a failure.
Status read_safetensors_headers(std::vector<std::shared_ptr<const io::File>> files, Container& into);
// A folder: index, model.safetensors, model_file_base_name or the only file, by the precedence of 1.5. `base_name` is the GPTQ
// configuration's model_file_base_name (empty: none); `gptq_default` the name used when that key is null.
Result<Container> open_safetensors_folder(const std::string& folder, const std::string& base_name, const std::string& gptq_default);
Result<Container> open_safetensors_file(const std::string& path);
// formats.md 7.1, split files included (path: the first).
Result<Container> open_gguf(const std::string& path);

// Name, bytes and elements of a ggml block type; nullptr for removed and unknown ids.
struct GgmlType {
  int id;
  const char* name;
  int block_bytes;
  int block_elements;
};
const GgmlType* find_ggml_type(std::int64_t id);
// "BF16" or "Q4_K".
std::string type_name(const Tensor& t);

}  // namespace swordfish
