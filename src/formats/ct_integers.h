// Loading one integer matrix of a compressed-tensors checkpoint (formats.md 4.3, 4.4).
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/container.h"
#include "formats/ct_scheme.h"

namespace swordfish {

// Tensors by value, so that a layer does not depend on where the container keeps them. Shapes and types have been checked.
struct CtIntegers {
  std::shared_ptr<const Container> container;
  LayerInfo info;
  CtScheme scheme;
  Tensor weight;  // weight_packed, or weight (I8)
  Tensor scales;
  std::optional<Tensor> zeros, g_idx;
};
// Rows 38, 44 and 49, and values outside of the stated bits.
Result<QuantTensor> load_ct_integers(const CtIntegers& layer, std::int64_t expert);

}  // namespace swordfish
