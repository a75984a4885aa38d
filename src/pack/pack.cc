// pack(): QuantTensors to mma64/1. Work is cut into quads (n256) times stretches of K; each task reads codes in tiles of one byte a
// code, interleaves them into blocks and copies the scale rows that begin there, while the source lines are still in the cache.
//
// Why this order. A GPTQ file has one word for 8 columns of a row and rows side by side: a tile of 64 rows × 256 columns is 32 runs
// of 256 bytes, each on a page of its own, so four neighbouring n64 columns are packed before the next 256 columns to use whole
// runs and pages. Row-major sources (GGUF, compressed-tensors, NVFP4) give 64 runs of 128 bytes or more, again whole cache lines.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/prefetch.h"
#include "base/try.h"
#include "pack/k_order.h"
#include "pack/mma64.h"
#include "pack/packed_weight.h"
#include "pack/tile.h"
#include "quant/numeric.h"

namespace swordfish {
namespace {

constexpr std::int64_t kTileK = 64;      // columns of one tile: with source and output it takes a quarter of a 32 KiB L1
constexpr std::int64_t kStretch = 2048;  // columns of one task
constexpr std::int64_t kQuad = 4;        // n64 columns of one task
constexpr std::int64_t kTurn = 16;       // rows and columns that transpose_16 turns

// One plane of the packed weight while it is filled.
struct PlaneOut {
  Buffer* buffer = nullptr;
  DType type = DType::u8;
  std::size_t element = 0;  // bytes

  std::byte* at(std::int64_t nb, std::int64_t row, std::int64_t rows) const {
    return buffer->data() + static_cast<std::size_t>((nb * rows + row) * mma64::block_n) * element;
  }
};

// Copies rows [r0, r1) of the scale plane for source rows [n0, n0+n) into one n64 column; rows past n become `fill`.
template <class T>
void copy_plane_as(const Plane& from, std::int64_t n0, std::int64_t n, std::int64_t r0, std::int64_t r1, std::byte* out, T fill) {
  constexpr std::int64_t size = sizeof(T), pitch = mma64::block_n * size;
  if constexpr (size == 1) {
    // Bytes row by row of the source (NVFP4's scales): 16 by 16 are turned at once, a tenth of the time of one by one.
    for (; n == mma64::block_n && from.stride_r == 1 && r1 - r0 >= kTurn; r0 += kTurn, out += kTurn * pitch) {
      for (std::int64_t i = 0; i < n; i += kTurn) {
        std::array<const std::uint8_t*, kTurn> rows;
        for (std::int64_t j = 0; j < kTurn; ++j)
          rows[static_cast<std::size_t>(j)] = reinterpret_cast<const std::uint8_t*>(from.at(n0 + i + j, r0));
        transpose_16(rows.data(), reinterpret_cast<std::uint8_t*>(out) + i, pitch);
      }
    }
  }
  if (from.stride_n == size) {
    for (std::int64_t r = r0; r < r1; ++r) std::memcpy(out + (r - r0) * pitch, from.at(n0, r), static_cast<std::size_t>(n * size));
  } else {
    // Row by row of the source: its rows may lie a power of two apart, where few lines of one distance fit in the cache.
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* source = from.at(n0 + i, r0);
      std::byte* to = out + i * size;
      for (std::int64_t r = r0; r < r1; ++r, source += from.stride_r, to += pitch) std::memcpy(to, source, sizeof(T));
    }
  }
  for (std::int64_t r = r0; r < r1; ++r) {
    for (std::int64_t i = n; i < mma64::block_n; ++i) std::memcpy(out + (r - r0) * pitch + i * size, &fill, sizeof(T));
  }
}

void copy_plane(const Plane& from, std::int64_t n0, std::int64_t n, std::int64_t r0, std::int64_t r1, const PlaneOut& to,
                std::byte* out, int fill) {
  switch (to.element) {
    case 1: return copy_plane_as(from, n0, n, r0, r1, out, static_cast<std::uint8_t>(fill));
    case 2: return copy_plane_as(from, n0, n, r0, r1, out, static_cast<std::uint16_t>(fill));
    default: return copy_plane_as(from, n0, n, r0, r1, out, static_cast<std::uint32_t>(fill));
  }
}

class Packer {
 public:
  Packer(std::span<const QuantTensor> parts, KOrder order, PackedWeight& out)
      : parts_(parts), order_(std::move(order)), out_(out) {}

