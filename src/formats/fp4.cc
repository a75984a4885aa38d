// Loading one FP4 matrix of a safetensors file: reads the bytes of one expert, checks scales and global, and views them in place.
#include "formats/fp4.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/tensors.h"
#include "quant/nibble_rows.h"

namespace swordfish {
namespace {

struct Fp4Loader {
  std::shared_ptr<const Container> container;  // keeps the tensors
  std::string name;
  std::int64_t n, k, experts, group_size;
  const Tensor *codes, *scales, *global;
  Global::Op global_op;
  DType scale_type;
  bool transposed;

  Result<QuantTensor> operator()(std::int64_t expert) const {
    const std::int64_t count = std::max<std::int64_t>(1, experts);
    if (expert < 0 || expert >= count) return invalid_argument("{}: expert {} of {}", printable(name), expert, count);
    const std::int64_t rows = k / group_size;
    const auto code_bytes = static_cast<std::size_t>(n * (k / 2));
    const auto scale_bytes = static_cast<std::size_t>(n * rows);

    auto code_data = std::make_shared<Buffer>(code_bytes);
    SF_TRY(container->read(*codes, static_cast<std::uint64_t>(expert) * code_bytes, code_bytes, code_data->data()));
    auto scale_data = std::make_shared<Buffer>(scale_bytes);
    SF_TRY(container->read(*scales, static_cast<std::uint64_t>(expert) * scale_bytes, scale_bytes, scale_data->data()));
    SF_TRY(check_scales(*container, *scales, scale_data->data(), scale_bytes, scale_type));

    QuantTensor t;
    t.name = name;
    t.n = n;
    t.k = k;
    t.code = CodeType::fp4;
    t.zero = 0;
    t.group_size = group_size;
    t.rows = rows;
    t.codes = transposed ? nibble_columns(code_data, 0, static_cast<std::size_t>(n))
                         : nibble_rows(code_data->data(), static_cast<std::size_t>(k / 2), code_data);
    t.scales = transposed ? Plane{scale_type, scale_data->data(), 1, n} : Plane{scale_type, scale_data->data(), rows, 1};
    if (global != nullptr) {
      const bool shared = global->bytes == sizeof(float);
      SF_TRY(container->read(*global, shared ? 0 : static_cast<std::uint64_t>(expert) * sizeof(float), sizeof(float),
                             &t.global.value));
      SF_TRY(check_global(*container, *global, t.global.value, global_op == Global::Op::divide));
      t.global.op = global_op;
    }
    t.keep_alive.push_back(std::move(scale_data));
    return t;
  }
};

}  // namespace

FormatLayer fp4_layer(std::shared_ptr<const Container> container, Fp4Matrix matrix) {
  LayerInfo& info = matrix.info;
  info.code = CodeType::fp4;
  info.zero = ZeroKind::constant;
  info.scale_type = matrix.scale_type;
  info.has_global = matrix.global != nullptr;
  info.k_first = matrix.transposed;
  list_tensors(*container, {matrix.codes, matrix.scales, matrix.global}, info);
  Fp4Loader loader{std::move(container), info.name,     info.n,        info.k,           info.experts,      info.group_size,
                   matrix.codes,         matrix.scales, matrix.global, matrix.global_op, matrix.scale_type, matrix.transposed};
  return {std::move(info), std::move(loader)};
}

}  // namespace swordfish
