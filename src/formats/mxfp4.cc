// MXFP4 checkpoints that are not ModelOpt's or compressed-tensors' (formats.md 6.2, 6.3): gpt-oss and DeepSeek-V4 experts.
//
//   gpt-oss    <name>_blocks     U8 [E, N, K/32, 16]   two e2m1 codes a byte, low nibble = even k; blocks and bytes flatten to K/2
//              <name>_scales     U8 [E, N, K/32]       e8m0
//              <name>_bias       BF16 [E, N]           optional
//              of the original release: <name>_weight.blocks, <name>_weight.scales, <name>_bias (block.0.mlp.mlp1)
//   DeepSeek   <expert>.weight   I8 [N, K/2]           raw bytes, pairs as above
//              <expert>.scale    F8_E8M0 [N, K/32]
//
// Rows of gate_up_proj (mlp1) stay interleaved, as they are stored: row 2i is gate i, row 2i+1 is up i.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/fp4.h"
#include "formats/fused.h"
#include "formats/tensors.h"

namespace swordfish {
namespace {

constexpr std::int64_t kBlock = 32;

// `stem` with "_blocks" and "_scales", or ".blocks" and ".scales" in the original names.
Result<FormatLayer> gptoss_layer(const FormatContext& context, const std::string& stem, char separator) {
  const Container& container = *context.container;
  const std::string blocks = stem + separator + "blocks", scales = stem + separator + "scales";
  Fp4Matrix m;
  SF_ASSIGN(m.codes, require_tensor(container, stem, blocks, {blocks, scales}));
  SF_ASSIGN(m.scales, require_tensor(container, stem, scales, {blocks, scales}));
  SF_TRY(require_type(container, *m.codes, {DType::u8}));
  SF_TRY(require_type(container, *m.scales, {DType::u8, DType::f8_e8m0}));
  const std::vector<std::int64_t>& shape = m.codes->shape;
  if (shape.size() != 4 || shape[3] != kBlock / 2 || shape[0] < 1) {
    return malformed("{}: tensor '{}': wrong shape: expected [E, N, K/32, 16], found {}", container.path_of(*m.codes),
                     printable(blocks), shape_text(shape));
  }
  SF_TRY(require_shape(container, *m.scales, {shape[0], shape[1], shape[2]}, "the shape of blocks without its last dimension"));
  m.info.experts = shape[0];
  m.info.n = shape[1];
  m.info.k = kBlock * shape[2];
  if (m.info.k == 0) return malformed("{}: tensor '{}': K is 0", container.path_of(*m.codes), printable(blocks));
  std::string name = stem;
  strip_suffix(name, "_weight");
  m.info.name = name;
  m.info.weight_name = stem;
  m.info.scheme = "mxfp4";
  m.info.group_size = kBlock;
  m.scale_type = DType::f8_e8m0;
  if (container.find(name + "_bias")) m.info.bias = name + "_bias";
  return fp4_layer(context.container, std::move(m));
}

Status open_gptoss(FormatContext& context) {
  struct Stack {
    std::string stem;
    char separator;
  };
  std::vector<Stack> stacks;
  std::set<std::string, std::less<>> seen;
  for (const Tensor& tensor : context.container->tensors) {
    std::string stem = tensor.name;
    const char separator = stem.ends_with(".blocks") || stem.ends_with(".scales") ? '.' : '_';
    if (!strip_suffix(stem, std::string(1, separator) + "blocks") && !strip_suffix(stem, std::string(1, separator) + "scales"))
      continue;
    if (seen.insert(stem).second) stacks.push_back({std::move(stem), separator});
  }
  if (stacks.empty()) {
    return malformed("{}: quant_method mxfp4, but no tensor named *_blocks or *_scales", context.config->folder);
  }
  return add_layers(context, stacks.size(),
                    [&](std::size_t i) { return gptoss_layer(context, stacks[i].stem, stacks[i].separator); });
}

Result<FormatLayer> deepseek_layer(const FormatContext& context, const std::string& module) {
  const Container& container = *context.container;
  const std::string weight = module + ".weight", scale = module + ".scale";
  Fp4Matrix m;
  SF_ASSIGN(m.codes, require_tensor(container, module, weight, {weight, scale}));
  SF_ASSIGN(m.scales, require_tensor(container, module, scale, {weight, scale}));
  SF_TRY(require_type(container, *m.codes, {DType::i8}));
  SF_TRY(require_type(container, *m.scales, {DType::f8_e8m0}));
  if (m.codes->shape.size() != 2) {
    return malformed("{}: tensor '{}': wrong rank: expected [N, K/2], found {}", container.path_of(*m.codes), printable(weight),
                     shape_text(m.codes->shape));
  }
  m.info.n = m.codes->shape[0];
  m.info.k = 2 * m.codes->shape[1];
  if (m.info.k == 0 || m.info.k % kBlock != 0) {
    return malformed("{}: module '{}': K = {} is not a positive multiple of the block size 32", container.path_of(*m.codes),
                     printable(module), m.info.k);
  }
  SF_TRY(require_shape(container, *m.scales, {m.info.n, m.info.k / kBlock}, "[N, K/32]"));
  m.info.name = module;
  m.info.weight_name = weight;
  m.info.scheme = "deepseek mxfp4";
  m.info.group_size = kBlock;
  m.scale_type = DType::f8_e8m0;
  return fp4_layer(context.container, std::move(m));
}

// quant_method fp8 with FP4 experts. The FP8 matrices beside them are listed, not read.
Status open_deepseek(FormatContext& context) {
  const Config& config = *context.config;
  std::string_view expert_type = "fp4";
  if (config.model) {
    SF_ASSIGN(const auto value, get_string(config.model->root(), "expert_dtype", config.model->what()));
    if (value) expert_type = *value;
  }
  if (!ascii_iequals(expert_type, "fp4")) {
    return unsupported("{}: quant_method fp8 with expert_dtype '{}'; supported: fp4", config.model->what(), printable(expert_type));
  }
  std::vector<std::string> modules;
  std::set<std::string, std::less<>> seen;
  for (const Tensor& tensor : context.container->tensors) {
    std::string module = tensor.name;
    if (!strip_suffix(module, ".weight") && !strip_suffix(module, ".scale")) continue;
    if (tensor.dtype == DType::f8_e4m3) {
      context.not_packed.push_back(fmt::format("{}: F8_E4M3", tensor.name));
      continue;
    }
    if (!expert_place(module) || (tensor.dtype != DType::i8 && tensor.dtype != DType::f8_e8m0)) continue;
    // An expert in FP8 has e8m0 scales too.
    if (const Tensor* weight = context.container->find(module + ".weight"); weight && weight->dtype == DType::f8_e4m3) continue;
    if (seen.insert(module).second) modules.push_back(std::move(module));
  }
  if (modules.empty()) {
    return unsupported("{}: quant_method fp8 without FP4 experts; FP8 weights are not supported", config.folder);
  }
  return add_layers(context, modules.size(), [&](std::size_t i) { return deepseek_layer(context, modules[i]); });
}

}  // namespace

Status open_mxfp4(FormatContext& context) {
  return context.config->method == "fp8" ? open_deepseek(context) : open_gptoss(context);
}

}  // namespace swordfish
