// Which tensors hold several projections, and how many rows each has.
#pragma once

#include <vector>

#include "checkpoint/container.h"
#include "formats/format.h"

namespace swordfish {

// Fills LayerInfo::projections by names and by the model's configuration (null: the keys of a GGUF file). Where the stated heads do
// not account for all rows, or the projections do not lie one below the other, it stays empty.
void find_projections(const Container& container, const Config* config, std::vector<FormatLayer>& layers);

}  // namespace swordfish
