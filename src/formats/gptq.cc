// GPTQ checkpoints, and auto-round's in GPTQ packing (formats.md 2). Tensors of one module, b = 4 or 8 bits, P = 32/b:
//
//   <module>.qweight  I32 [ceil(K/P), N]   q[n,k] at bits b·(k%P) of word [k/P][n]; lanes past K are 0
//   <module>.qzeros   I32 [G, ceil(N/P)]   stored zero of (n, j) at bits b·(n%P) of word [j][n/P]; v1: zero - 1, v2: zero
//   <module>.scales   F16|BF16|F32 [G, N]
//   <module>.g_idx    I32 [K]              scale row of each k; optional; all -1: not initialised. The only place that states K
//   <module>.bias     F16|BF16|F32 [N]     optional
//
// G = ceil(K/group_size), or 1 for group_size -1; w[n,k] = scales[g(k)][n] · (q[n,k] - zero[g(k)][n]). Whether g_idx says more than
// k / group_size is decided by its contents, never by desc_act.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/config.h"
#include "formats/format.h"
#include "formats/gptq_rules.h"
#include "formats/gptq_zeros.h"
#include "formats/tensors.h"
#include "formats/word_codes.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

constexpr std::string_view kGptqFormats = "gptq, gptq_v2, gptq_p";
// A tensor with such a name makes its module a quantized one.
constexpr std::array<std::string_view, 4> kGptqLeaves = {".qweight", ".qzeros", ".scales", ".g_idx"};
constexpr std::int64_t kMaxK = std::numeric_limits<std::int32_t>::max();

// Tensors by value, so that a layer does not depend on where the container keeps them.
struct GptqLoader {
  std::shared_ptr<const Container> container;
  LayerInfo info;
  int bits;
  GptqZeroRule zero_rule;
  Tensor qweight, qzeros, scales;
  std::optional<Tensor> g_idx;

  Result<QuantTensor> operator()(std::int64_t expert) const {
    if (expert != 0) return invalid_argument("{}: expert {} of a plain matrix", printable(info.name), expert);
    QuantTensor t;
    t.name = info.name;
    t.n = info.n;
    t.k = info.k;
    t.code = info.code;
    t.group_size = info.group_size;
    t.rows = (info.k + info.group_size - 1) / info.group_size;
    if (g_idx) SF_TRY(read_groups(t));

    SF_ASSIGN(Buffer words, container->read(qweight));
    SF_TRY(check_unused_lanes(words));
    t.codes = gptq_codes(std::make_shared<const Buffer>(std::move(words)), 0, info.n, bits);

    SF_ASSIGN(Buffer scale_data, container->read(scales));
    SF_TRY(check_scales(*container, scales, scale_data.data(), static_cast<std::uint64_t>(t.rows * info.n), scales.dtype));
    auto kept_scales = std::make_shared<const Buffer>(std::move(scale_data));
    const std::int64_t size = swordfish::bits(scales.dtype) / 8;
    t.scales = {scales.dtype, kept_scales->data(), size, size * info.n};
    t.keep_alive.push_back(std::move(kept_scales));

    SF_ASSIGN(const Buffer zero_words, container->read(qzeros));
    SF_ASSIGN(GptqZeros zeros, decode_gptq_zeros(*container, qzeros, zero_words.data(), t.rows, info.n, bits, zero_rule));
    t.zero = zeros.constant;
    t.note = std::move(zeros.note);
    if (!zeros.plane.empty()) {
      auto plane = std::make_shared<const Buffer>(std::move(zeros.plane));
      const std::int64_t zero_size = zeros.type == DType::i16 ? 2 : 1;
      t.zeros = {zeros.type, plane->data(), zero_size, zero_size * info.n};
      t.keep_alive.push_back(std::move(plane));
    }
    return t;
  }

