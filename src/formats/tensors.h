// The tensors of a module, as every reader of safetensors formats handles them: finding modules by their leaves, requiring tensors,
// types and shapes, and listing what belongs to a layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/container.h"

namespace swordfish {

// The modules, in file order and each once, that have a tensor named <module><one of leaves>.
std::vector<std::string> modules_with(const Container& container, std::span<const std::string_view> leaves);

// Row 32: the tensor `name` of `module`, or an error that says which of `leaves` (full names) were found.
Result<const Tensor*> require_tensor(const Container& container, std::string_view module, std::string_view name,
                                     std::initializer_list<std::string_view> leaves);
// Row 34.
Status require_type(const Container& container, const Tensor& tensor, std::initializer_list<DType> expected);
// Row 35; `formula` says where the numbers come from: "[N, K/16]".
Status require_shape(const Container& container, const Tensor& tensor, const std::vector<std::int64_t>& expected,
                     std::string_view formula);

// Looks for the bias `name` of a layer whose n and experts are known; where it is, checks its type and shape and sets info.bias.
Status find_bias(const Container& container, const std::string& name, LayerInfo& info);
// Adds the names and bytes of these tensors (null ones left out) and of the bias to what the layer consists of.
void list_tensors(const Container& container, std::initializer_list<const Tensor*> tensors, LayerInfo& info);

}  // namespace swordfish
