// Integer matrices of compressed-tensors: words or bytes to codes 0..2^b-1, zero points with the same offset of 2^(b-1), g_idx.
#include "formats/ct_integers.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "formats/format.h"
#include "quant/nibble_rows.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

struct CtIntegerLoader {
  const CtIntegers& layer;
  const Container& container;
  const LayerInfo& info;
  std::int64_t expert;
  int bits;
  int middle;  // the code of a signed 0

  // The expert's share of a tensor; one that all experts share is read whole.
  Result<Buffer> read(const Tensor& tensor, bool shared = false) const {
    const std::uint64_t size = info.experts > 0 && !shared ? tensor.bytes / static_cast<std::uint64_t>(info.experts) : tensor.bytes;
    Buffer data(static_cast<std::size_t>(size));
    SF_TRY(container.read(tensor, shared ? 0 : static_cast<std::uint64_t>(expert) * size, data.size(), data.data()));
    return data;
  }

  Status read_codes(QuantTensor& t) const {
    SF_ASSIGN(Buffer data, read(layer.weight));
    const std::size_t row_bytes = data.size() / static_cast<std::size_t>(info.n);
    if (layer.scheme.format == CtFormat::pack) {
      auto kept = std::make_shared<const Buffer>(std::move(data));
      t.codes = bits == 4 ? nibble_rows(kept->data(), row_bytes, kept) : byte_rows(std::move(kept), 0, row_bytes, 0);
      return {};
    }
    if (bits == 4) SF_TRY(offset_in_place(layer.weight, data));
    t.codes = byte_rows(std::make_shared<const Buffer>(std::move(data)), 0, row_bytes, bits == 8 ? 0x80 : 0);
    return {};
  }

  // Signed values of `bits` bits to codes; refuses what does not fit.
  Status offset_in_place(const Tensor& tensor, Buffer& data) const {
    auto* values = data.as<std::int8_t>();
    const std::size_t count = data.size();
    bool fits = true;
    for (std::size_t i = 0; i < count; ++i) fits &= values[i] >= -middle && values[i] < middle;
    if (!fits) {
      const auto* at = std::find_if(values, values + count, [this](std::int8_t v) { return v < -middle || v >= middle; });
      return malformed("{}: tensor '{}': value {} at index {} does not fit into {} bits; expected {}..{}",
                       container.path_of(tensor), printable(tensor.name), *at, at - values, bits, -middle, middle - 1);
    }
    for (std::size_t i = 0; i < count; ++i) data.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(values[i] + middle);
    return {};
  }

  // One byte a zero point, in the order of the scales.
  Result<Buffer> read_zeros(std::int64_t rows) const {
    const Tensor& tensor = *layer.zeros;
    const bool per_tensor = layer.scheme.strategy == CtStrategy::tensor;
    SF_ASSIGN(Buffer data, read(tensor, per_tensor));
    if (tensor.dtype == DType::i8) {
      SF_TRY(offset_in_place(tensor, data));
      return data;
    }
    Buffer plane(static_cast<std::size_t>(info.n * rows));
    const std::int64_t per_word = 32 / bits;
    const std::uint32_t mask = (1u << bits) - 1;
    for (std::int64_t n = 0; n < info.n; ++n) {
      const std::byte* words = data.data() + 4 * (n / per_word * rows);
      const auto shift = static_cast<unsigned>(bits * (n % per_word));
      for (std::int64_t r = 0; r < rows; ++r) {
        plane.as<std::uint8_t>()[n * rows + r] =
            static_cast<std::uint8_t>((load_unaligned<std::uint32_t>(words + 4 * r) >> shift) & mask);
      }
    }
    return plane;
  }

