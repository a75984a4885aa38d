// sm1xx-blockscaled/1: packing, unpacking, conversion to and from other layouts, and what kernels with a single global need.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/try.h"
#include "pack/packed_weight.h"
#include "pack/sm1xx_pack.h"
#include "quant/nibble_rows.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

using sm1xx::atom_bytes;
using sm1xx::atom_n;
using sm1xx::atom_s;

constexpr std::int64_t kCodesN = 64, kCodesK = 256;  // codes read at a time, one byte each
constexpr std::uint8_t kMinusZero = 0x80;            // of e4m3

std::size_t product(std::int64_t a, std::int64_t b) {
  std::int64_t ab = 0;
  if (__builtin_mul_overflow(a, b, &ab)) throw std::bad_alloc();
  return static_cast<std::size_t>(ab);
}

constexpr std::int64_t row_bytes(std::int64_t k) { return ceil_div(k, 2); }

// Columns a scale: 16 or 32; a tensor of one scale row may call all of its K the group.
std::int64_t vector_size(const QuantTensor& t) {
  const std::int64_t usual = t.scales.type == DType::f8_e8m0 ? 32 : 16;
  return t.rows == 1 && t.k <= usual ? usual : t.group_size;
}

Status check_sm1xx_part(const QuantTensor& t) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(
        "{}: {} cannot be stored in layout {}, which holds FP4 codes with e4m3 or e8m0 scales per 16 or 32 columns", t.name, what,
        name(Layout::sm1xx_blockscaled_1));
  };
  if (t.n < 1 || t.k < 1 || !t.codes) return invalid_argument("{}: a tensor of {} x {} cannot be packed", t.name, t.n, t.k);
  if (t.code != CodeType::fp4) return refuse(fmt::format("{} codes", name(t.code)));
  if (t.scales.type != DType::f8_e4m3 && t.scales.type != DType::f8_e8m0)
    return refuse(fmt::format("{} scales", name(t.scales.type)));
  if (!t.row_of_k.empty()) return refuse("a weight whose columns are not in the order of their groups");
  if (t.zeros || t.offsets || t.zero != 0) return refuse("a weight with zero points or offsets");
  const std::int64_t v = vector_size(t);
  if (v != 16 && v != 32) return refuse(fmt::format("group size {}", v));
  if (!t.scales || t.rows != ceil_div(t.k, v))
    return invalid_argument("{}: {} scale rows for {} columns in groups of {}", t.name, t.rows, t.k, v);
  return {};
}

Status check_sm1xx_agreement(const QuantTensor& a, const QuantTensor& b) {
  if (a.k != b.k || a.scales.type != b.scales.type || vector_size(a) != vector_size(b)) {
    return invalid_argument("{} and {} cannot be packed as one weight: K {} and {}, scales {} per {} and {} per {}", a.name, b.name,
                            a.k, b.k, name(a.scales.type), vector_size(a), name(b.scales.type), vector_size(b));
  }
  return {};
}

// Rows [n0, n0+n) of a part's codes, two a byte.
void pack_codes(const QuantTensor& part, std::int64_t n0, std::int64_t n, std::uint8_t* out) {
  const std::int64_t stride = row_bytes(part.k);
  if (const CodeSource::StoredRows stored = part.codes->stored_rows(); stored.data != nullptr) {
    for (std::int64_t i = 0; i < n; ++i, out += stride) {
      std::memcpy(out, stored.data + static_cast<std::size_t>(n0 + i) * stored.row_bytes, static_cast<std::size_t>(stride));
      if (part.k % 2 != 0) out[stride - 1] &= 15;
    }
    return;
  }
  alignas(64) std::array<std::uint8_t, kCodesN * kCodesK> tile;
  for (std::int64_t i0 = 0; i0 < n; i0 += kCodesN) {
    const std::int64_t rows = std::min(kCodesN, n - i0);
    for (std::int64_t k0 = 0; k0 < part.k; k0 += kCodesK) {
      const std::int64_t columns = std::min(kCodesK, part.k - k0);
      if (columns % 2 != 0)
        for (std::int64_t i = 0; i < rows; ++i) tile[static_cast<std::size_t>(i * kCodesK + columns)] = 0;
      part.codes->read(n0 + i0, rows, k0, columns, tile.data(), kCodesK);
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::uint8_t* q = tile.data() + i * kCodesK;
        std::uint8_t* to = out + (i0 + i) * stride + k0 / 2;
        for (std::int64_t j = 0; j < (columns + 1) / 2; ++j) to[j] = static_cast<std::uint8_t>(q[2 * j] | q[2 * j + 1] << 4);
      }
    }
  }
}

