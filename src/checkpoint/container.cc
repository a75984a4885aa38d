// Look-up and reading of a container's tensors.
#include "checkpoint/container.h"

#include "base/error.h"
#include "base/text.h"

namespace swordfish {

const Tensor* Container::find(std::string_view name) const {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &tensors[found->second];
}

Result<Buffer> Container::read(const Tensor& t) const { return files[t.file]->read(t.offset, t.bytes); }

Status Container::read(const Tensor& t, std::uint64_t offset, std::size_t size, void* out) const {
  if (offset > t.bytes || size > t.bytes - offset)
    return invalid_argument("{}: tensor '{}': cannot read {} bytes at offset {} of its {} bytes", path_of(t), printable(t.name),
                            size, offset, t.bytes);
  return files[t.file]->read(t.offset + offset, size, out);
}

std::string type_name(const Tensor& t) {
  if (t.gguf_type < 0) return std::string(name(t.dtype));
  const GgmlType* type = find_ggml_type(t.gguf_type);
  return type == nullptr ? std::to_string(t.gguf_type) : type->name;
}

}  // namespace swordfish
