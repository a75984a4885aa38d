// Checkpoint: finds out what a path holds, hands it to the reader of its format, and checks what concerns more than one module.
#include "swordfish/checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/agreement.h"
#include "checkpoint/container.h"
#include "checkpoint/projections.h"
#include "formats/config.h"
#include "formats/format.h"
#include "formats/gguf_names.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

constexpr std::string_view kMethods = "gptq, awq, auto-round, compressed-tensors, modelopt, mxfp4, GGUF files";

struct Dispatch {
  std::string_view scheme;
  Status (*open)(FormatContext&);
};

// formats.md 0.2; row 23.
Result<Dispatch> find_reader(const Config& config) {
  const std::string& method = config.method;
  if (method == "gptq") return Dispatch{"gptq", open_gptq};
  if (method == "awq") return Dispatch{"awq", open_awq};
  if (method == "compressed-tensors") return Dispatch{"compressed-tensors", open_compressed_tensors};
  if (method.starts_with("modelopt")) return Dispatch{"modelopt", open_modelopt};
  if (method == "mxfp4" || method == "fp8") return Dispatch{"mxfp4", open_mxfp4};
  if (method == "auto-round") {
    SF_ASSIGN(const auto packing, config_string(config, {"packing_format"}));
    const std::string value = packing ? ascii_lower(packing->value) : "auto_round:auto_gptq";
    if (value == "auto_round:auto_gptq" || value == "auto_round" || value == "auto_round:gptqmodel") {
      return Dispatch{"auto-round", open_gptq};
    }
    if (value == "auto_round:auto_awq") return Dispatch{"auto-round", open_awq};
    if (value == "auto_round:llm_compressor") return Dispatch{"auto-round", open_compressed_tensors};
    return unsupported(
        "{}: packing_format '{}' is not supported; supported: auto_round, auto_round:auto_gptq, auto_round:gptqmodel, "
        "auto_round:auto_awq, auto_round:llm_compressor",
        packing->where, printable(value));
  }
  return unsupported("{}: quant_method '{}' is not supported; supported: {}", where(config.sources.front()), printable(method),
                     kMethods);
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Result<bool> has_gguf_magic(const std::string& path) {
  SF_ASSIGN(const std::shared_ptr<const io::File> file, io::File::open(path));
  std::array<char, 4> magic{};
  if (file->size() < magic.size()) return false;
  SF_TRY(file->read(0, magic.size(), magic.data()));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

// The names of old GPTQ exports (formats.md 1.5): what the configuration says, and what its null stands for.
struct OldNames {
  std::string stated, standard;
};
Result<OldNames> old_names(const Config& config) {
  OldNames names;
  if (config.method != "gptq") return names;
  SF_ASSIGN(const auto stated, config_string(config, {"model_file_base_name"}));
  SF_ASSIGN(const auto bits, config_int(config, {"bits", "w_bit", "wbits"}));
  SF_ASSIGN(const auto group_size, config_int(config, {"group_size", "q_group_size"}));
  if (stated) names.stated = stated->value;
  if (bits && group_size) names.standard = fmt::format("gptq_model-{}bit-{}g", bits->value, group_size->value);
  return names;
}

}  // namespace

struct Checkpoint::Impl {
  std::string path;
  std::string scheme;
  Config config;
  FormatContext context;
  std::vector<LayerInfo> layers;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> unquantized;

  // Each of the three keeps what could be read; the Status says what is wrong.
  Status open(const OpenOptions& options);
  Status open_gguf_file();
  Status open_safetensors(const std::string& folder, const std::string& file);
  Status check_layers();
  void list();
};

Status Checkpoint::Impl::open(const OpenOptions& options) {
  context.options = options;
  context.container = std::make_shared<Container>();
  if (io::is_directory(path)) return open_safetensors(without_trailing_slashes(path), "");
  SF_ASSIGN(const bool gguf, has_gguf_magic(path));
  if (gguf || path.ends_with(".gguf")) return open_gguf_file();
  if (path.ends_with(".safetensors")) return open_safetensors(io::folder_of(path), path);
  return unsupported("{}: neither a folder, nor a .safetensors file, nor GGUF (no magic 'GGUF'); supported: {}", path, kMethods);
}

Status Checkpoint::Impl::open_gguf_file() {
  scheme = "gguf";
  SF_ASSIGN(Container container, open_gguf(path));
  context.container = std::make_shared<const Container>(std::move(container));
  SF_TRY(open_gguf_blocks(context));
  return check_layers();
}

Status Checkpoint::Impl::open_safetensors(const std::string& folder, const std::string& file) {
  Result<Config> read = read_config(folder);
  Result<OldNames> names = read.ok() ? old_names(*read) : Result<OldNames>(OldNames());
  Result<Container> container = !file.empty() ? open_safetensors_file(file)
                                : names.ok()  ? open_safetensors_folder(folder, names->stated, names->standard)
                                              : Result<Container>(names.status());
  const Status opened = container.status();
  if (opened.ok()) context.container = std::make_shared<const Container>(std::move(container).value());
  if (context.container->metadata.contains("swordfish.layout")) {
    return invalid_argument("{}: a file of packed weights, not a checkpoint", path);
  }
  SF_TRY(read.status());
  config = std::move(read).value();
  context.config = &config;
  scheme = config.method;
  SF_ASSIGN(const Dispatch reader, find_reader(config));
  scheme = reader.scheme;
  SF_TRY(opened);
  SF_TRY(reader.open(context));
  return check_layers();
}

Status Checkpoint::Impl::check_layers() {
  SF_TRY(check_doubles(*context.container, context.layers));
  SF_TRY(check_experts(*context.container, context.config, context.layers));
  find_projections(*context.container, context.config, context.layers);
  return link_fused(*context.container, context.config, context.layers);
}

// The public lists, from whatever the context holds; the layers' descriptions move into theirs.
void Checkpoint::Impl::list() {
  const Container& container = *context.container;
  layers.reserve(context.layers.size());
  for (FormatLayer& layer : context.layers) layers.push_back(std::move(layer.info));
  std::unordered_set<std::string_view> used;
  used.reserve(container.tensors.size());
  for (const LayerInfo& layer : layers) {
    used.insert(layer.name);
    used.insert(layer.tensors.begin(), layer.tensors.end());
    used.insert(layer.bias);
  }
  for (const std::string_view entry : context.not_packed) used.insert(entry.substr(0, entry.rfind(": ")));
  tensors.resize(container.tensors.size());
  std::vector<char> plain(tensors.size());  // belongs to no layer
  parallel_each(tensors.size(), 1024, [&](std::size_t i) {
    const Tensor& tensor = container.tensors[i];
    tensors[i] = {tensor.name, type_name(tensor), tensor.shape, container.path_of(tensor), tensor.offset, tensor.bytes};
    // A leaf that no reader needs, such as k_proj.k_scale, still belongs to its module.
    const std::string_view name = tensor.name;
    plain[i] = used.contains(name) || used.contains(name.substr(0, name.rfind('.'))) ? 0 : 1;
  });
  for (std::size_t i = 0; i < plain.size(); ++i)
    if (plain[i]) unquantized.push_back(tensors[i].name);
  context.warnings.insert(context.warnings.begin(), container.warnings.begin(), container.warnings.end());
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open_partial(const std::string& path, const OpenOptions& options, Status& problem) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  problem = impl->open(options);
  impl->list();
  return Checkpoint(std::move(impl));
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const OpenOptions& options) {
  Status problem;
  Checkpoint checkpoint = open_partial(path, options, problem);
  if (!problem.ok()) return problem;
  return checkpoint;
}

const std::string& Checkpoint::path() const { return impl_->path; }
const std::string& Checkpoint::scheme() const { return impl_->scheme; }
const std::vector<LayerInfo>& Checkpoint::layers() const { return impl_->layers; }
const std::vector<TensorInfo>& Checkpoint::tensors() const { return impl_->tensors; }
const std::vector<std::string>& Checkpoint::unquantized() const { return impl_->unquantized; }
const std::vector<std::string>& Checkpoint::not_packed() const { return impl_->context.not_packed; }
const std::vector<Warning>& Checkpoint::warnings() const { return impl_->context.warnings; }

namespace {

Status check_place(const std::vector<LayerInfo>& layers, std::size_t layer, std::int64_t expert) {
  if (layer >= layers.size()) return invalid_argument("layer {} of {}", layer, layers.size());
  const std::int64_t experts = std::max<std::int64_t>(1, layers[layer].experts);
  if (expert >= 0 && expert < experts) return {};
  return invalid_argument("{}: expert {} of {}", printable(layers[layer].name), expert, experts);
}

}  // namespace

Result<QuantTensor> Checkpoint::load(std::size_t layer, std::int64_t expert) const {
  SF_TRY(check_place(impl_->layers, layer, expert));
  return impl_->context.layers[layer].load(expert);
}

Result<Global> Checkpoint::load_global(std::size_t layer, std::int64_t expert) const {
  SF_TRY(check_place(impl_->layers, layer, expert));
  const LayerInfo& info = impl_->layers[layer];
  const Container& container = *impl_->context.container;
  for (const std::string& tensor_name : info.tensors) {
    const bool divide = tensor_name.ends_with("weight_global_scale");  // compressed-tensors; formats.md 5.3
    const bool multiply =
        tensor_name.ends_with("weight_scale_2") || (container.kind == Container::Kind::gguf && tensor_name.ends_with(".scale"));
    const Tensor* tensor = divide || multiply ? container.find(tensor_name) : nullptr;
    if (!tensor || tensor->dtype != DType::f32 || tensor->bytes < sizeof(float)) continue;
    const std::uint64_t at = tensor->bytes == sizeof(float) ? 0 : static_cast<std::uint64_t>(expert) * sizeof(float);
    Global global{1.0f, divide ? Global::Op::divide : Global::Op::multiply};
    SF_TRY(container.read(*tensor, at, sizeof(float), &global.value));
    return global;
  }
  return Global{};
}

Result<std::optional<std::vector<float>>> Checkpoint::load_bias(std::size_t layer, std::int64_t expert) const {
  SF_TRY(check_place(impl_->layers, layer, expert));
  const LayerInfo& info = impl_->layers[layer];
  if (info.bias.empty()) return std::optional<std::vector<float>>();
  const Container& container = *impl_->context.container;
  const Tensor* tensor = container.find(info.bias);
  if (!tensor) return malformed("{}: missing tensor '{}'", path(), printable(info.bias));
  std::vector<std::int64_t> expected = {info.n};
  if (info.experts > 0) expected.insert(expected.begin(), info.experts);
  if (tensor->shape != expected) {
    return malformed("{}: tensor '{}': wrong shape: expected {} (a bias), found {}", container.path_of(*tensor),
                     printable(tensor->name), shape_text(expected), shape_text(tensor->shape));
  }
  if (tensor->dtype != DType::f16 && tensor->dtype != DType::bf16 && tensor->dtype != DType::f32) {
    return malformed("{}: tensor '{}': wrong dtype: expected F16, BF16 or F32 (a bias), found {}", container.path_of(*tensor),
                     printable(tensor->name), type_name(*tensor));
  }
  const auto size = static_cast<std::size_t>(bits(tensor->dtype) / 8), count = static_cast<std::size_t>(info.n);
  Buffer raw(size * count);
  SF_TRY(container.read(*tensor, static_cast<std::uint64_t>(expert) * raw.size(), raw.size(), raw.data()));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = plane_value(tensor->dtype, raw.data() + i * size);
    if (std::isfinite(values[i])) continue;
    return malformed("{}: tensor '{}': bias at index {} is {}; expected a finite value", container.path_of(*tensor),
                     printable(tensor->name), static_cast<std::size_t>(expert) * count + i, std::isnan(values[i]) ? "NaN" : "Inf");
  }
  if (std::all_of(values.begin(), values.end(), [](float value) { return value == 0; })) return std::optional<std::vector<float>>();
  return std::optional(std::move(values));
}

Result<Buffer> Checkpoint::read(const TensorInfo& tensor) const {
  const Tensor* found = impl_->context.container->find(tensor.name);
  if (!found) return invalid_argument("{}: no tensor '{}'", path(), printable(tensor.name));
  return impl_->context.container->read(*found);
}

Checkpoint::HfName Checkpoint::hf_name(std::size_t layer) const {
  const LayerInfo& info = impl_->layers[layer];
  if (impl_->context.container->kind != Container::Kind::gguf) return {info.weight_name, {}};
  return gguf_hf_name(*impl_->context.container, info.weight_name, info.n);
}

}  // namespace swordfish