  // Row 38. Leaves row_of_k empty when g_idx is k / group_size or a placeholder.
  Status read_groups(QuantTensor& t) const {
    SF_ASSIGN(const Buffer data, container->read(*g_idx));
    std::vector<std::int32_t> rows(static_cast<std::size_t>(info.k));
    std::memcpy(rows.data(), data.data(), data.size());
    if (std::all_of(rows.begin(), rows.end(), [](std::int32_t row) { return row == -1; })) return {};
    bool trivial = true;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] < 0 || rows[k] >= t.rows) {
        return malformed("{}: tensor '{}': g_idx value {} at index {} is out of range; expected 0..{} (G = {} groups)",
                         container->path_of(*g_idx), printable(g_idx->name), rows[k], k, t.rows - 1, t.rows);
      }
      trivial = trivial && rows[k] == static_cast<std::int64_t>(k) / info.group_size;
    }
    if (!trivial) t.row_of_k = std::move(rows);
    return {};
  }

  // A K that is no multiple of P is stated by g_idx alone; lanes past it must be empty, or g_idx is too short.
  Status check_unused_lanes(const Buffer& words) const {
    const auto used = static_cast<unsigned>(info.k % (32 / bits));
    if (used == 0) return {};
    const std::byte* last = words.data() + (words.size() - static_cast<std::size_t>(4 * info.n));
    for (std::int64_t n = 0; n < info.n; ++n) {
      const auto word = load_unaligned<std::uint32_t>(last + 4 * n);
      if (word >> (static_cast<unsigned>(bits) * used) == 0) continue;
      return malformed(
          "{}: tensor '{}': g_idx has length {}, but qweight holds codes beyond it (word 0x{:08x} of its last row, column {})",
          container->path_of(*g_idx), printable(g_idx->name), info.k, word, n);
    }
    return {};
  }
};

// The value of checkpoint_format / format, or of auto-round's packing_format.
Result<GptqVersion> read_version(const Config& config) {
  if (config.method == "auto-round") {
    SF_ASSIGN(const auto packing, config_string(config, {"packing_format"}));
    const std::string value = packing ? ascii_lower(packing->value) : "auto_round:auto_gptq";
    return value == "auto_round:auto_gptq" ? GptqVersion::v1 : GptqVersion::v2;
  }
  SF_ASSIGN(const auto format, config_string(config, {"checkpoint_format", "format"}));
  const std::string value = format ? ascii_lower(format->value) : "gptq";
  if (value == "gptq") return GptqVersion::v1;
  if (value == "gptq_v2" || value == "gptq_p") return GptqVersion::v2;
  return unsupported("{}: checkpoint_format '{}' is not supported; supported: {}", format->where, printable(value), kGptqFormats);
}

// Writers that subtract 0x11111111 from whole words: GPTQModel, by meta.quantizer, and auto-round, by its method or version key.
Result<bool> is_word_wise(const Config& config) {
  if (config.method == "auto-round") return true;
  SF_ASSIGN(const auto version, config_value(config, {"autoround_version", "auto_round_version"}));
  if (version) return true;
  SF_ASSIGN(const auto meta, config_value(config, {"meta"}));
  if (!meta || !meta->value.is_object()) return false;
  SF_ASSIGN(const auto quantizer, get_value(meta->value, "quantizer", meta->where));
  if (!quantizer) return false;
  const std::string text = ascii_lower(simdjson::minify(*quantizer));
  return text.find("gptqmodel") != std::string::npos || text.find("auto-round") != std::string::npos ||
         text.find("auto_round") != std::string::npos;
}

struct GptqReader {
  FormatContext& context;
  const Container& container;
  const GptqRules& rules;
  GptqZeroRule zero_rule;

