// The layers of many modules, looked at by several threads: a mixture of experts has tens of thousands.
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "formats/format.h"

namespace swordfish {

Status add_layers(FormatContext& context, std::size_t modules, const std::function<Result<FormatLayer>(std::size_t)>& layer) {
  std::vector<std::optional<Result<FormatLayer>>> found(modules);
  parallel_each(modules, 64, [&](std::size_t i) { found[i].emplace(layer(i)); });  // one takes 5 to 10 us
  Status first;
  context.layers.reserve(context.layers.size() + modules);
  for (std::optional<Result<FormatLayer>>& one : found) {
    if (one->ok()) {
      context.layers.push_back(std::move(*one).value());
    } else if (first.ok()) {
      first = one->status();
    }
  }
  return first;
}

}  // namespace swordfish
