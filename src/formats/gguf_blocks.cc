// GGUF block-quantized tensors as QuantTensors (formats.md 7.2-7.4). gguf_codes.cc has the byte specification of the blocks.
//
//   type        code  group  scale, per group                 zero / offset
//   Q4_0        int4   32    F16 d, in the block              8
//   Q4_1        int4   32    F16 d, in the block              offset F16 m, in the block
//   Q5_0        int8   32    F16 d, in the block              128 (codes are q + 112, true zero 16)
//   Q5_1        int8   32    F16 d, in the block              offset F16 m, in the block
//   Q8_0        int8   32    F16 d, in the block              128 (codes are q + 128)
//   Q4_K, Q5_K  int4/8 32    F32 d·sc, written anew           offset F32 −(dmin·m), written anew; both products are exact
//   Q6_K        int8   16    F32 d·sc, written anew (exact)   128 (codes are q + 96, true zero 32)
//   MXFP4       fp4    32    e8m0 e, in the block             -
//   NVFP4       fp4    16    e4m3, in the block               -; global from the F32 tensor <stem>.scale, one or one an expert
//
// d and dmin are F16. The twelve bytes b of Q4_K and Q5_K hold, for sub-block i < 4, sc = b[i] & 63 and m = b[i+4] & 63; for i ≥ 4
// sc = (b[i+4] & 15) | (b[i-4] >> 6) << 4 and m = (b[i+4] >> 4) | (b[i] >> 6) << 4.
// Rows are whole blocks, one after another; a 3-D tensor [E, N, K] is a stack of experts.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/format.h"
#include "formats/gguf_codes.h"
#include "formats/gguf_names.h"
#include "formats/tensors.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

struct BlockRule {
  GgufBlock type;
  CodeType code;
  std::int64_t group;
  DType scale_type;
  bool offsets;
  int scale_at;   // byte of the first scale in a block; -1: planes are written anew
  int offset_at;  // byte of the offset, or -1
};
constexpr BlockRule kRules[] = {
    {GgufBlock::q4_0, CodeType::int4, 32, DType::f16, false, 0, -1},
    {GgufBlock::q4_1, CodeType::int4, 32, DType::f16, true, 0, 2},
    {GgufBlock::q5_0, CodeType::int8, 32, DType::f16, false, 0, -1},
    {GgufBlock::q5_1, CodeType::int8, 32, DType::f16, true, 0, 2},
    {GgufBlock::q8_0, CodeType::int8, 32, DType::f16, false, 0, -1},
    {GgufBlock::q4_k, CodeType::int4, 32, DType::f32, true, -1, -1},
    {GgufBlock::q5_k, CodeType::int8, 32, DType::f32, true, -1, -1},
    {GgufBlock::q6_k, CodeType::int8, 16, DType::f32, false, -1, -1},
    {GgufBlock::mxfp4, CodeType::fp4, 32, DType::f8_e8m0, false, 0, -1},
    {GgufBlock::nvfp4, CodeType::fp4, 16, DType::f8_e4m3, false, 0, -1},
};

const BlockRule* find_rule(int type) {
  for (const BlockRule& rule : kRules) {
    if (static_cast<int>(rule.type) == type) return &rule;
  }
  return nullptr;
}

float f16_at(const std::byte* p) { return f16_to_f32(load_unaligned<std::uint16_t>(p)); }

// The scales (and offsets) of one Q4_K or Q5_K block: d, dmin and the twelve bytes lie at its start in both.
void expand_k45(const std::byte* block, float* scales, float* offsets) {
  const float d = f16_at(block), dmin = f16_at(block + 2);
  std::array<std::uint8_t, 12> b;
  std::memcpy(b.data(), block + 4, b.size());
  for (std::size_t i = 0; i < 8; ++i) {
    const int sc = i < 4 ? b[i] & 63 : (b[i + 4] & 15) | ((b[i - 4] >> 6) << 4);
    const int m = i < 4 ? b[i + 4] & 63 : (b[i + 4] >> 4) | ((b[i] >> 6) << 4);
    scales[i] = d * static_cast<float>(sc);
    offsets[i] = -(dmin * static_cast<float>(m));
  }
}