  void run(int threads) {
    const PackedView& v = out_.view;
    block_part_.resize(static_cast<std::size_t>(v.n_blocks));
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const std::int64_t first = out_.parts[p].block0;
      std::fill_n(block_part_.begin() + first, ceil_div(parts_[p].n, mma64::block_n), p);
    }
    // Scale rows [row_end_[kb-1], row_end_[kb]) are copied together with block kb; the last block takes what nobody uses.
    const std::int64_t slices = v.block_k() / mma64::slice_k;
    row_end_.resize(static_cast<std::size_t>(v.k_blocks));
    std::int64_t end = 0;
    for (std::int64_t s = 0; s < v.k_blocks * slices; ++s) {
      end = std::max<std::int64_t>(end, order_.slice_row[static_cast<std::size_t>(s)] + 1);
      row_end_[static_cast<std::size_t>(s / slices)] = end;
    }
    row_end_.back() = v.rows;

    const bool permuted = !order_.gather.empty();
    // With permuted columns every row of the source is read whole, so one task is one n64 column.
    const std::int64_t stretch = permuted ? v.k_blocks : std::max<std::int64_t>(1, kStretch / v.block_k());
    const std::int64_t quad = permuted ? 1 : kQuad;
    const std::int64_t stretches = ceil_div(v.k_blocks, stretch), quads = ceil_div(v.n_blocks, quad);
    ThreadPool pool(static_cast<int>(std::min<std::int64_t>(threads > 0 ? threads : usable_cores(), stretches * quads)));
    pool.parallel_for(stretches * quads, [&](std::int64_t task, int) {
      const std::int64_t nb0 = task / stretches * quad, kb0 = task % stretches * stretch;
      const std::int64_t nb1 = std::min(v.n_blocks, nb0 + quad), kb1 = std::min(v.k_blocks, kb0 + stretch);
      if (permuted) {
        pack_permuted(nb0);
      } else {
        pack_in_place(nb0, nb1, kb0, kb1);
      }
      finish_stores();
    });
  }

  PlaneOut scales, zeros, offsets;  // absent ones have no buffer

 private:
  using Tile = std::array<std::uint8_t, mma64::block_n * kTileK>;

  const QuantTensor& part_of(std::int64_t nb) const { return parts_[block_part_[static_cast<std::size_t>(nb)]]; }
  std::int64_t first_row(std::int64_t nb) const {
    return (nb - out_.parts[block_part_[static_cast<std::size_t>(nb)]].block0) * mma64::block_n;
  }

  void pack_in_place(std::int64_t nb0, std::int64_t nb1, std::int64_t kb0, std::int64_t kb1) const {
    const PackedView& v = out_.view;
    const std::int64_t block_k = v.block_k(), step = kTileK / block_k;
    alignas(64) Tile tile;
    for (std::int64_t kb = kb0; kb < kb1; kb += step) {
      const std::int64_t blocks = std::min(step, kb1 - kb);
      // Four tiles' scale rows at once: with groups of 16 columns they are 16.
      const bool with_planes = (kb - kb0) / step % 4 == 0;
      for (std::int64_t nb = nb0; nb < nb1; ++nb) {
        const QuantTensor& part = part_of(nb);
        const std::int64_t n0 = first_row(nb), n = std::min(mma64::block_n, part.n - n0);
        const std::int64_t k0 = kb * block_k, k = std::min(blocks * block_k, part.k - k0);
        if (with_planes) copy_planes(part, nb, n0, n, kb, std::min(4 * step, kb1 - kb));
        const CodeSource::StoredRows stored = part.codes->stored_rows();
        if (stored.data != nullptr && n == mma64::block_n && k == blocks * block_k) {
          const std::byte* rows = stored.data + static_cast<std::size_t>(n0) * stored.row_bytes + k0 / 2;
          for (std::size_t i = 0; i < mma64::block_n; ++i) prefetch_ahead(rows + i * stored.row_bytes + k / 2, 32);
          pack_stored_rows(rows, stored.row_bytes, blocks, codes_at(nb, kb));
          continue;
        }
        part.codes->read(n0, n, k0, k, tile.data(), kTileK);
        if (n < mma64::block_n || k < blocks * block_k) pad(part, nb, n, kb, blocks, k, tile.data(), kTileK);
        store(nb, kb, blocks, tile.data(), kTileK);
      }
    }
  }

