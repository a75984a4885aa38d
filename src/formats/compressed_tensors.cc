// compressed-tensors checkpoints (formats.md 4, 5.3, 6.3). Tensors of one module, b = 4 or 8 bits, P = 32/b; stacked experts put a
// dimension E in front of every shape:
//
//   pack-quantized        .weight_packed        I32 [N, ceil(K/P)]   q[n,k] at bits b·(k%P) of word [n][k/P], offset by 2^(b-1)
//                         .weight_scale         F16|BF16|F32 [N, G]  G = K/group_size; [N, 1] for channel
//                         .weight_zero_point    I32 [ceil(N/P), G]   packed along N, same offset; or I8 [N, G], signed (old)
//                         .weight_shape         I64|I32 {N, K}       what N and K are; the packed width is only rounded up
//                         .weight_g_idx         I32 [K]              actorder "group" only; all -1: not initialised
//   int-, naive-quantized .weight               I8 [N, K]            signed, within b bits
//                         .weight_scale         [N, G], [N, 1], or [1] for strategy tensor
//                         .weight_zero_point    I8, shape of the scale
//   nvfp4-pack-quantized  .weight_packed        U8 [N, K/2]          e2m1, low nibble = even k
//                         .weight_scale         F8_E4M3 [N, K/16]
//                         .weight_global_scale  F32 [1]              a divisor
//   mxfp4-pack-quantized  .weight_packed        U8 [N, K/2]
//                         .weight_scale         U8|F8_E8M0 [N, K/32] e8m0
//
// Which modules are quantized is decided by these tensors; the configuration must not contradict them.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/ct_integers.h"
#include "formats/ct_scheme.h"
#include "formats/fp4.h"
#include "formats/fused.h"
#include "formats/tensors.h"

namespace swordfish {
namespace {

constexpr std::int64_t kMaxCtDim = std::numeric_limits<std::int32_t>::max();
constexpr std::array<std::string_view, 6> kMarkers = {".weight_packed",     ".weight_scale", ".weight_shape",
                                                      ".weight_zero_point", ".weight_g_idx", ".weight_global_scale"};

struct CtReader {
  FormatContext& context;
  const Container& container;
  const CtConfig& rules;

  Result<const Tensor*> require(const std::string& module, std::string_view leaf) const {
    return require_tensor(container, module, fmt::format("{}{}", module, leaf),
                          {module + ".weight", module + ".weight_packed", module + ".weight_scale", module + ".weight_shape",
                           module + ".weight_zero_point", module + ".weight_g_idx", module + ".weight_global_scale"});
  }
  const Tensor* optional(const std::string& module, std::string_view leaf) const {
    return container.find(fmt::format("{}{}", module, leaf));
  }
  // A leaf that the module's format does not know: what it would mean is not what would be read.
  Status refuse(const std::string& module, std::string_view leaf, const CtScheme& scheme) const {
    const Tensor* tensor = optional(module, leaf);
    if (!tensor) return {};
    return malformed("{}: unexpected tensor '{}': format {} with these arguments has none", container.path_of(*tensor),
                     printable(tensor->name), scheme.format_name);
  }

  Result<FormatLayer> layer(const std::string& module) const {
    SF_ASSIGN(const CtConfig::Match match, rules.find(module));
    SF_ASSIGN(const bool ignored, rules.ignores(module));
    const auto leaf = [&](std::string_view name) { return optional(module, name) != nullptr; };
    const std::string_view found = *std::find_if(kMarkers.begin(), kMarkers.end(), leaf);
    const Tensor& example = *optional(module, found);
    if (ignored && !tensors_decide(module)) {
      return malformed("{}: module '{}' has quantized tensors ('{}'), but the ignore list excludes it", container.path_of(example),
                       printable(module), printable(example.name));
    }
    if (!match.scheme) {
      return malformed("{}: module '{}' has quantized tensors ('{}'), but no config group targets it", container.path_of(example),
                       printable(module), printable(example.name));
    }
    const CtScheme& scheme = *match.scheme;
    switch (scheme.format) {
      case CtFormat::pack: return packed_layer(module, scheme);
      case CtFormat::integer: return integer_layer(module, scheme);
      case CtFormat::nvfp4:
      case CtFormat::mxfp4: return fp4(module, scheme);
    }
    return Status(Code::internal, "unknown compressed-tensors format");
  }