void expand_k6(const std::byte* block, float* scales) {
  const float d = f16_at(block + 208);
  for (std::size_t i = 0; i < 16; ++i) scales[i] = d * static_cast<float>(std::to_integer<std::int8_t>(block[192 + i]));
}

// Everything a layer needs to be read, by value.
struct GgufLoader {
  std::shared_ptr<const Container> container;
  LayerInfo info;
  Tensor tensor;
  std::optional<Tensor> global;
  BlockRule rule;
  std::int64_t block_bytes, block_elements;

  Result<QuantTensor> operator()(std::int64_t expert) const {
    const std::int64_t count = std::max<std::int64_t>(1, info.experts);
    if (expert < 0 || expert >= count) return invalid_argument("{}: expert {} of {}", printable(info.name), expert, count);
    const std::int64_t row_blocks = info.k / block_elements, blocks = info.n * row_blocks;
    const auto bytes = static_cast<std::size_t>(blocks * block_bytes);
    auto data = std::make_shared<Buffer>(bytes);
    SF_TRY(container->read(tensor, static_cast<std::uint64_t>(expert) * bytes, bytes, data->data()));
    SF_TRY(check_values(data->data(), blocks));

    QuantTensor t;
    t.name = info.name;
    t.n = info.n;
    t.k = info.k;
    t.code = rule.code;
    t.zero = rule.offsets ? 0 : default_zero(rule.code);
    t.group_size = rule.group;
    t.rows = info.k / rule.group;
    t.codes = gguf_codes(rule.type, data, static_cast<std::size_t>(row_blocks));
    if (rule.scale_at >= 0) {
      view_planes(t, *data, row_blocks);
    } else {
      write_planes(t, *data, blocks);
    }
    if (global) {
      const bool shared = global->bytes == sizeof(float);
      SF_TRY(container->read(*global, shared ? 0 : static_cast<std::uint64_t>(expert) * sizeof(float), sizeof(float),
                             &t.global.value));
      SF_TRY(check_global(*container, *global, t.global.value, false));
    }
    t.keep_alive.push_back(std::move(data));
    return t;
  }

  // Rows 44-46 over the scales where they lie in the blocks; a flat index counts blocks.
  Status check_values(const std::byte* data, std::int64_t blocks) const {
    const auto count = static_cast<std::uint64_t>(blocks);
    const auto stride = static_cast<std::size_t>(block_bytes);
    switch (rule.type) {
      case GgufBlock::q4_k:
      case GgufBlock::q5_k:
        SF_TRY(check_scales(*container, tensor, data, count, DType::f16, stride));
        return check_scales(*container, tensor, data + 2, count, DType::f16, stride);
      case GgufBlock::q6_k: return check_scales(*container, tensor, data + 208, count, DType::f16, stride);
      case GgufBlock::nvfp4:
        for (int s = 0; s < 4; ++s) SF_TRY(check_scales(*container, tensor, data + s, count, DType::f8_e4m3, stride));
        return {};
      default:
        SF_TRY(check_scales(*container, tensor, data + rule.scale_at, count, rule.scale_type, stride));
        return rule.offsets ? check_scales(*container, tensor, data + rule.offset_at, count, DType::f16, stride) : Status();
    }
  }

  void view_planes(QuantTensor& t, const Buffer& data, std::int64_t row_blocks) const {
    t.scales = {rule.scale_type, data.data() + rule.scale_at, row_blocks * block_bytes, block_bytes};
    if (rule.offsets) t.offsets = {DType::f16, data.data() + rule.offset_at, row_blocks * block_bytes, block_bytes};
    if (rule.type != GgufBlock::nvfp4) return;
    // Four scales a block are not at one stride, so NVFP4's are gathered (1/9 of the bytes).
    auto scales = std::make_shared<Buffer>(static_cast<std::size_t>(t.n * t.rows));
    for (std::int64_t b = 0; b < t.n * row_blocks; ++b) std::memcpy(scales->data() + 4 * b, data.data() + b * block_bytes, 4);
    t.scales = {rule.scale_type, scales->data(), t.rows, 1};
    t.keep_alive.push_back(std::move(scales));
  }

