// The C ABI: whole models, loaded.
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "swordfish/load.h"

using namespace swordfish;
using namespace swordfish::api;

struct sf_model {
  struct Entry {
    sf_weight weight;
    std::int64_t expert = 0;
    std::vector<float> bias;
  };
  std::vector<Entry> weights;
  std::vector<LoadedTensor> tensors;
};

sf_status sf_load(const char* path, const sf_load_options* options, sf_model** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("path, out", path, out));
    sf_load_options o;
    SF_TRY(read_struct(options, o));
    if (o.gptq_v1_zeros < SF_V1_REFUSE || o.gptq_v1_zeros > SF_V1_WORD)
      return invalid_argument("gptq_v1_zeros is {}", static_cast<int>(o.gptq_v1_zeros));
    LoadOptions load_options;
    if (o.layout && o.layout != name(Layout::mma64_1)) {
      if (o.layout != name(Layout::sm1xx_blockscaled_1))
        return invalid_argument("layout '{}': expected {} or {}", o.layout, name(Layout::mma64_1),
                                name(Layout::sm1xx_blockscaled_1));
      load_options.layout = Layout::sm1xx_blockscaled_1;
    }
    if (o.layers) load_options.layers = o.layers;
    if (o.cache) load_options.cache = o.cache;
    load_options.fuse = o.fuse != 0;
    load_options.rank = o.rank;
    load_options.ranks = o.ranks == 0 ? 1 : o.ranks;
    load_options.whole_experts = o.whole_experts != 0;
    if (o.ring_bytes != 0) load_options.ring_bytes = o.ring_bytes;
    load_options.threads = o.threads;
    load_options.open.gptq_v1_zeros = static_cast<GptqV1Zeros>(o.gptq_v1_zeros);
    load_options.user = &o;
    if (o.progress) {
      load_options.progress = [](const LoadProgress& now, void* user) {
        const auto& caller = *static_cast<const sf_load_options*>(user);
        return caller.progress(now.packed, now.total, caller.user) != 0;
      };
    }
    SF_ASSIGN(LoadedModel loaded, load(path, load_options));
    auto model = std::make_unique<sf_model>();
    for (LoadedLayer& layer : loaded.layers) {
      for (std::size_t e = 0; e < layer.weights.size(); ++e) {
        sf_model::Entry& entry = model->weights.emplace_back();
        const auto n = static_cast<std::ptrdiff_t>(layer.weights[e].view.n);
        const auto begin = layer.bias.begin() + (layer.bias.empty() ? 0 : static_cast<std::ptrdiff_t>(e) * n);
        if (!layer.bias.empty()) entry.bias.assign(begin, begin + n);
        entry.expert = layer.first_expert + static_cast<std::int64_t>(e);
        entry.weight.value = std::move(layer.weights[e]);
      }
    }
    model->tensors = std::move(loaded.tensors);
    *out = model.release();
    return {};
  });
}
void sf_model_free(sf_model* model) { delete model; }
size_t sf_model_weight_count(const sf_model* model) { return model ? model->weights.size() : 0; }
sf_status sf_model_weight(const sf_model* model, size_t index, const sf_weight** weight, int64_t* expert, const float** bias) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("model, weight", model, weight));
    if (index >= model->weights.size()) return invalid_argument("weight {} of a model with {}", index, model->weights.size());
    const sf_model::Entry& entry = model->weights[index];
    *weight = &entry.weight;
    if (expert) *expert = entry.expert;
    if (bias) *bias = entry.bias.empty() ? nullptr : entry.bias.data();
    return {};
  });
}
size_t sf_model_tensor_count(const sf_model* model) { return model ? model->tensors.size() : 0; }
sf_status sf_model_tensor(const sf_model* model, size_t index, sf_tensor_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("model", model));
    if (index >= model->tensors.size()) return invalid_argument("tensor {} of a model with {}", index, model->tensors.size());
    const LoadedTensor& t = model->tensors[index];
    sf_tensor_info info{};
    info.name = t.info.name.c_str();
    info.type = t.info.type.c_str();
    info.shape = t.info.shape.data();
    info.rank = t.info.shape.size();
    info.data = t.bytes.data();
    info.bytes = t.bytes.size();
    return write_struct(info, out);
  });
}