// Rows [n0, n0+n) of a part's scales into one row of atoms. False: a scale is negative.
bool pack_scales(const QuantTensor& part, std::int64_t n0, std::int64_t n, std::uint8_t* out) {
  const Plane& plane = part.scales;
  const std::int64_t s = part.rows;
  if (plane.stride_r == 1) {
    sm1xx::swizzle_scales(reinterpret_cast<const std::uint8_t*>(plane.at(n0, 0)), plane.stride_n, n, s, out);
  } else {  // transposed in the file, or broadcast
    std::vector<std::uint8_t> rows(product(n, s));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t r = 0; r < s; ++r)
        rows[static_cast<std::size_t>(i * s + r)] = static_cast<std::uint8_t>(*plane.at(n0 + i, r));
    sm1xx::swizzle_scales(rows.data(), s, n, s, out);
  }
  if (plane.type != DType::f8_e4m3) return true;
  std::uint8_t largest = 0;
  for (std::int64_t i = 0; i < ceil_div(s, atom_s) * atom_bytes; ++i) {
    largest = std::max(largest, out[i]);
    out[i] = out[i] == kMinusZero ? 0 : out[i];
  }
  return largest <= kMinusZero;
}

Status negative_scale(const QuantTensor& part) {
  for (std::int64_t i = 0; i < part.n; ++i) {
    for (std::int64_t r = 0; r < part.rows; ++r) {
      const auto b = static_cast<std::uint8_t>(*part.scales.at(i, r));
      if (b > kMinusZero)
        return invalid_argument("{}: scale {} of row {} is negative (0x{:02x}); the hardware reads block scales as unsigned",
                                part.name, r, i, b);
    }
  }
  return {Code::internal, fmt::format("{}: a negative scale that is not there", part.name)};
}

// The power of two by which b must be multiplied to give a, if there is one.
std::optional<int> power_ratio(float a, float b) {
  int ea = 0, eb = 0;
  if (!(a > 0) || !(b > 0) || !std::isfinite(a) || !std::isfinite(b)) return std::nullopt;
  if (std::frexp(a, &ea) != std::frexp(b, &eb)) return std::nullopt;
  return ea - eb;
}

float scale_value(DType type, std::size_t byte) {
  const auto b = static_cast<std::uint8_t>(byte);
  return type == DType::f8_e8m0 ? e8m0_to_f32(b) : e4m3_to_f32(b);
}

// scale · 2^shift as a byte of the same type, for every byte; nullopt where that is not exact.
using ScaleMap = std::array<std::optional<std::uint8_t>, 256>;
ScaleMap shifted_scales(DType type, int shift) {
  ScaleMap to;
  for (std::size_t b = 0; b < to.size(); ++b) {
    const float want = std::ldexp(scale_value(type, b), shift);
    for (std::size_t c = 0; c < to.size() && !to[b]; ++c)
      if (scale_value(type, c) == want) to[b] = static_cast<std::uint8_t>(c);
  }
  return to;
}

}  // namespace

Result<PackedWeight> pack_blockscaled(std::span<const QuantTensor> parts, std::string name, int threads) {
  if (parts.empty()) return invalid_argument("{}: no tensor to pack", name);
  for (const QuantTensor& part : parts) {
    SF_TRY(check_sm1xx_part(part));
    SF_TRY(check_sm1xx_agreement(parts.front(), part));
  }
  const QuantTensor& first = parts.front();
  PackedWeight weight;
  weight.name = std::move(name);
  PackedView& v = weight.view;
  v.layout = Layout::sm1xx_blockscaled_1;
  v.code = CodeType::fp4;
  v.k = first.k;
  v.zero = 0;
  v.rows = first.rows;
  v.group_size = vector_size(first);
  v.k_blocks = ceil_div(v.rows, atom_s);
  v.scale_type = first.scales.type;
  struct Stripe {
    std::size_t part;
    std::int64_t n0;
  };
  std::vector<Stripe> stripes;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    weight.parts.push_back({parts[p].name, v.n, parts[p].n, v.n_blocks, parts[p].global});
    for (std::int64_t n0 = 0; n0 < parts[p].n; n0 += atom_n) stripes.push_back({p, n0});
    v.n += parts[p].n;
    v.n_blocks += ceil_div(parts[p].n, atom_n);
  }
  weight.codes = Buffer(product(v.n, row_bytes(v.k)));
  weight.scales = Buffer(product(static_cast<std::int64_t>(product(v.n_blocks, v.k_blocks)), atom_bytes));

  std::atomic<std::size_t> negative = parts.size();  // a part that has a negative scale
  const auto tasks = static_cast<std::int64_t>(stripes.size());
  ThreadPool pool(static_cast<int>(std::min<std::int64_t>(threads > 0 ? threads : usable_cores(), tasks)));
  pool.parallel_for(tasks, [&](std::int64_t task, int) {
    const Stripe& stripe = stripes[static_cast<std::size_t>(task)];
    const QuantTensor& part = parts[stripe.part];
    const std::int64_t n = std::min(atom_n, part.n - stripe.n0);
    pack_codes(part, stripe.n0, n, weight.codes.as<std::uint8_t>() + (weight.parts[stripe.part].n0 + stripe.n0) * row_bytes(v.k));
    if (!pack_scales(part, stripe.n0, n, weight.scales.as<std::uint8_t>() + task * v.k_blocks * atom_bytes)) negative = stripe.part;
  });
  if (negative < parts.size()) return negative_scale(parts[negative]);
  bind(weight);
  return weight;
}

