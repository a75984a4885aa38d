// Code sources of two plain arrangements that several formats share: 4-bit codes two a byte along K, and 8-bit codes.
//
// nibble_rows: byte j of a row holds q[n, 2j] in its low nibble and q[n, 2j+1] in its high one.
// byte_rows:   byte k of a row holds q[n, k], XORed with a constant (0x80 turns two's complement into offset-128).
#include <array>
#include <cstring>
#include <utility>

#include "formats/format.h"

namespace swordfish {
namespace {

// 32 bytes -> 64 codes. The counts are constants, so that the compiler turns this into and/shift/unpack on whole vectors (a 64 x 64
// tile in about 700 cycles with SSE2 alone).
void expand_32(const std::byte* in, std::uint8_t* out) {
  std::array<std::uint8_t, 32> bytes;
  std::memcpy(bytes.data(), in, bytes.size());
  for (std::size_t j = 0; j < 32; ++j) {
    out[2 * j] = bytes[j] & 15;
    out[2 * j + 1] = bytes[j] >> 4;
  }
}

class NibbleRows final : public CodeSource {
 public:
  NibbleRows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes)
      : bytes_(std::move(bytes)), data_(bytes_->data() + offset), row_bytes_(row_bytes) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* row = data_ + static_cast<std::size_t>(n0 + i) * row_bytes_;
      std::uint8_t* to = out + static_cast<std::size_t>(i) * stride;
      std::int64_t j = 0;
      if (k0 % 2 == 0) {
        for (; j + 64 <= k; j += 64) expand_32(row + (k0 + j) / 2, to + j);
      }
      for (; j < k; ++j) {
        const auto byte = std::to_integer<unsigned>(row[(k0 + j) / 2]);
        to[j] = static_cast<std::uint8_t>((k0 + j) % 2 == 0 ? byte & 15u : byte >> 4);
      }
    }
  }

 private:
  std::shared_ptr<const Buffer> bytes_;
  const std::byte* data_;
  std::size_t row_bytes_;
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
  std::shared_ptr<const Buffer> bytes_;
  const std::byte* data_;
  std::size_t row_bytes_;
  std::uint8_t flip_;
};

}  // namespace

std::shared_ptr<const CodeSource> nibble_rows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes) {
  return std::make_shared<NibbleRows>(std::move(bytes), offset, row_bytes);
}

std::shared_ptr<const CodeSource> byte_rows(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::size_t row_bytes,
                                            std::uint8_t flip) {
  return std::make_shared<ByteRows>(std::move(bytes), offset, row_bytes, flip);
}

}  // namespace swordfish