  // Row 38. The reference sorts columns by group and cuts runs of group_size, so groups must have exactly that many members.
  Status read_groups(QuantTensor& t) const {
    const Tensor& tensor = *layer.g_idx;
    SF_ASSIGN(const Buffer data, read(tensor, tensor.shape.size() == 1));
    std::vector<std::int32_t> rows(static_cast<std::size_t>(info.k));
    std::memcpy(rows.data(), data.data(), data.size());
    if (std::all_of(rows.begin(), rows.end(), [](std::int32_t row) { return row == -1; })) return {};
    std::vector<std::int64_t> members(static_cast<std::size_t>(t.rows));
    bool trivial = true;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] < 0 || rows[k] >= t.rows) {
        return malformed("{}: tensor '{}': g_idx value {} at index {} is out of range; expected 0..{}", container.path_of(tensor),
                         printable(tensor.name), rows[k], k, t.rows - 1);
      }
      ++members[static_cast<std::size_t>(rows[k])];
      trivial = trivial && rows[k] == static_cast<std::int64_t>(k) / info.group_size;
    }
    for (std::size_t g = 0; g < members.size(); ++g) {
      if (members[g] == info.group_size) continue;
      return malformed("{}: tensor '{}': g_idx gives group {} {} members; expected {} in each of {} groups",
                       container.path_of(tensor), printable(tensor.name), g, members[g], info.group_size, t.rows);
    }
    if (trivial) return {};
    if (!layer.scheme.act_order) {
      return malformed("{}: tensor '{}': g_idx scatters the groups, but actorder is not 'group'", container.path_of(tensor),
                       printable(tensor.name));
    }
    t.row_of_k = std::move(rows);
    return {};
  }

  Result<QuantTensor> load() const {
    QuantTensor t;
    t.name = info.name;
    t.n = info.n;
    t.k = info.k;
    t.code = info.code;
    t.zero = middle;
    t.group_size = info.group_size;
    t.rows = info.k / info.group_size;
    if (layer.g_idx) SF_TRY(read_groups(t));
    SF_TRY(read_codes(t));

    const bool per_tensor = layer.scheme.strategy == CtStrategy::tensor;
    SF_ASSIGN(Buffer scales, read(layer.scales, per_tensor));
    const std::int64_t size = swordfish::bits(layer.scales.dtype) / 8;
    SF_TRY(
        check_scales(container, layer.scales, scales.data(), scales.size() / static_cast<std::size_t>(size), layer.scales.dtype));
    auto kept_scales = std::make_shared<const Buffer>(std::move(scales));
    t.scales = {layer.scales.dtype, kept_scales->data(), per_tensor ? 0 : size * t.rows, per_tensor ? 0 : size};
    t.keep_alive.push_back(std::move(kept_scales));

    if (!layer.zeros) return t;
    SF_ASSIGN(Buffer zeros, read_zeros(t.rows));
    if (layer.scheme.symmetric) {  // row 49
      const auto* first = zeros.as<std::uint8_t>();
      const auto* other = std::find_if(first, first + zeros.size(), [this](std::uint8_t zero) { return zero != middle; });
      if (other == first + zeros.size()) return t;
      return malformed("{}: tensor '{}': symmetric is true, but the zero point at index {} is {}; expected 0",
                       container.path_of(*layer.zeros), printable(layer.zeros->name), other - first, *other - middle);
    }
    auto kept_zeros = std::make_shared<const Buffer>(std::move(zeros));
    t.zeros = {DType::u8, kept_zeros->data(), per_tensor ? 0 : t.rows, per_tensor ? 0 : 1};
    t.keep_alive.push_back(std::move(kept_zeros));
    return t;
  }
};

}  // namespace

Result<QuantTensor> load_ct_integers(const CtIntegers& layer, std::int64_t expert) {
  const std::int64_t experts = std::max<std::int64_t>(1, layer.info.experts);
  if (expert < 0 || expert >= experts) return invalid_argument("{}: expert {} of {}", printable(layer.info.name), expert, experts);
  return CtIntegerLoader{layer, *layer.container, layer.info, expert, layer.scheme.bits, 1 << (layer.scheme.bits - 1)}.load();
}

}  // namespace swordfish