  // Names, sizes and the bias, once n, k and experts are known.
  Status finish_info(LayerInfo& info, const std::string& module, const CtScheme& scheme) const {
    info.name = module;
    info.weight_name = module + ".weight";
    info.scheme = "compressed-tensors " + scheme.format_name;
    info.act_order = scheme.act_order;
    if (info.n < 1 || info.k < 1 || info.n > kMaxCtDim || info.k > kMaxCtDim) {
      return malformed("{}: module '{}': wrong shape [{}, {}]: expected N and K within 1..{}", container.path_of(*any(module)),
                       printable(module), info.n, info.k, kMaxCtDim);
    }
    info.group_size = scheme.strategy == CtStrategy::group ? scheme.group_size : info.k;
    if (info.k % info.group_size != 0) {
      return malformed("{}: module '{}': K = {} is not a multiple of group_size {}", container.path_of(*any(module)),
                       printable(module), info.k, info.group_size);
    }
    return find_bias(container, module + ".bias", info);
  }
  const Tensor* any(const std::string& module) const {
    const Tensor* packed = optional(module, ".weight_packed");
    return packed ? packed : optional(module, ".weight");
  }
  static std::vector<std::int64_t> with_experts(const LayerInfo& info, std::vector<std::int64_t> shape) {
    if (info.experts > 0) shape.insert(shape.begin(), info.experts);
    return shape;
  }
  // [N, ...] or [E, N, ...] of `tensor`; `last` is its last dimension.
  Status leading_shape(const Tensor& tensor, std::string_view formula, LayerInfo& info, std::int64_t& last) const {
    const auto& shape = tensor.shape;
    if ((shape.size() != 2 && shape.size() != 3) || shape[0] < 1) {
      return malformed("{}: tensor '{}': wrong rank: expected {} or [E, ...], found {}", container.path_of(tensor),
                       printable(tensor.name), formula, shape_text(shape));
    }
    info.experts = shape.size() == 3 ? shape[0] : 0;
    info.n = shape[shape.size() - 2];
    last = shape.back();
    return {};
  }

  // weight_shape holds what the packed width cannot say, so these few bytes are read when the checkpoint is opened.
  Result<std::vector<std::int64_t>> read_shape(const Tensor& tensor, std::int64_t count) const {
    SF_TRY(require_type(container, tensor, {DType::i64, DType::i32}));
    SF_TRY(require_shape(container, tensor, {count}, "{N, K}, with E in front for experts"));
    std::array<std::byte, 24> raw{};
    SF_TRY(container.read(tensor, 0, static_cast<std::size_t>(tensor.bytes), raw.data()));
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (tensor.dtype == DType::i64) {
        std::memcpy(&values[i], raw.data() + 8 * i, 8);
      } else {
        std::int32_t value = 0;
        std::memcpy(&value, raw.data() + 4 * i, 4);
        values[i] = value;
      }
    }
    return values;
  }

  Result<FormatLayer> packed_layer(const std::string& module, const CtScheme& scheme) const {
    SF_ASSIGN(const Tensor* packed, require(module, ".weight_packed"));
    SF_ASSIGN(const Tensor* scales, require(module, ".weight_scale"));
    SF_ASSIGN(const Tensor* shape, require(module, ".weight_shape"));
    SF_TRY(refuse(module, ".weight_global_scale", scheme));
    SF_TRY(require_type(container, *packed, {DType::i32}));
    LayerInfo info;
    std::int64_t words = 0;
    const std::int64_t per_word = 32 / scheme.bits;
    SF_TRY(leading_shape(*packed, fmt::format("[N, ceil(K/{})]", per_word), info, words));
    SF_ASSIGN(std::vector<std::int64_t> stated, read_shape(*shape, static_cast<std::int64_t>(packed->shape.size())));
    info.k = stated.back();
    const bool width_fits = info.k >= 1 && info.k <= kMaxCtDim && (info.k + per_word - 1) / per_word == words;
    const std::vector<std::int64_t> front(packed->shape.begin(), packed->shape.end() - 1);
    const std::string stated_text = shape_text(stated);
    stated.pop_back();
    if (!width_fits || stated != front) {
      return malformed(
          "{}: tensor '{}': weight_shape is {}, which contradicts weight_packed {}: expected [N, ceil(K/{})] with num_bits {}",
          container.path_of(*shape), printable(shape->name), stated_text, shape_text(packed->shape), per_word, scheme.bits);
    }
    return integers(module, scheme, std::move(info), *packed, *scales, shape);
  }

