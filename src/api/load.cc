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
    const float* device_bias = nullptr;
  };
  std::vector<Entry> weights;
  std::vector<LoadedTensor> tensors;
  std::vector<DeviceBuffer> device_memory;
};

sf_status sf_load(const char* path, const sf_load_options* options, sf_model** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("path, out", path, out));
    sf_load_options o;
    SF_TRY(read_struct(options, o));
    if (o.gptq_v1_zeros < SF_V1_REFUSE || o.gptq_v1_zeros > SF_V1_WORD)
      return invalid_argument("gptq_v1_zeros is {}", static_cast<int>(o.gptq_v1_zeros));
    LoadOptions load_options;
    if (o.device) {
      SF_ASSIGN(load_options.device, parse_device(o.device));
    }
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
      const bool on_gpu = !layer.device_weights.empty();
      for (std::size_t e = 0; e < std::max(layer.weights.size(), layer.device_weights.size()); ++e) {
        sf_model::Entry& entry = model->weights.emplace_back();
        entry.expert = layer.first_expert + static_cast<std::int64_t>(e);
        if (on_gpu) {
          entry.weight.gpu = std::move(layer.device_weights[e]);
          entry.weight.value.name = layer.name;
        } else {
          entry.weight.value = std::move(layer.weights[e]);
        }
        if (layer.bias.empty()) continue;
        const auto n = static_cast<std::size_t>(entry.weight.view().n);
        if (on_gpu) {
          entry.device_bias = layer.device_bias + e * n;
        } else {
          entry.bias.assign(layer.bias.data() + e * n, layer.bias.data() + (e + 1) * n);
        }
      }
    }
    model->tensors = std::move(loaded.tensors);
    model->device_memory = std::move(loaded.device_memory);
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
    if (bias) *bias = entry.bias.empty() ? entry.device_bias : entry.bias.data();
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
    info.data = t.device ? t.device : t.bytes.data();
    info.bytes = t.info.bytes;
    return write_struct(info, out);
  });
}
