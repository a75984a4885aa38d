// Code sources of plain arrangements that several formats share, beside quant/nibble_rows.h.
//
// nibble_columns: byte (j, n) holds q[n, 2j] in its low nibble and q[n, 2j+1] in its high one: the transpose of nibble_rows.
// byte_rows:      byte k of a row holds q[n, k], XORed with a constant (0x80 turns two's complement into offset-128).
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "formats/format.h"
#include "quant/nibble_rows.h"

namespace swordfish {
namespace {

static_assert(std::endian::native == std::endian::little);

// bytes[j] is byte column j of eight rows; afterwards bytes[i] is row i: an 8 x 8 byte transpose by swapping 1, 2 and 4 bytes wide
// off-diagonal squares.
void transpose_8x8(std::array<std::uint64_t, 8>& bytes) {
  constexpr std::uint64_t masks[3] = {0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu};
  for (std::size_t level = 0; level < 3; ++level) {
    const std::size_t d = std::size_t{1} << level;
    for (std::size_t i = 0; i < 8; ++i) {
      if ((i & d) != 0) continue;
      const std::uint64_t swap = ((bytes[i] >> (8 * d)) ^ bytes[i + d]) & masks[level];
      bytes[i] ^= swap << (8 * d);
      bytes[i + d] ^= swap;
    }
  }
}

class NibbleColumns final : public CodeSource {
 public:
  NibbleColumns(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t column_stride)
      : bytes_(std::move(bytes)), data_(bytes_->data() + offset), column_stride_(column_stride) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    std::int64_t i = 0;
    if (k0 % 2 == 0) {
      for (; i + 8 <= n; i += 8) {
        std::int64_t j = 0;
        for (; j + 64 <= k; j += 64) tile_8x64(n0 + i, (k0 + j) / 2, out + static_cast<std::size_t>(i) * stride + j, stride);
        single(n0 + i, 8, k0 + j, k - j, out + static_cast<std::size_t>(i) * stride + j, stride);
      }
    }
    single(n0 + i, n - i, k0, k, out + static_cast<std::size_t>(i) * stride, stride);
  }

 private:
  // Eight rows n.. of 64 codes: 32 byte columns j.. transposed into rows of 32 bytes, then expanded.
  void tile_8x64(std::int64_t n, std::int64_t j, std::uint8_t* out, std::size_t stride) const {
    std::array<std::array<std::uint64_t, 4>, 8> rows;
    for (std::size_t b = 0; b < 4; ++b) {
      std::array<std::uint64_t, 8> square;
      for (std::size_t i = 0; i < 8; ++i) {
        std::memcpy(&square[i], data_ + (static_cast<std::size_t>(j) + 8 * b + i) * column_stride_ + n, sizeof square[i]);
      }
      transpose_8x8(square);
      for (std::size_t i = 0; i < 8; ++i) rows[i][b] = square[i];
    }
    for (std::size_t i = 0; i < 8; ++i) expand_nibbles_32(rows[i].data(), out + i * stride);
  }

  void single(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out, std::size_t stride) const {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = k0; j < k0 + k; ++j) {
        const auto byte = std::to_integer<unsigned>(data_[static_cast<std::size_t>(j / 2) * column_stride_ + n0 + i]);
        out[static_cast<std::size_t>(i) * stride + j - k0] = static_cast<std::uint8_t>(j % 2 == 0 ? byte & 15u : byte >> 4);
      }
    }
  }

  std::shared_ptr<const Buffer> bytes_;  // keeps data_ alive
  const std::byte* data_;
  std::size_t column_stride_;
};

class ByteRows final : public CodeSource {
 public:
  ByteRows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes, std::uint8_t flip)
      : bytes_(std::move(bytes)), data_(bytes_->data() + offset), row_bytes_(row_bytes), flip_(flip) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* row = data_ + static_cast<std::size_t>(n0 + i) * row_bytes_ + k0;
      std::uint8_t* to = out + static_cast<std::size_t>(i) * stride;
      prefetch_ahead(row + k, 64);
      std::int64_t j = 0;
      for (; j + 64 <= k; j += 64) {
        std::array<std::uint8_t, 64> codes;
        std::memcpy(codes.data(), row + j, codes.size());
        for (auto& code : codes) code ^= flip_;
        std::memcpy(to + j, codes.data(), codes.size());
      }
      for (; j < k; ++j) to[j] = std::to_integer<std::uint8_t>(row[j]) ^ flip_;
    }
  }

 private:
  std::shared_ptr<const Buffer> bytes_;  // keeps data_ alive
  const std::byte* data_;
  std::size_t row_bytes_;
  std::uint8_t flip_;
};

}  // namespace

std::shared_ptr<const CodeSource> nibble_columns(std::shared_ptr<const Buffer> bytes, std::size_t offset,
                                                 std::size_t column_stride) {
  return std::make_shared<NibbleColumns>(std::move(bytes), offset, column_stride);
}

std::shared_ptr<const CodeSource> byte_rows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes,
                                            std::uint8_t flip) {
  return std::make_shared<ByteRows>(std::move(bytes), offset, row_bytes, flip);
}

}  // namespace swordfish