  // One n64 column whose columns of K are permuted. Sixteen rows at a time are turned into columns of 16 bytes, so that a packed
  // column is fetched with one load, and turned back (a byte at a time is half as fast).
  void pack_permuted(std::int64_t nb) const {
    const PackedView& v = out_.view;
    const QuantTensor& part = part_of(nb);
    const std::int64_t n0 = first_row(nb), n = std::min(mma64::block_n, part.n - n0);
    copy_planes(part, nb, n0, n, 0, v.k_blocks);
    const auto k = static_cast<std::size_t>(ceil_div(part.k, kTurn) * kTurn), packed_k = static_cast<std::size_t>(v.packed_k());
    std::vector<std::uint8_t> source(kTurn * k), columns(kTurn * k);  // [16][k] and [k][16]
    const auto packed = std::make_unique_for_overwrite<std::uint8_t[]>(mma64::block_n * packed_k);
    std::array<const std::uint8_t*, kTurn> from;
    for (std::int64_t i0 = 0; i0 < n; i0 += kTurn) {
      for (std::int64_t k0 = 0; k0 < part.k; k0 += kTileK) {
        part.codes->read(n0 + i0, std::min(kTurn, n - i0), k0, std::min(kTileK, part.k - k0), source.data() + k0, k);
      }
      for (std::size_t k0 = 0; k0 < k; k0 += kTurn) {
        for (std::size_t i = 0; i < kTurn; ++i) from[i] = source.data() + i * k + k0;
        transpose_16(from.data(), columns.data() + kTurn * k0, kTurn);
      }
      for (std::size_t j0 = 0; j0 < packed_k; j0 += kTurn) {
        // Padding takes any column here and its own code below.
        for (std::size_t j = 0; j < kTurn; ++j) from[j] = columns.data() + kTurn * std::max(order_.gather[j0 + j], 0);
        transpose_16(from.data(), packed.get() + static_cast<std::size_t>(i0) * packed_k + j0, packed_k);
      }
    }
    pad(part, nb, n, 0, v.k_blocks, v.packed_k(), packed.get(), packed_k);
    store(nb, 0, v.k_blocks, packed.get(), packed_k);
  }

  std::uint8_t* codes_at(std::int64_t nb, std::int64_t kb) const {
    return out_.codes.as<std::uint8_t>() + mma64::block_offset(nb, kb, out_.view.k_blocks);
  }

  void store(std::int64_t nb, std::int64_t kb, std::int64_t blocks, const std::uint8_t* tile, std::size_t stride) const {
    pack_blocks(code_bits(out_.view.code), tile, stride, blocks, codes_at(nb, kb));
  }

  // The scale rows that begin in these blocks of K.
  void copy_planes(const QuantTensor& part, std::int64_t nb, std::int64_t n0, std::int64_t n, std::int64_t kb,
                   std::int64_t blocks) const {
    const std::int64_t rows = out_.view.rows;
    const std::int64_t r0 = kb == 0 ? 0 : row_end_[static_cast<std::size_t>(kb - 1)];
    const std::int64_t r1 = row_end_[static_cast<std::size_t>(kb + blocks - 1)];
    if (r0 >= r1) return;
    copy_plane(part.scales, n0, n, r0, r1, scales, scales.at(nb, r0, rows), 0);
    if (part.zeros) copy_plane(part.zeros, n0, n, r0, r1, zeros, zeros.at(nb, r0, rows), default_zero(part.code));
    if (part.offsets) copy_plane(part.offsets, n0, n, r0, r1, offsets, offsets.at(nb, r0, rows), 0);
  }