  void write_planes(QuantTensor& t, const Buffer& data, std::int64_t blocks) const {
    const std::int64_t per_block = block_elements / rule.group;
    const auto plane_bytes = static_cast<std::size_t>(blocks * per_block) * sizeof(float);
    auto scales = std::make_shared<Buffer>(plane_bytes);
    auto offsets = std::make_shared<Buffer>(rule.offsets ? plane_bytes : 0);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::byte* block = data.data() + b * block_bytes;
      if (rule.offsets) {
        expand_k45(block, scales->as<float>() + b * per_block, offsets->as<float>() + b * per_block);
      } else {
        expand_k6(block, scales->as<float>() + b * per_block);
      }
    }
    const auto stride_n = t.rows * static_cast<std::int64_t>(sizeof(float));
    t.scales = {DType::f32, scales->data(), stride_n, sizeof(float)};
    t.keep_alive.push_back(std::move(scales));
    if (!rule.offsets) return;
    t.offsets = {DType::f32, offsets->data(), stride_n, sizeof(float)};
    t.keep_alive.push_back(std::move(offsets));
  }
};

// The F32 tensor beside an NVFP4 weight; absent: 1.
Result<const Tensor*> find_global(const Container& container, const std::string& stem, std::int64_t experts) {
  const Tensor* global = container.find(stem + ".scale");
  if (global == nullptr) return nullptr;
  if (global->gguf_type != 0) {
    return malformed("{}: tensor '{}': wrong type: expected F32, found {}", container.path_of(*global), printable(global->name),
                     type_name(*global));
  }
  if (global->shape == std::vector<std::int64_t>{1} || (experts > 0 && global->shape == std::vector<std::int64_t>{experts}))
    return global;
  return malformed("{}: tensor '{}': wrong shape: expected [1]{}, found {}", container.path_of(*global), printable(global->name),
                   experts > 0 ? fmt::format(" or [{}], one for each expert", experts) : "", shape_text(global->shape));
}

Status add_layer(FormatContext& context, const Tensor& tensor, const BlockRule& rule, const GgmlType& type) {
  const Container& container = *context.container;
  const std::vector<std::int64_t>& shape = tensor.shape;
  LayerInfo info;
  info.weight_name = tensor.name;
  info.name = tensor.name.ends_with(".weight") ? tensor.name.substr(0, tensor.name.size() - 7) : tensor.name;
  info.scheme = fmt::format("gguf {}", type.name);
  info.code = rule.code;
  info.experts = shape.size() == 3 ? shape[0] : 0;
  info.n = shape[shape.size() - 2];
  info.k = shape.back();
  info.group_size = rule.group;
  info.zero = rule.offsets ? ZeroKind::offsets : ZeroKind::constant;
  info.scale_type = rule.scale_type;
  const Tensor* global = nullptr;
  if (rule.type == GgufBlock::nvfp4) {
    SF_ASSIGN(global, find_global(container, info.name, info.experts));
  }
  if (const Tensor* bias = container.find(info.name + ".bias")) info.bias = bias->name;
  list_tensors(container, {&tensor, global}, info);
  info.has_global = global != nullptr;
  GgufLoader loader{
      context.container,  info, tensor, global ? std::optional<Tensor>(*global) : std::nullopt, rule, type.block_bytes,
      type.block_elements};
  context.layers.push_back({std::move(info), std::move(loader)});
  return {};
}

}  // namespace

Status open_gguf_blocks(FormatContext& context) {
  Status first;
  for (const Tensor& tensor : context.container->tensors) {
    const GgmlType* type = find_ggml_type(tensor.gguf_type);
    if (type == nullptr || type->block_elements == 1) continue;  // plain numbers
    const BlockRule* rule = find_rule(tensor.gguf_type);
    const std::size_t rank = tensor.shape.size();
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    if (rule == nullptr || rank < 2 || rank > 3 || empty) {
      context.not_packed.push_back(fmt::format("{}: {} ({}){}", printable(tensor.name), type->name, type->id,
                                               rule ? fmt::format(", shape {}", shape_text(tensor.shape)) : ""));
      continue;
    }
    if (Status status = add_layer(context, tensor, *rule, *type); !status.ok() && first.ok()) first = status;
  }
  return first;
}

}  // namespace swordfish