Result<QuantTensor> unpack_blockscaled(const PackedView& v, std::int64_t part_index) {
  if (part_index < 0 || part_index >= v.n_parts)
    return invalid_argument("part {} of a packed weight with {} parts", part_index, v.n_parts);
  const PackedPart& part = v.parts[part_index];
  QuantTensor tensor;
  tensor.name = part.name;
  tensor.n = part.n;
  tensor.k = v.k;
  tensor.code = CodeType::fp4;
  tensor.zero = 0;
  tensor.rows = v.rows;
  tensor.group_size = v.group_size;
  tensor.global = part.global;
  tensor.codes = nibble_rows(static_cast<const std::byte*>(v.codes) + part.n0 * row_bytes(v.k),
                             static_cast<std::size_t>(row_bytes(v.k)), nullptr);
  auto scales = std::make_shared<Buffer>(product(part.n, v.rows));
  sm1xx::unswizzle_scales(static_cast<const std::uint8_t*>(v.scales) + part.block0 * v.k_blocks * atom_bytes, part.n, v.rows,
                          scales->as<std::uint8_t>(), v.rows);
  tensor.scales = {v.scale_type, scales->data(), v.rows, 1};
  tensor.keep_alive.push_back(std::move(scales));
  return tensor;
}

Result<PackedWeight> convert(const PackedView& weight, Layout layout, std::string name, int threads) {
  std::vector<QuantTensor> parts;
  for (std::int64_t p = 0; p < weight.n_parts; ++p) {
    SF_ASSIGN(QuantTensor part, unpack(weight, p));
    parts.push_back(std::move(part));
  }
  return layout == Layout::mma64_1 ? pack(parts, std::move(name), threads) : pack_blockscaled(parts, std::move(name), threads);
}

PackedView single_part(const PackedView& weight, std::int64_t part, PackedPart& entry) {
  const PackedPart& from = weight.parts[part];
  entry = {from.name, 0, from.n, 0, from.global};
  PackedView v = weight;
  v.n = from.n;
  v.n_blocks = ceil_div(from.n, atom_n);
  v.codes = static_cast<const std::byte*>(weight.codes) + from.n0 * row_bytes(weight.k);
  v.scales = static_cast<const std::byte*>(weight.scales) + from.block0 * weight.k_blocks * atom_bytes;
  v.parts = &entry;
  v.n_parts = 1;
  return v;
}

bool fold_globals(PackedWeight& weight) {
  const PackedView& v = weight.view;
  auto* scales = weight.scales.as<std::uint8_t>();
  const auto each_scale = [&](const PackedPart& part, auto visit) {  // padding bytes stay zero
    std::uint8_t* atoms = scales + part.block0 * v.k_blocks * atom_bytes;
    for (std::int64_t i = 0; i < part.n; ++i)
      for (std::int64_t s = 0; s < v.rows; ++s)
        if (!visit(atoms[sm1xx::scale_offset(i, s, v.k_blocks)])) return false;
    return true;
  };
  // Any part's global may be the common one; the first that fits all is taken.
  for (const PackedPart& target : weight.parts) {
    std::vector<ScaleMap> maps;
    bool fits = true;
    for (const PackedPart& part : weight.parts) {
      const bool divides = part.global.op == Global::Op::divide;
      const std::optional<int> shift = part.global.op != target.global.op ? std::nullopt
                                       : divides                          ? power_ratio(target.global.value, part.global.value)
                                                                          : power_ratio(part.global.value, target.global.value);
      if (!shift) return false;  // ratios do not depend on the target
      maps.push_back(shifted_scales(v.scale_type, *shift));
      fits = fits && each_scale(part, [&](const std::uint8_t& b) { return maps.back()[b].has_value(); });
    }
    if (!fits) continue;
    const Global common = target.global;
    for (std::size_t p = 0; p < weight.parts.size(); ++p) {
      each_scale(weight.parts[p], [&](std::uint8_t& b) {
        b = maps[p][b].value_or(0);
        return true;
      });
      weight.parts[p].global = common;
    }
    return true;
  }
  return false;
}

}  // namespace swordfish