  // The code nearest to the zero point: with a scale of 0, or an x of 0, it adds nothing.
  std::uint8_t neutral(const QuantTensor& part, std::int64_t n, std::int64_t row) const {
    int zero = part.zero;
    if (part.zeros) {
      const std::byte* p = part.zeros.at(n, row);
      zero = part.zeros.type == DType::i16 ? load_unaligned<std::int16_t>(p) : load_unaligned<std::uint8_t>(p);
    }
    return static_cast<std::uint8_t>(std::clamp(zero, 0, (1 << code_bits(part.code)) - 1));
  }

  // Writes neutral codes over everything in the tile that is no code of the source: rows from n, columns from k, gathered padding.
  void pad(const QuantTensor& part, std::int64_t nb, std::int64_t n, std::int64_t kb, std::int64_t blocks, std::int64_t k,
           std::uint8_t* tile, std::size_t stride) const {
    const std::int64_t width = blocks * out_.view.block_k(), k0 = kb * out_.view.block_k(), n0 = first_row(nb);
    for (std::int64_t j0 = 0; j0 < width; j0 += mma64::slice_k) {
      std::array<std::uint8_t, mma64::slice_k> padding{};  // which columns of the slice
      bool any = false;
      for (std::int64_t j = j0; j < j0 + mma64::slice_k; ++j) {
        const bool is_padding = j >= k || (!order_.gather.empty() && order_.gather[static_cast<std::size_t>(k0 + j)] < 0);
        padding[static_cast<std::size_t>(j - j0)] = is_padding;
        any |= is_padding;
      }
      if (!any) continue;
      const std::int64_t row = order_.slice_row[static_cast<std::size_t>((k0 + j0) / mma64::slice_k)];
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint8_t code = neutral(part, n0 + i, row);
        for (std::size_t j = 0; j < padding.size(); ++j) {
          if (padding[j]) tile[static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j0) + j] = code;
        }
      }
    }
    // Rows past the part have a zero plane of default zeros, if any.
    const std::uint8_t code =
        static_cast<std::uint8_t>(part.zeros ? default_zero(part.code) : std::clamp(part.zero, 0, (1 << code_bits(part.code)) - 1));
    for (std::int64_t i = n; i < mma64::block_n; ++i) {
      std::memset(tile + static_cast<std::size_t>(i) * stride, code, static_cast<std::size_t>(width));
    }
  }

  std::span<const QuantTensor> parts_;
  KOrder order_;
  PackedWeight& out_;
  std::vector<std::size_t> block_part_;
  std::vector<std::int64_t> row_end_;
};

bool is_scale_type(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f8_e4m3 || type == DType::f8_e8m0;
}

Status check_part(const QuantTensor& part) {
  if (part.n < 1 || !part.codes || !part.scales)
    return invalid_argument("{}: a tensor to pack needs rows, codes and scales", part.name);
  if (part.n > std::numeric_limits<std::int64_t>::max() / 4096)
    return invalid_argument("{}: N = {} is too large", part.name, part.n);
  if (!is_scale_type(part.scales.type)) {
    return invalid_argument("{}: scales of type {}; expected F16, BF16, F32, F8_E4M3 or F8_E8M0", part.name,
                            name(part.scales.type));
  }
  if (part.zeros && part.zeros.type != DType::u8 && part.zeros.type != DType::i16) {
    return invalid_argument("{}: zero points of type {}; expected U8 or I16", part.name, name(part.zeros.type));
  }
  if (part.offsets && part.offsets.type != DType::f16 && part.offsets.type != DType::bf16 && part.offsets.type != DType::f32) {
    return invalid_argument("{}: offsets of type {}; expected F16, BF16 or F32", part.name, name(part.offsets.type));
  }
  if (part.zeros && part.offsets) return invalid_argument("{}: integer zero points and offsets exclude each other", part.name);
  return {};
}

