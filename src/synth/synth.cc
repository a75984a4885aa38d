// Lays the tensors of a family out in shards and writes them from the pools.
#include "synth/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/try.h"
#include "checkpoint/safetensors_writer.h"
#include "io/output_folder.h"
#include "quant/numeric.h"
#include "synth/values.h"

namespace swordfish {
namespace {

using Json = nlohmann::ordered_json;
using Pool = SynthPools::Pool;

constexpr std::int64_t kGroup = 128;  // of the integer schemes
constexpr std::int64_t kBlock = 16;   // of NVFP4

// One tensor to be written: from a pool, or a few bytes of its own.
struct Item {
  SafetensorsWriter::Entry entry;
  Pool pool = Pool::bf16_weights;
  std::vector<std::byte> literal;
  std::uint64_t bytes = 0;
};

std::vector<std::byte> raw(const void* data, std::size_t size) {
  std::vector<std::byte> out(size);
  std::memcpy(out.data(), data, size);
  return out;
}

class Builder {
 public:
  explicit Builder(const SynthOptions& options) : options_(options) {}

  void add(const SynthModule& module) {
    switch (module.kind) {
      case SynthModule::Kind::vector: return pooled(module.name, DType::bf16, {module.n}, Pool::bf16_weights);
      case SynthModule::Kind::plain_matrix:
        return pooled(module.name + ".weight", DType::bf16, {module.n, module.k}, Pool::bf16_weights);
      case SynthModule::Kind::linear: break;
    }
    const std::string& m = module.name;
    const std::int64_t n = module.n, k = module.k, groups = (k + kGroup - 1) / kGroup;
    switch (options_.scheme) {
      case SynthScheme::nvfp4:
        pooled(m + ".weight", DType::u8, {n, k / 2}, Pool::fp4_codes);
        pooled(m + ".weight_scale", DType::f8_e4m3, {n, k / kBlock}, Pool::e4m3_scales);
        number(m + ".weight_scale_2", {}, global(m));
        number(m + ".input_scale", {}, global(m) * 40);
        return;
      case SynthScheme::ct_nvfp4:
        pooled(m + ".weight_packed", DType::u8, {n, k / 2}, Pool::fp4_codes);
        pooled(m + ".weight_scale", DType::f8_e4m3, {n, k / kBlock}, Pool::e4m3_scales);
        number(m + ".weight_global_scale", {1}, 1 / global(m));
        number(m + ".input_global_scale", {1}, 1 / (global(m) * 40));
        return;
      case SynthScheme::gptq:
        pooled(m + ".qweight", DType::i32, {k / 8, n}, Pool::int4_codes);
        literal(m + ".qzeros", DType::i32, {groups, n / 8},
                std::vector<std::byte>(static_cast<std::size_t>(groups * n / 2), std::byte{0x77}));
        pooled(m + ".scales", DType::f16, {groups, n}, Pool::f16_scales);
        literal(m + ".g_idx", DType::i32, {k}, group_index(k));
        return;
      case SynthScheme::awq:
        pooled(m + ".qweight", DType::i32, {k, n / 8}, Pool::int4_codes);
        pooled(m + ".qzeros", DType::i32, {groups, n / 8}, Pool::int4_zeros);
        pooled(m + ".scales", DType::f16, {groups, n}, Pool::f16_scales);
        return;
      case SynthScheme::compressed_tensors: {
        pooled(m + ".weight_packed", DType::i32, {n, k / 8}, Pool::int4_codes);
        pooled(m + ".weight_scale", DType::bf16, {n, groups}, Pool::bf16_scales);
        const std::int64_t shape[2] = {n, k};
        literal(m + ".weight_shape", DType::i64, {2}, raw(shape, sizeof shape));
        return;
      }
    }
  }

  std::vector<Item> items;
  std::uint64_t bytes = 0;

