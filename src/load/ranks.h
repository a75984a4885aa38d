// Tensor-parallel ranks: which rows, columns and experts of a layer a rank holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "load/slices.h"
#include "swordfish/checkpoint.h"
#include "swordfish/status.h"

namespace swordfish {

struct Rank {
  int rank = 0, ranks = 1;
  bool whole_experts = false;  // experts are dealt out whole instead of cut
};

// By the layer's name: q, k, v, gate, up and the output head by rows; o and down by columns, at group boundaries; everything else
// whole. Sizes that do not divide give some ranks one row or group more. A layer that holds several projections in one tensor gives
// rows of each, whole heads of q, k and v; where it is not known how many rows each has, it is unsupported. A rank for which
// nothing would be left is refused.
Result<LayerCut> cut_layer(const LayerInfo& layer, const Rank& rank);
// The experts [first, second) of `count` that a rank holds.
std::pair<std::int64_t, std::int64_t> expert_range(std::int64_t count, const Rank& rank);
// Whether the rank holds this layer at all: routed experts with one module each, dealt out whole. `layers`: of the checkpoint.
std::vector<bool> held_layers(const std::vector<LayerInfo>& layers, const Rank& rank);

}  // namespace swordfish
