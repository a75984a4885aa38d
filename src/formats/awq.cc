// AWQ checkpoints in `gemm` packing, by AutoAWQ, GPTQModel or auto-round (formats.md 3). Tensors of one module:
//
//   <module>.qweight  I32 [K, N/8]       column 8c + {0,2,4,6,1,3,5,7}[i] of row k at bits 4i of word [k][c]
//   <module>.qzeros   I32 [K/g, N/8]     zero points in the same order, stored as they are
//   <module>.scales   F16|BF16 [K/g, N]
//   <module>.bias     F16|BF16 [N]       optional
//
// w[n,k] = scales[k/g][n] · (q[n,k] - zero[k/g][n]). qzeros may be absent only when zero_point is false; then every zero is 8.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/config.h"
#include "formats/format.h"
#include "formats/fused.h"
#include "formats/gptq_rules.h"
#include "formats/tensors.h"
#include "formats/word_codes.h"

namespace swordfish {
namespace {

constexpr std::array<std::string_view, 3> kAwqLeaves = {".qweight", ".qzeros", ".scales"};  // make a module a quantized one
constexpr std::int64_t kMaxAwqDim = std::numeric_limits<std::int32_t>::max() / 8;
constexpr std::uint8_t kSymmetric = 8;

struct AwqLoader {
  std::shared_ptr<const Container> container;
  LayerInfo info;
  Tensor qweight, scales;
  std::optional<Tensor> qzeros;
  bool symmetric;  // as the configuration says; zero points that are not all 8 are used all the same

  Result<QuantTensor> operator()(std::int64_t expert) const {
    if (expert != 0) return invalid_argument("{}: expert {} of a plain matrix", printable(info.name), expert);
    QuantTensor t;
    t.name = info.name;
    t.n = info.n;
    t.k = info.k;
    t.code = CodeType::int4;
    t.group_size = info.group_size;
    t.rows = info.k / info.group_size;
    t.zero = kSymmetric;

    SF_ASSIGN(Buffer words, container->read(qweight));
    t.codes = awq_codes(std::make_shared<const Buffer>(std::move(words)), 0, info.n);

    SF_ASSIGN(Buffer scale_data, container->read(scales));
    SF_TRY(check_scales(*container, scales, scale_data.data(), static_cast<std::uint64_t>(t.rows * info.n), scales.dtype));
    auto kept_scales = std::make_shared<const Buffer>(std::move(scale_data));
    const std::int64_t size = bits(scales.dtype) / 8;
    t.scales = {scales.dtype, kept_scales->data(), size, size * info.n};
    t.keep_alive.push_back(std::move(kept_scales));

    if (!qzeros) return t;
    SF_ASSIGN(const Buffer zero_words, container->read(*qzeros));
    auto zeros = std::make_shared<Buffer>(static_cast<std::size_t>(t.rows * info.n));
    unpack_words(zero_words.data(), t.rows, info.n / 8, info.n, 4, kAwqLane, 0, zeros->as<std::uint8_t>());
    const std::uint8_t* first = zeros->as<std::uint8_t>();
    if (symmetric && std::all_of(first, first + zeros->size(), [](std::uint8_t zero) { return zero == kSymmetric; })) return t;
    t.zeros = {DType::u8, zeros->data(), 1, info.n};
    t.keep_alive.push_back(std::move(zeros));
    return t;
  }
};

// Row 23: what `version`, `format` and `backend` say about the packing.
Status check_packing(const Config& config) {
  SF_ASSIGN(const auto backend, config_string(config, {"backend"}));
  if (backend && ascii_iequals(backend->value, "llm-awq")) {
    return unsupported("{}: backend 'llm-awq' has a packing of its own, which is not supported; supported: autoawq",
                       backend->where);
  }
  for (const std::string_view key : {"version", "checkpoint_format", "format"}) {
    if (config.method != "awq") break;  // auto-round names its packing elsewhere
    SF_ASSIGN(const auto value, config_string(config, {key}));
    if (!value || ascii_iequals(value->value, "gemm") || ascii_iequals(value->value, "exllama")) continue;
    return unsupported("{}: AWQ {} '{}' is not supported; supported: gemm, exllama", value->where, key, printable(value->value));
  }
  return {};
}

Result<std::vector<std::string>> excluded_modules(const Config& config) {
  SF_ASSIGN(const auto list, config_value(config, {"modules_to_not_convert"}));
  if (!list) return std::vector<std::string>();
  return string_list(list->value, "modules_to_not_convert", list->where);
}

// zero_point, or what auto-round states instead (sym).
Result<bool> needs_zeros(const Config& config) {
  SF_ASSIGN(const auto zero_point, config_bool(config, {"zero_point"}));
  if (zero_point) return zero_point->value;
  SF_ASSIGN(const auto sym, config_bool(config, {"sym"}));
  return sym && !sym->value;
}

// AWQ has no g_idx (formats.md 3.2). Some writers leave one behind, mostly all zeros; it is not read, and one that means something
// would say that the file is another format's.
void warn_about_g_idx(const Container& container, const std::vector<std::string>& modules, std::vector<Warning>& warnings) {
  const Tensor* first = nullptr;
  std::size_t count = 0;
  for (const std::string& module : modules) {
    const Tensor* g_idx = container.find(module + ".g_idx");
    if (!g_idx) continue;
    if (count++ == 0) first = g_idx;
  }
  if (count == 0) return;
  warnings.push_back(fmt::format("{}, {}: AWQ has no g_idx: {} ignored", container.path_of(*first), printable(first->name),
                                 count == 1 ? "the tensor is" : fmt::format("it and {} more such tensors are", count - 1)));
}

struct AwqReader {
  FormatContext& context;
  const Container& container;
  const GptqRules& rules;
  const std::vector<std::string>& excluded;
  bool zeros_needed;

