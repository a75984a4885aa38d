// Rows for column-parallel projections, groups of columns for row-parallel ones.
#include "load/ranks.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/fused.h"

namespace swordfish {
namespace {

enum class Cut : std::uint8_t { whole, rows, columns, several };

Cut cut_of(const LayerInfo& layer) {
  std::string_view leaf = layer.name;
  leaf.remove_prefix(leaf.rfind('.') + 1);
  if (const auto place = expert_place(layer.name); place && place->leaf.empty()) {  // old GGUF: blk.0.ffn_gate.3
    leaf = place->prefix.substr(place->prefix.rfind('.') + 1);
  }
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), leaf) != names.end();
  };
  if (layer.projections.size() > 1) return Cut::several;
  if (is({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "lm_head", "output", "attn_q", "attn_k", "attn_v",
          "ffn_gate", "ffn_up", "ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp"}))
    return Cut::rows;
  if (is({"o_proj", "down_proj", "w2", "out_proj", "attn_output", "ffn_down", "ffn_down_exps", "ffn_down_shexp", "mlp2"}))
    return Cut::columns;
  // gpt-oss interleaves gate and up row by row: a range of rows has pairs.
  if (is({"gate_up_proj", "mlp1"}) && layer.scheme == "mxfp4") return Cut::rows;
  if (layer.projections.size() == 1) return Cut::rows;
  if (is({"gate_up_proj", "qkv_proj", "query_key_value", "attn_qkv", "W_pack", "Wqkv", "c_attn"})) return Cut::several;
  return Cut::whole;
}

// Part r of R of `count` things.
std::pair<std::int64_t, std::int64_t> share(std::int64_t count, const Rank& rank) {
  const auto at = [&](std::int64_t r) { return count / rank.ranks * r + count % rank.ranks * r / rank.ranks; };
  return {at(rank.rank), at(rank.rank + 1)};
}

// Of each projection: whole heads of q, k and v, which a rank must hold together; of gate and up the same rows.
Status cut_projections(const LayerInfo& layer, const Rank& rank, LayerCut& cut) {
  if (layer.projections.empty()) {
    return unsupported(
        "{}: several projections in one tensor, and neither its format nor the configuration says which rows belong to which; "
        "load it with one rank{}",
        printable(layer.name), layer.experts > 0 ? ", or deal whole experts out" : "");
  }
  cut.rows.clear();
  cut.n = 0;
  std::int64_t first = 0;  // row of the projection
  for (const LayerInfo::Projection& projection : layer.projections) {
    const std::int64_t units = projection.heads > 0 ? projection.heads : projection.n, size = projection.n / units;
    if (projection.heads > 0 && units % rank.ranks != 0) {
      return unsupported("{}: {} heads of '{}' cannot be cut for {} ranks: expected a number of ranks that divides them",
                         printable(layer.name), units, printable(projection.weight_name), rank.ranks);
    }
    const auto [begin, end] = share(units, rank);
    if (begin == end) {  // refused by the caller
      cut.n = 0;
      return {};
    }
    cut.rows.push_back({first + begin * size, (end - begin) * size});
    cut.n += cut.rows.back().n;
    first += projection.n;
  }
  return {};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> expert_range(std::int64_t count, const Rank& rank) {
  return rank.whole_experts ? share(count, rank) : std::pair{std::int64_t{0}, count};
}

Result<LayerCut> cut_layer(const LayerInfo& layer, const Rank& rank) {
  LayerCut cut{{{0, layer.n}}, layer.n, 0, layer.k, true};
  const bool dealt = rank.whole_experts && (layer.experts > 0 || expert_place(layer.name));
  if (rank.ranks == 1 || dealt) return cut;
  switch (cut_of(layer)) {
    case Cut::whole: return cut;
    case Cut::several: SF_TRY(cut_projections(layer, rank, cut)); break;
    case Cut::rows: {
      // Pairs of rows stay together (gate and up of gpt-oss).
      const std::int64_t pair = layer.n % 2 == 0 ? 2 : 1;
      const auto [begin, end] = share(layer.n / pair, rank);
      cut.n = (end - begin) * pair;
      cut.rows = {{begin * pair, cut.n}};
      break;
    }
    case Cut::columns: {
      // Whole groups; channelwise layers at multiples of 64, packed blocks.
      const std::int64_t step =
          layer.group_size >= layer.k || layer.group_size <= 0 ? 64 : std::lcm(layer.group_size, std::int64_t{16});
      const auto [begin, end] = share((layer.k + step - 1) / step, rank);
      cut.k0 = begin * step;
      cut.k = std::min(layer.k, end * step) - cut.k0;
      cut.bias = rank.rank == 0;
      break;
    }
  }
  if (cut.n > 0 && cut.k > 0) return cut;
  return unsupported("{}: [{}, {}] in groups of {} cannot be cut for {} ranks: rank {} would hold nothing of it",
                     printable(layer.name), layer.n, layer.k, layer.group_size, rank.ranks, rank.rank);
}

std::vector<bool> held_layers(const std::vector<LayerInfo>& layers, const Rank& rank) {
  std::vector<bool> held(layers.size(), true);
  if (!rank.whole_experts || rank.ranks == 1) return held;
  std::map<std::string_view, std::int64_t> counts;
  for (const LayerInfo& layer : layers)
    if (const auto place = expert_place(layer.name)) counts[place->prefix] = std::max(counts[place->prefix], place->expert + 1);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto place = expert_place(layers[i].name);
    if (!place) continue;
    const auto [begin, end] = expert_range(counts[place->prefix], rank);
    held[i] = place->expert >= begin && place->expert < end;
  }
  return held;
}

}  // namespace swordfish