// Why `b` cannot be packed together with `a`, or ok.
Status check_agreement(const QuantTensor& a, const QuantTensor& b) {
  const auto differ = [&](std::string_view what, auto x, auto y) {
    return invalid_argument("{} and {} cannot be packed as one weight: {} {} and {}", a.name, b.name, what, x, y);
  };
  if (a.k != b.k) return differ("K is", a.k, b.k);
  if (a.code != b.code) return differ("codes are", name(a.code), name(b.code));
  if (a.rows != b.rows) return differ("scale rows are", a.rows, b.rows);
  if (a.scales.type != b.scales.type) return differ("scales are", name(a.scales.type), name(b.scales.type));
  const auto type = [](const Plane& plane) { return plane ? name(plane.type) : std::string_view("absent"); };
  if (type(a.zeros) != type(b.zeros)) return differ("zero points are", type(a.zeros), type(b.zeros));
  if (type(a.offsets) != type(b.offsets)) return differ("offsets are", type(a.offsets), type(b.offsets));
  if (!a.zeros && a.zero != b.zero) return differ("the zero point is", a.zero, b.zero);
  return {};
}

bool same_rows(const QuantTensor& a, const QuantTensor& b) {
  if (a.row_of_k.empty() && b.row_of_k.empty() && a.group_size == b.group_size) return true;
  for (std::int64_t k = 0; k < a.k; ++k) {
    if (a.row(k) != b.row(k)) return false;
  }
  return true;
}

// a · b · c bytes, or bad_alloc when no machine can hold them.
std::size_t product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t ab = 0, abc = 0;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) throw std::bad_alloc();
  return static_cast<std::size_t>(abc);
}

PlaneOut make_plane(const Plane& plane, const PackedView& v, Buffer& buffer) {
  if (!plane) return {};
  const auto element = static_cast<std::size_t>(bits(plane.type) / 8);
  buffer = Buffer(product(v.n_blocks, v.rows, mma64::block_n * static_cast<std::int64_t>(element)));
  return {&buffer, plane.type, element};
}

void copy_ints(const std::vector<std::int32_t>& from, Buffer& to) {
  to = Buffer(from.size() * sizeof(std::int32_t));
  std::memcpy(to.data(), from.data(), to.size());
}

}  // namespace

Result<PackedWeight> pack(std::span<const QuantTensor> parts, std::string name, int threads) {
  if (parts.empty()) return invalid_argument("{}: no tensor to pack", name);
  const QuantTensor& first = parts.front();
  for (const QuantTensor& part : parts) {
    SF_TRY(check_part(part));
    SF_TRY(check_agreement(first, part));
  }
  SF_ASSIGN(KOrder order, k_order(first));
  for (const QuantTensor& part : parts.subspan(1)) {
    SF_ASSIGN(const KOrder other, k_order(part));  // checks the part's own map
    if (!same_rows(first, part)) {
      return invalid_argument("{} and {} cannot be packed as one weight: their columns belong to different scale rows", first.name,
                              part.name);
    }
  }

  PackedWeight weight;
  weight.name = std::move(name);
  PackedView& v = weight.view;
  v.code = first.code;
  v.k = first.k;
  for (const QuantTensor& part : parts) {
    weight.parts.push_back({part.name, v.n, part.n, v.n_blocks, part.global});
    v.n += part.n;
    v.n_blocks += ceil_div(part.n, mma64::block_n);
  }
  v.k_blocks = order.packed_k / v.block_k();
  v.rows = first.rows;
  v.group_size = order.regular ? order.group_size : 0;
  v.zero = first.zero;
  v.scale_type = first.scales.type;
  if (first.zeros) v.zero_type = first.zeros.type;
  if (first.offsets) v.offset_type = first.offsets.type;

  weight.codes = Buffer(product(v.n_blocks, v.k_blocks, mma64::block_bytes));
  if (!order.regular) copy_ints(order.slice_row, weight.row_of_slice);
  if (!order.gather.empty()) copy_ints(order.gather, weight.gather);
  Packer packer(parts, std::move(order), weight);
  packer.scales = make_plane(first.scales, v, weight.scales);
  packer.zeros = make_plane(first.zeros, v, weight.zeros);
  packer.offsets = make_plane(first.offsets, v, weight.offsets);
  packer.run(threads);
  bind(weight);
  return weight;
}

Result<PackedWeight> pack(const QuantTensor& tensor, int threads) { return pack({&tensor, 1}, tensor.name, threads); }

}  // namespace swordfish
