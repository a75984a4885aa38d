// Rows of bytes with two 4-bit codes each: the code source, and its reading code by code.
#include "quant/nibble_rows.h"

#include <utility>

#include "base/prefetch.h"

namespace swordfish {
namespace {

class NibbleRows final : public CodeSource {
 public:
  NibbleRows(const void* data, std::size_t row_bytes, std::shared_ptr<const void> keep_alive)
      : keep_alive_(std::move(keep_alive)), rows_{static_cast<const std::byte*>(data), row_bytes} {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* row = rows_.data + static_cast<std::size_t>(n0 + i) * rows_.row_bytes;
      std::uint8_t* to = out + static_cast<std::size_t>(i) * stride;
      prefetch_ahead(row + (k0 + k) / 2, 32);
      std::int64_t j = 0;
      if (k0 % 2 == 0) {
        for (; j + 64 <= k; j += 64) expand_nibbles_32(row + (k0 + j) / 2, to + j);
      }
      for (; j < k; ++j) {
        const auto byte = std::to_integer<unsigned>(row[(k0 + j) / 2]);
        to[j] = static_cast<std::uint8_t>((k0 + j) % 2 == 0 ? byte & 15u : byte >> 4);
      }
    }
  }

  StoredRows stored_rows() const override { return rows_; }

 private:
  std::shared_ptr<const void> keep_alive_;
  StoredRows rows_;
};

}  // namespace

std::shared_ptr<const CodeSource> nibble_rows(const void* data, std::size_t row_bytes, std::shared_ptr<const void> keep_alive) {
  return std::make_shared<NibbleRows>(data, row_bytes, std::move(keep_alive));
}

}  // namespace swordfish
