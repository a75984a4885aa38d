// PackedWriter: writes a packed file (packed_format.h) entry by entry; sizes become known as the weights come.
//
// A safetensors header comes first but can only be written last, so room for it is reserved: the caller announces every layer, and
// the longest header that those layers can have is what is kept free.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "io/atomic_file.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace swordfish {

class PackedWriter {
 public:
  struct Part {
    std::string name;
    std::string weight_name;
    std::int64_t n = 0;
  };
  struct Layer {
    std::string name;
    std::string scheme;
    CodeType code = CodeType::int4;
    std::int64_t k = 0;
    std::int64_t experts = 0;
    bool may_have_bias = false;  // room is kept for one
    std::vector<Part> parts;
  };

  // The file appears at `path` when finish() succeeds, else never. `announced`: all layers that may be added. `layout`: of every
  // weight that comes.
  static Result<PackedWriter> create(const std::string& path, bool force, const std::vector<Layer>& announced,
                                     Layout layout = Layout::mma64_1);
  std::uint64_t data_bytes() const { return end_; }
  // Writes the planes of a plain layer (expert 0), or of one expert; experts come in order, layers one after the other.
  Status add_entry(const Layer& layer, std::int64_t expert, const PackedWeight& weight);
  // Writes a bias, n or experts·n values, after all entries of all layers.
  Status add_bias(const Layer& layer, const std::vector<float>& values);
  Status finish();

 private:
  Status append(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape, const void* data, std::size_t size);

  std::string path_;
  Layout layout_ = Layout::mma64_1;
  std::unique_ptr<io::AtomicFile> file_;
  std::uint64_t reserved_ = 0;  // bytes for the JSON header
  std::uint64_t end_ = 0;       // of the data section so far
  std::string tensors_;         // header members
  std::string layers_;          // elements of the metadata's array
  std::string entries_;         // of the layer in progress
  std::unordered_set<std::string> names_;
};

}  // namespace swordfish