  Result<FormatLayer> integer_layer(const std::string& module, const CtScheme& scheme) const {
    SF_ASSIGN(const Tensor* weight, require(module, ".weight"));
    SF_ASSIGN(const Tensor* scales, require(module, ".weight_scale"));
    SF_TRY(refuse(module, ".weight_packed", scheme));
    SF_TRY(refuse(module, ".weight_global_scale", scheme));
    SF_TRY(require_type(container, *weight, {DType::i8}));
    LayerInfo info;
    SF_TRY(leading_shape(*weight, "[N, K]", info, info.k));
    return integers(module, scheme, std::move(info), *weight, *scales, nullptr);
  }

  Result<FormatLayer> integers(const std::string& module, const CtScheme& scheme, LayerInfo info, const Tensor& weight,
                               const Tensor& scales, const Tensor* shape) const {
    SF_TRY(finish_info(info, module, scheme));
    info.code = scheme.bits == 4 ? CodeType::int4 : CodeType::int8;
    info.zero = scheme.symmetric ? ZeroKind::constant : ZeroKind::integers;
    info.scale_type = scales.dtype;
    const std::int64_t rows = info.k / info.group_size, per_word = 32 / scheme.bits;
    SF_TRY(require_type(container, scales, {DType::f16, DType::bf16, DType::f32}));
    const bool per_tensor = scheme.strategy == CtStrategy::tensor;
    const std::vector<std::int64_t> plane = per_tensor ? std::vector<std::int64_t>{1} : with_experts(info, {info.n, rows});
    const std::string formula =
        per_tensor ? std::string("[1]") : fmt::format("[N, K / group_size = {} / {}]", info.k, info.group_size);
    if (!(per_tensor && scales.shape.empty())) SF_TRY(require_shape(container, scales, plane, formula));

    CtIntegers layer;
    const Tensor* zeros = optional(module, ".weight_zero_point");
    if (!zeros && !scheme.symmetric) SF_TRY(require(module, ".weight_zero_point").status());
    if (zeros) {
      SF_TRY(require_type(container, *zeros,
                          scheme.format == CtFormat::pack ? std::initializer_list<DType>{DType::i32, DType::i8}
                                                          : std::initializer_list<DType>{DType::i8}));
      if (zeros->dtype == DType::i32) {
        SF_TRY(require_shape(container, *zeros, with_experts(info, {(info.n + per_word - 1) / per_word, rows}),
                             fmt::format("[ceil(N/{}), K / group_size]", per_word)));
      } else if (!(per_tensor && zeros->shape.empty())) {
        SF_TRY(require_shape(container, *zeros, plane, formula));
      }
      layer.zeros = *zeros;
    }
    const Tensor* g_idx = optional(module, ".weight_g_idx");
    if (!g_idx && scheme.act_order) SF_TRY(require(module, ".weight_g_idx").status());
    if (g_idx) {
      SF_TRY(require_type(container, *g_idx, {DType::i32}));
      if (g_idx->shape != std::vector<std::int64_t>{info.k}) {
        SF_TRY(require_shape(container, *g_idx, with_experts(info, {info.k}), "[K]"));
      }
      layer.g_idx = *g_idx;
    }
    list_tensors(container, {&weight, &scales, zeros, shape, g_idx}, info);
    layer.container = context.container;
    layer.info = info;
    layer.scheme = scheme;
    layer.weight = weight;
    layer.scales = scales;
    return FormatLayer{std::move(info), [layer](std::int64_t expert) { return load_ct_integers(layer, expert); }};
  }