  Result<FormatLayer> layer(const std::string& module) const {
    const std::string leaf[] = {module + ".qweight", module + ".qzeros", module + ".scales", module + ".g_idx"};
    SF_ASSIGN(const GptqParams params, rules.of(module));
    const Tensor* found[3];
    for (int i = 0; i < 3; ++i) {
      SF_ASSIGN(found[i], require_tensor(container, module, leaf[i], {leaf[0], leaf[1], leaf[2], leaf[3]}));
    }
    const Tensor &qweight = *found[0], &qzeros = *found[1], &scales = *found[2];
    const Tensor* g_idx = container.find(leaf[3]);
    if (params.excluded) {
      return malformed("{}: module '{}' has a quantized weight, but {} excludes it", container.path_of(qweight), printable(module),
                       params.source);
    }
    SF_TRY(require_type(container, qweight, {DType::i32}));
    SF_TRY(require_type(container, qzeros, {DType::i32}));
    SF_TRY(require_type(container, scales, {DType::f16, DType::bf16, DType::f32}));
    if (qweight.shape.size() != 2 || qweight.shape[0] < 1 || qweight.shape[1] < 1 || qweight.shape[0] > kMaxK / 8 ||
        qweight.shape[1] > kMaxK) {
      return malformed("{}: tensor '{}': wrong shape: expected [K/{}, N], found {}", container.path_of(qweight), printable(leaf[0]),
                       32 / params.bits, shape_text(qweight.shape));
    }
    LayerInfo info;
    info.name = module;
    info.weight_name = module + ".weight";
    info.scheme = context.config->method == "auto-round" ? "auto-round gptq" : "gptq";
    if (zero_rule.version == GptqVersion::v2) info.scheme += "_v2";
    info.code = params.bits == 4 ? CodeType::int4 : CodeType::int8;
    info.n = qweight.shape[1];
    SF_ASSIGN(info.k, find_k(module, params, qweight, g_idx));
    info.group_size = params.group_size == -1 ? info.k : std::min(params.group_size, info.k);
    info.act_order = params.act_order;
    info.k_first = true;
    info.zero = params.sym.value_or(false) ? ZeroKind::constant : ZeroKind::integers;
    info.scale_type = scales.dtype;
    const std::int64_t groups = (info.k + info.group_size - 1) / info.group_size;
    const std::int64_t per_word = 32 / params.bits;
    const std::string rows = fmt::format("G = ceil(K / group_size) = ceil({} / {})", info.k, params.group_size);
    SF_TRY(require_shape(container, scales, {groups, info.n}, fmt::format("[{}, N]", rows)));
    SF_TRY(require_shape(container, qzeros, {groups, (info.n + per_word - 1) / per_word},
                         fmt::format("[{}, ceil(N / {})]", rows, per_word)));
    SF_TRY(find_bias(container, module + ".bias", info));
    list_tensors(container, {&qweight, &qzeros, &scales, g_idx}, info);
    GptqZeroRule zeros = zero_rule;
    zeros.sym = params.sym;
    GptqLoader loader{context.container,
                      info,
                      static_cast<int>(params.bits),
                      zeros,
                      qweight,
                      qzeros,
                      scales,
                      g_idx ? std::optional<Tensor>(*g_idx) : std::nullopt};
    return FormatLayer{std::move(info), std::move(loader)};
  }

  Result<std::int64_t> find_k(const std::string& module, const GptqParams& params, const Tensor& qweight,
                              const Tensor* g_idx) const {
    const std::int64_t per_word = 32 / params.bits, rows = qweight.shape[0];
    if (!g_idx) return per_word * rows;
    SF_TRY(require_type(container, *g_idx, {DType::i32}));
    if (g_idx->shape.size() == 1 && (g_idx->shape[0] + per_word - 1) / per_word == rows) return g_idx->shape[0];
    return malformed("{}: tensor '{}': wrong shape {} of g_idx: expected [K = {}], since qweight of module '{}' is {} with bits {}",
                     container.path_of(*g_idx), printable(g_idx->name), shape_text(g_idx->shape), per_word * rows,
                     printable(module), shape_text(qweight.shape), params.bits);
  }
};

// Tensors of relatives that the configuration failed to mention (rows 23 and 31).
Status check_foreign(const Container& container) {
  for (const Tensor& tensor : container.tensors) {
    const std::string_view name = tensor.name;
    if (name.ends_with(".B_24") || name.ends_with(".B_meta")) {
      return unsupported("{}: tensor '{}': 2:4 sparse weights (gptq_marlin_24) are not supported; supported: {}",
                         container.path_of(tensor), printable(name), kGptqFormats);
    }
    if (name.find(".lora_A") != std::string_view::npos || name.find(".eora") != std::string_view::npos) {
      return unsupported("{}: tensor '{}': low-rank side tensors (adapter, EoRA) are not supported", container.path_of(tensor),
                         printable(name));
    }
  }
  return {};
}

}  // namespace

Status open_gptq(FormatContext& context) {
  const Config& config = *context.config;
  const Container& container = *context.container;
  SF_ASSIGN(const GptqVersion version, read_version(config));
  SF_TRY(check_gptq_extras(config));
  SF_TRY(check_foreign(container));
  SF_ASSIGN(const GptqRules rules, GptqRules::read(config, {4, 8}));
  SF_ASSIGN(const bool word_wise, is_word_wise(config));
  const GptqReader reader{context, container, rules, {version, word_wise, std::nullopt, context.options.gptq_v1_zeros}};

  const std::vector<std::string> modules = modules_with(container, kGptqLeaves);
  SF_TRY(add_layers(context, modules.size(), [&](std::size_t i) { return reader.layer(modules[i]); }));
  return rules.check_plain(container, modules, [](std::string_view) { return false; });
}

}  // namespace swordfish
