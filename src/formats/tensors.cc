// Look-ups and checks of single tensors (formats.md section 9, rows 32, 34 and 35).
#include "formats/tensors.h"

#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"

namespace swordfish {

std::vector<std::string> modules_with(const Container& container, std::span<const std::string_view> leaves) {
  std::vector<std::string> modules;
  std::unordered_set<std::string_view> seen;
  for (const Tensor& tensor : container.tensors) {
    const std::string_view module = before_suffix(tensor.name, leaves);
    if (!module.empty() && seen.insert(module).second) modules.emplace_back(module);
  }
  return modules;
}

Result<const Tensor*> require_tensor(const Container& container, std::string_view module, std::string_view name,
                                     std::initializer_list<std::string_view> leaves) {
  if (const Tensor* tensor = container.find(name)) return tensor;
  std::string found, file;
  for (const std::string_view leaf : leaves) {
    const Tensor* tensor = container.find(leaf);
    if (tensor == nullptr) continue;
    found += (found.empty() ? "" : ", ") + printable(leaf);
    file = container.path_of(*tensor);
  }
  return malformed("{}: missing tensor '{}' of quantized module '{}'; found: {}", file, printable(name), printable(module),
                   found.empty() ? "none of its tensors" : found);
}

Status require_type(const Container& container, const Tensor& tensor, std::initializer_list<DType> expected) {
  std::string list;
  for (const DType type : expected) {
    if (tensor.dtype == type) return {};
    list += (list.empty() ? "" : " or ") + std::string(name(type));
  }
  return malformed("{}: tensor '{}': wrong dtype: expected {}, found {}", container.path_of(tensor), printable(tensor.name), list,
                   name(tensor.dtype));
}

Status require_shape(const Container& container, const Tensor& tensor, const std::vector<std::int64_t>& expected,
                     std::string_view formula) {
  if (tensor.shape == expected) return {};
  return malformed("{}: tensor '{}': wrong shape: expected {} = {}, found {}", container.path_of(tensor), printable(tensor.name),
                   formula, shape_text(expected), shape_text(tensor.shape));
}

Status find_bias(const Container& container, const std::string& name, LayerInfo& info) {
  const Tensor* bias = container.find(name);
  if (!bias) return {};
  SF_TRY(require_type(container, *bias, {DType::f16, DType::bf16, DType::f32}));
  std::vector<std::int64_t> shape{info.n};
  if (info.experts > 0) shape.insert(shape.begin(), info.experts);
  SF_TRY(require_shape(container, *bias, shape, info.experts > 0 ? "[E, N]" : "[N]"));
  info.bias = bias->name;
  return {};
}

void list_tensors(const Container& container, std::initializer_list<const Tensor*> tensors, LayerInfo& info) {
  const auto add = [&info](const Tensor* tensor) {
    if (!tensor) return;
    info.tensors.push_back(tensor->name);
    info.bytes += tensor->bytes;
  };
  for (const Tensor* tensor : tensors) add(tensor);
  if (!info.bias.empty()) add(container.find(info.bias));
}

}  // namespace swordfish