 private:
  void push(std::string name, DType type, std::vector<std::int64_t> shape, Pool pool, std::vector<std::byte> own) {
    std::uint64_t size = static_cast<std::uint64_t>(bits(type)) / 8;
    for (const std::int64_t dim : shape) size *= static_cast<std::uint64_t>(dim);
    bytes += size;
    items.push_back({{std::move(name), type, std::move(shape)}, pool, std::move(own), size});
  }
  void pooled(std::string name, DType type, std::vector<std::int64_t> shape, Pool pool) {
    push(std::move(name), type, std::move(shape), pool, {});
  }
  void literal(std::string name, DType type, std::vector<std::int64_t> shape, std::vector<std::byte> own) {
    push(std::move(name), type, std::move(shape), Pool::bf16_weights, std::move(own));
  }
  void number(std::string name, std::vector<std::int64_t> shape, float value) {
    literal(std::move(name), DType::f32, std::move(shape), raw(&value, sizeof value));
  }
  // The multiplier of a module: another for each, and for up 1.2308 times that of its gate, as unequal exports have it.
  float global(std::string name) const {
    float ratio = 1;
    for (const auto& [up, gate] : {std::pair{".up_proj", ".gate_proj"}, std::pair{".w3", ".w1"}}) {
      if (!name.ends_with(up)) continue;
      name = name.substr(0, name.size() - std::strlen(up)) + gate;
      ratio = 1.2308f;
    }
    std::uint64_t hash = options_.seed + 1469598103934665603u;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return ratio * 1e-4f * std::exp2(static_cast<float>(hash >> 40) * 0x1p-24f * 3);
  }
  static std::vector<std::byte> group_index(std::int64_t k) {
    std::vector<std::int32_t> index(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / kGroup);
    return raw(index.data(), index.size() * sizeof(std::int32_t));
  }