  Result<FormatLayer> fp4(const std::string& module, const CtScheme& scheme) const {
    const bool nv = scheme.format == CtFormat::nvfp4;
    Fp4Matrix m;
    SF_ASSIGN(m.codes, require(module, ".weight_packed"));
    SF_ASSIGN(m.scales, require(module, ".weight_scale"));
    for (const std::string_view leaf : {".weight_zero_point", ".weight_g_idx"}) SF_TRY(refuse(module, leaf, scheme));
    if (nv) {
      SF_ASSIGN(m.global, require(module, ".weight_global_scale"));
      SF_TRY(require_type(container, *m.global, {DType::f32}));
    } else {
      SF_TRY(refuse(module, ".weight_global_scale", scheme));
    }
    SF_TRY(require_type(container, *m.codes, {DType::u8}));
    SF_TRY(nv ? require_type(container, *m.scales, {DType::f8_e4m3})
              : require_type(container, *m.scales, {DType::u8, DType::f8_e8m0}));
    std::int64_t half = 0;
    SF_TRY(leading_shape(*m.codes, "[N, K/2]", m.info, half));
    m.info.k = half > kMaxCtDim ? 0 : 2 * half;
    SF_TRY(finish_info(m.info, module, scheme));
    SF_TRY(require_shape(container, *m.scales, with_experts(m.info, {m.info.n, m.info.k / scheme.group_size}),
                         fmt::format("[N, K/{}]", scheme.group_size)));
    if (nv) {
      const auto& shape = m.global->shape;
      const bool one = shape.empty() || (shape.size() == 1 && shape[0] == 1);
      const bool each = m.info.experts > 0 && !shape.empty() && shape[0] == m.info.experts &&
                        std::all_of(shape.begin() + 1, shape.end(), [](std::int64_t d) { return d == 1; });
      if (!one && !each)
        SF_TRY(require_shape(container, *m.global, {std::max<std::int64_t>(1, m.info.experts)}, "one scalar element a matrix"));
    }
    m.scale_type = nv ? DType::f8_e4m3 : DType::f8_e8m0;
    m.global_op = Global::Op::divide;
    return fp4_layer(context.container, std::move(m));
  }

  // Row 33: a plain matrix that the configuration says is quantized: by its name; or by the class "Linear", when it is a projection
  // or its likes in other layers are quantized.
  Status check_plain(const std::unordered_set<std::string_view>& quantized) const {
    std::set<std::string, std::less<>> kinds;
    for (const std::string_view module : quantized) kinds.insert(module_kind(module));
    for (const Tensor& tensor : container.tensors) {
      const bool is_float = tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f32;
      if (!tensor.name.ends_with(".weight") || tensor.shape.size() != 2 || !is_float) continue;
      const std::string_view module = std::string_view(tensor.name).substr(0, tensor.name.size() - 7);
      if (quantized.contains(module) || tensors_decide(module)) continue;
      SF_ASSIGN(const bool ignored, rules.ignores(module));
      if (ignored) continue;
      SF_ASSIGN(const CtConfig::Match match, rules.find(module));
      if (!match.scheme) continue;
      if (!match.by_name && !known_linear(module) && !kinds.contains(module_kind(module))) continue;
      return malformed("{}: module '{}'{} should be quantized by {}, but has only a plain weight ({})", container.path_of(tensor),
                       printable(module), fused_note(module), match.where, name(tensor.dtype));
    }
    return {};
  }
};

}  // namespace

Status open_compressed_tensors(FormatContext& context) {
  SF_ASSIGN(const CtConfig rules, CtConfig::read(*context.config));
  const CtReader reader{context, *context.container, rules};
  const std::vector<std::string> modules = modules_with(*context.container, kMarkers);
  SF_TRY(add_layers(context, modules.size(), [&](std::size_t i) { return reader.layer(modules[i]); }));
  return reader.check_plain({modules.begin(), modules.end()});
}

}  // namespace swordfish