  Result<FormatLayer> layer(const std::string& module) const {
    const std::string leaf[] = {module + ".qweight", module + ".qzeros", module + ".scales"};
    const auto require = [&](const std::string& name) {
      return require_tensor(container, module, name, {leaf[0], leaf[1], leaf[2]});
    };
    SF_ASSIGN(const GptqParams params, rules.of(module));
    SF_ASSIGN(const Tensor* qweight, require(leaf[0]));
    SF_ASSIGN(const Tensor* scales, require(leaf[2]));
    const Tensor* qzeros = container.find(leaf[1]);
    if (!qzeros && zeros_needed) {
      SF_ASSIGN(qzeros, require(leaf[1]));
    }
    // A substring may hit by accident ("gate" in "gate_proj"); whole components do not.
    const bool listed = substring_match(excluded, module) == SubstringMatch::whole && !tensors_decide(module);
    if (params.excluded || listed) {
      return malformed("{}: module '{}' has a quantized weight, but {} excludes it", container.path_of(*qweight), printable(module),
                       listed ? "modules_to_not_convert" : params.source);
    }
    SF_TRY(require_type(container, *qweight, {DType::i32}));
    SF_TRY(require_type(container, *scales, {DType::f16, DType::bf16}));
    const auto& shape = qweight->shape;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMaxAwqDim || shape[1] > kMaxAwqDim) {
      return malformed("{}: tensor '{}': wrong shape: expected [K, N/8], found {}", container.path_of(*qweight), printable(leaf[0]),
                       shape_text(shape));
    }
    LayerInfo info;
    info.name = module;
    info.weight_name = module + ".weight";
    info.scheme = context.config->method == "auto-round" ? "auto-round awq" : "awq";
    info.code = CodeType::int4;
    info.k = shape[0];
    info.n = 8 * shape[1];
    info.k_first = true;
    info.group_size = params.group_size == -1 ? info.k : params.group_size;
    info.zero = zeros_needed ? ZeroKind::integers : ZeroKind::constant;
    info.scale_type = scales->dtype;
    if (info.k % info.group_size != 0) {
      return malformed("{}: module '{}': K = {} (rows of qweight) is not a multiple of group_size {}", container.path_of(*qweight),
                       printable(module), info.k, info.group_size);
    }
    const std::int64_t groups = info.k / info.group_size;
    const std::string rows = fmt::format("K / group_size = {} / {}", info.k, info.group_size);
    SF_TRY(require_shape(container, *scales, {groups, info.n}, fmt::format("[{}, N]", rows)));
    if (qzeros) {
      SF_TRY(require_type(container, *qzeros, {DType::i32}));
      SF_TRY(require_shape(container, *qzeros, {groups, info.n / 8}, fmt::format("[{}, N / 8]", rows)));
    }
    SF_TRY(find_bias(container, module + ".bias", info));
    list_tensors(container, {qweight, qzeros, scales}, info);
    AwqLoader loader{context.container, info, *qweight, *scales, qzeros ? std::optional<Tensor>(*qzeros) : std::nullopt,
                     !zeros_needed};
    return FormatLayer{std::move(info), std::move(loader)};
  }
};

}  // namespace

Status open_awq(FormatContext& context) {
  const Config& config = *context.config;
  const Container& container = *context.container;
  SF_TRY(check_packing(config));
  SF_TRY(check_gptq_extras(config));
  SF_ASSIGN(const GptqRules rules, GptqRules::read(config, {4}));
  SF_ASSIGN(const std::vector<std::string> excluded, excluded_modules(config));
  SF_ASSIGN(const bool zeros_needed, needs_zeros(config));
  const AwqReader reader{context, container, rules, excluded, zeros_needed};

  const std::vector<std::string> modules = modules_with(container, kAwqLeaves);
  warn_about_g_idx(container, modules, context.warnings);
  SF_TRY(add_layers(context, modules.size(), [&](std::size_t i) { return reader.layer(modules[i]); }));
  return rules.check_plain(container, modules,
                           [&](std::string_view module) { return substring_match(excluded, module) != SubstringMatch::none; });
}

}  // namespace swordfish
