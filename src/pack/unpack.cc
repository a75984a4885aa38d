// unpack(): one part of a packed weight as a QuantTensor again; codes are read through the packed blocks.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pack/mma64.h"
#include "pack/packed_weight.h"
#include "pack/sm1xx_pack.h"

namespace swordfish {
namespace {

using Shared = std::shared_ptr<const std::vector<std::int32_t>>;

// The codes of a row range of packed blocks, K in the original order.
class PackedCodes final : public CodeSource {
 public:
  // packed_column[k]: where column k lies in packed K; null: where it was.
  PackedCodes(const PackedView& v, std::int64_t block0, Shared packed_column)
      : blocks_(static_cast<const std::uint8_t*>(v.codes)),
        bits_(code_bits(v.code)),
        k_blocks_(v.k_blocks),
        block0_(block0),
        packed_column_(std::move(packed_column)) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    const std::int64_t block_k = mma64::block_k(bits_);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint8_t* column = blocks_ + mma64::block_offset(block0_ + (n0 + i) / mma64::block_n, 0, k_blocks_);
      const int row = static_cast<int>((n0 + i) % mma64::block_n);
      std::uint8_t* to = out + static_cast<std::size_t>(i) * stride;
      if (packed_column_) {
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t kk = (*packed_column_)[static_cast<std::size_t>(k0 + j)];
          to[j] = mma64::code_at(column + kk / block_k * mma64::block_bytes, bits_, row, static_cast<int>(kk % block_k));
        }
        continue;
      }
      std::int64_t j = 0;
      while (j < k) {
        const std::int64_t kk = k0 + j;
        const std::uint8_t* block = column + kk / block_k * mma64::block_bytes;
        if (kk % mma64::slice_k == 0 && j + mma64::slice_k <= k) {
          read_slice(block, row, static_cast<int>(kk % block_k), to + j);
          j += mma64::slice_k;
        } else {
          to[j++] = mma64::code_at(block, bits_, row, static_cast<int>(kk % block_k));
        }
      }
    }
  }

 private:
  // 16 columns from k (a multiple of 16) of one row: bytes 0 and 2 past the lane's own byte hold columns 2t and 2t+1 with 2t+8,
  // 2t+9.
  void read_slice(const std::uint8_t* block, int row, int k, std::uint8_t* out) const {
    if (bits_ == 8) {
      const std::uint8_t* lane = block + mma64::byte8(row, k);
      for (int t = 0; t < 4; ++t, lane += 16) {
        out[2 * t] = lane[0];
        out[2 * t + 8] = lane[1];
        out[2 * t + 1] = lane[2];
        out[2 * t + 9] = lane[3];
      }
    } else {
      const std::uint8_t* lane = block + mma64::nibble4(row, k).byte;
      for (int t = 0; t < 4; ++t, lane += 16) {
        out[2 * t] = lane[0] & 15;
        out[2 * t + 8] = lane[0] >> 4;
        out[2 * t + 1] = lane[2] & 15;
        out[2 * t + 9] = lane[2] >> 4;
      }
    }
  }

  const std::uint8_t* blocks_;
  int bits_;
  std::int64_t k_blocks_, block0_;
  Shared packed_column_;
};

// Copies the part's rows of a [n_blocks, rows, 64] plane to [rows, n], which a Plane's two strides can describe.
Plane unpack_plane(const PackedView& v, const PackedPart& part, const void* packed, DType type, QuantTensor& tensor) {
  if (packed == nullptr) return {};
  const auto element = static_cast<std::size_t>(bits(type) / 8);
  const auto n = static_cast<std::size_t>(part.n), rows = static_cast<std::size_t>(v.rows);
  auto copy = std::make_shared<Buffer>(rows * n * element);
  const auto* from = static_cast<const std::byte*>(packed);
  for (std::size_t n0 = 0; n0 < n; n0 += mma64::block_n) {
    const std::size_t block = static_cast<std::size_t>(part.block0) + n0 / mma64::block_n,
                      count = std::min<std::size_t>(mma64::block_n, n - n0);
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(copy->data() + (r * n + n0) * element, from + (block * rows + r) * mma64::block_n * element, count * element);
    }
  }
  const Plane plane{type, copy->data(), static_cast<std::int64_t>(element), static_cast<std::int64_t>(n * element)};
  tensor.keep_alive.push_back(std::move(copy));
  return plane;
}

}  // namespace

Result<QuantTensor> unpack(const PackedView& v, std::int64_t part_index) {
  if (v.layout == Layout::sm1xx_blockscaled_1) return unpack_blockscaled(v, part_index);
  if (part_index < 0 || part_index >= v.n_parts)
    return invalid_argument("part {} of a packed weight with {} parts", part_index, v.n_parts);
  const PackedPart& part = v.parts[part_index];
  QuantTensor tensor;
  tensor.name = part.name;
  tensor.n = part.n;
  tensor.k = v.k;
  tensor.code = v.code;
  tensor.rows = v.rows;
  tensor.zero = v.zero;
  tensor.global = part.global;

  Shared packed_column;
  if (v.gather != nullptr) {
    auto columns = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(v.k));
    tensor.row_of_k.resize(static_cast<std::size_t>(v.k));
    for (std::int64_t j = 0; j < v.packed_k(); ++j) {
      if (v.gather[j] < 0) continue;
      (*columns)[static_cast<std::size_t>(v.gather[j])] = static_cast<std::int32_t>(j);
      tensor.row_of_k[static_cast<std::size_t>(v.gather[j])] = static_cast<std::int32_t>(v.row(j / mma64::slice_k));
    }
    packed_column = std::move(columns);
  } else if (v.row_of_slice != nullptr) {
    tensor.row_of_k.resize(static_cast<std::size_t>(v.k));
    for (std::int64_t k = 0; k < v.k; ++k) {
      tensor.row_of_k[static_cast<std::size_t>(k)] = v.row_of_slice[k / mma64::slice_k];
    }
  }
  tensor.group_size = v.rows == 1 ? v.k : v.group_size;  // of no meaning beside row_of_k
  tensor.codes = std::make_shared<PackedCodes>(v, part.block0, std::move(packed_column));
  tensor.scales = unpack_plane(v, part, v.scales, v.scale_type, tensor);
  tensor.zeros = unpack_plane(v, part, v.zeros, v.zero_type, tensor);
  tensor.offsets = unpack_plane(v, part, v.offsets, v.offset_type, tensor);
  return tensor;
}

}  // namespace swordfish