  const SynthOptions& options_;
};

std::uint64_t bytes_of(const SynthOptions& options, const std::vector<SynthModule>& modules) {
  Builder builder(options);
  for (const SynthModule& module : modules) builder.add(module);
  return builder.bytes;
}

// Layers (and, below two of them, dimensions) for about options.bytes.
SynthShape choose_shape(const SynthOptions& options) {
  SynthShape shape = published_shape(options.model);
  if (options.bytes == 0) return shape;
  while (true) {
    const std::uint64_t outer = bytes_of(options, outer_modules(shape)),
                        layer = bytes_of(options, layer_modules(shape, shape.dense_layers));
    const std::uint64_t room = options.bytes > outer ? options.bytes - outer : 0;
    shape.layers = static_cast<std::int64_t>((room + layer / 2) / layer);
    if (shape.layers >= 2 || !halve(shape)) break;
  }
  shape.layers = std::max<std::int64_t>(shape.layers, 2);
  return shape;
}

Json weights_json(const char* type, std::int64_t group, const char* strategy) {
  return {{"num_bits", 4}, {"type", type}, {"symmetric", true}, {"strategy", strategy}, {"group_size", group}, {"dynamic", false}};
}

Json quantization(const SynthOptions& options, const SynthShape& shape) {
  Json routers = Json::array();
  routers.push_back("lm_head");
  if (shape.experts > 0) {
    for (std::int64_t l = shape.dense_layers; l < shape.layers; ++l)
      routers.push_back(fmt::format("model.layers.{}.{}.gate", l, shape.model == SynthModel::mixtral ? "block_sparse_moe" : "mlp"));
  }
  switch (options.scheme) {
    case SynthScheme::nvfp4:
      return {
          {"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"config_groups", {{"group_0", {{"weights", weights_json("float", kBlock, "tensor_group")}, {"targets", {"Linear"}}}}}},
          {"ignore", routers}};
    case SynthScheme::ct_nvfp4:
    case SynthScheme::compressed_tensors: {
      const bool fp4 = options.scheme == SynthScheme::ct_nvfp4;
      const char* format = fp4 ? "nvfp4-pack-quantized" : "pack-quantized";
      const Json weights = fp4 ? weights_json("float", kBlock, "tensor_group") : weights_json("int", kGroup, "group");
      return {{"quant_method", "compressed-tensors"},
              {"format", format},
              {"quantization_status", "compressed"},
              {"config_groups", {{"group_0", {{"format", format}, {"targets", {"Linear"}}, {"weights", weights}}}}},
              {"ignore", routers}};
    }
    case SynthScheme::gptq:
      return {{"quant_method", "gptq"}, {"bits", 4},   {"group_size", kGroup},
              {"desc_act", false},      {"sym", true}, {"checkpoint_format", "gptq"}};
    case SynthScheme::awq:
      return {{"quant_method", "awq"}, {"bits", 4},         {"group_size", kGroup},
              {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", routers}};
  }
  return {};
}

std::string text_of(const Json& json) { return json.dump(2) + "\n"; }

// The order of the safetensors library: wide types first, then by name.
bool file_order(const Item& a, const Item& b) {
  const auto rank = [](DType type) { return std::pair(-bits(type), static_cast<int>(type)); };
  if (rank(a.entry.dtype) != rank(b.entry.dtype)) return rank(a.entry.dtype) < rank(b.entry.dtype);
  return a.entry.name < b.entry.name;
}

class Writer {
 public:
  Writer(const SynthOptions& options, std::uint64_t total) : options_(options), pools_(options.seed), total_(total) {}

  Status shard(const std::string& path, const std::vector<Item>& items) {
    std::vector<SafetensorsWriter::Entry> entries;
    entries.reserve(items.size());
    for (const Item& item : items) entries.push_back(item.entry);
    SF_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, false, entries, {{"format", "pt"}}));
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      const std::uint64_t number = tensors_++;
      if (!item.literal.empty()) SF_TRY(writer.write(i, 0, item.literal.data(), item.literal.size()));
      for (std::uint64_t at = item.literal.size(); at < item.bytes;) {
        const std::span<const std::byte> bytes = pools_.bytes(item.pool, number, at, item.bytes - at);
        SF_TRY(writer.write(i, at, bytes.data(), bytes.size()));
        at += bytes.size();
        done_ += bytes.size();
        if (options_.progress != nullptr && !options_.progress(std::min(done_, total_), total_, options_.user))
          return {Code::cancelled, fmt::format("{}: writing was cancelled", path)};
      }
    }
    return writer.commit();
  }

 private:
  const SynthOptions& options_;
  SynthPools pools_;
  std::uint64_t total_, done_ = 0, tensors_ = 0;
};

}  // namespace

Result<SynthReport> synthesize(const std::string& out, const SynthOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SynthReport report;
  report.shape = choose_shape(options);
  Builder builder(options);
  for (const SynthModule& module : outer_modules(report.shape)) builder.add(module);
  for (std::int64_t l = 0; l < report.shape.layers; ++l)
    for (const SynthModule& module : layer_modules(report.shape, l)) builder.add(module);

  std::vector<std::vector<Item>> shards(1);
  std::uint64_t filled = 0;
  for (Item& item : builder.items) {
    if (filled > 0 && filled + item.bytes > options.shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += item.bytes;
    shards.back().push_back(std::move(item));
  }

  SF_ASSIGN(const auto folder, io::OutputFolder::create(out, false, {}));
  Writer writer(options, builder.bytes);
  Json map = Json::object();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    std::sort(shards[s].begin(), shards[s].end(), file_order);
    const std::string name =
        shards.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    for (const Item& item : shards[s]) map[item.entry.name] = name;
    SF_TRY(writer.shard(folder->file(name), shards[s]));
  }
  if (shards.size() > 1)
    SF_TRY(folder->write_text("model.safetensors.index.json",
                              text_of({{"metadata", {{"total_size", builder.bytes}}}, {"weight_map", map}})));
  Json config = model_config(report.shape);
  config["quantization_config"] = quantization(options, report.shape);
  SF_TRY(folder->write_text("config.json", text_of(config)));
  SF_TRY(folder->commit());
  report.bytes = builder.bytes;
  report.tensors = static_cast<std::int64_t>(builder.items.size());
  report.shards = static_cast<std::int64_t>(shards.size());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace swordfish
