// Crosswise code sources. The wide paths use 128-bit vectors of the baseline instruction set (SSE2, NEON): a 64 x 64 tile of GPTQ
// or AWQ takes 700 to 1,200 cycles when its bytes are in cache and 2,300 from memory, so that wider vectors would gain little.
// Fetching the next tile's rows ahead was tried and gave nothing.
#include "formats/word_codes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "quant/numeric.h"

namespace swordfish {
namespace {

// 128-bit vectors as GCC and clang both spell them; the shuffles become punpck on x86 and zip on Arm.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Longs = std::uint64_t __attribute__((vector_size(16)));

Bytes load(const std::byte* p) {
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
void store(V v, std::uint8_t* p) {
  std::memcpy(p, &v, sizeof v);
}
Bytes low_nibbles(Bytes v) { return v & 15; }
Bytes high_nibbles(Bytes v) { return v >> 4; }
Bytes lower(Bytes a, Bytes b) { return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
Bytes upper(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
Words lower(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Words upper(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
Longs lower(Longs a, Longs b) { return __builtin_shufflevector(a, b, 0, 2); }
Longs upper(Longs a, Longs b) { return __builtin_shufflevector(a, b, 1, 3); }

class GptqCodes final : public CodeSource {
 public:
  GptqCodes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n, int bits)
      : bytes_(std::move(bytes)), data_(bytes_->data() + offset), n_(n), bits_(bits), per_word_(32 / bits) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    const std::int64_t wide_n = n / 4 * 4;
    const std::int64_t wide_k = k0 % per_word_ == 0 ? k / 16 * 16 : 0;
    for (std::int64_t j = 0; j < wide_k; j += 16) {
      const std::byte* words = at(n0, k0 + j);
      for (std::int64_t i = 0; i < wide_n; i += 4) {
        std::uint8_t* to = out + static_cast<std::size_t>(i) * stride + j;
        if (bits_ == 4) {
          read_4x16_nibbles(words + 4 * i, to, stride);
        } else {
          read_4x16_bytes(words + 4 * i, to, stride);
        }
      }
    }
    read_narrow(n0, wide_n, n - wide_n, k0, 0, wide_k, out, stride);
    read_narrow(n0, 0, n, k0, wide_k, k - wide_k, out, stride);
  }

 private:
  const std::byte* at(std::int64_t n, std::int64_t k) const { return data_ + 4 * (k / per_word_ * n_ + n); }

  // Two rows of words, four columns: nibbles to bytes, then the two halves of each column side by side.
  void read_4x16_nibbles(const std::byte* words, std::uint8_t* out, std::size_t stride) const {
    const Bytes a = load(words), b = load(words + 4 * n_);
    const Bytes al = low_nibbles(a), ah = high_nibbles(a), bl = low_nibbles(b), bh = high_nibbles(b);
    store_columns(Longs(lower(al, ah)), Longs(lower(bl, bh)), out, stride);
    store_columns(Longs(upper(al, ah)), Longs(upper(bl, bh)), out + 2 * stride, stride);
  }

  // Four rows of words, four columns: a 4 x 4 transpose of words.
  void read_4x16_bytes(const std::byte* words, std::uint8_t* out, std::size_t stride) const {
    const auto row = [&](std::int64_t r) { return Words(load(words + 4 * r * n_)); };
    const Words a = row(0), b = row(1), c = row(2), d = row(3);
    store_columns(Longs(lower(a, b)), Longs(lower(c, d)), out, stride);
    store_columns(Longs(upper(a, b)), Longs(upper(c, d)), out + 2 * stride, stride);
  }

  // Two columns: their first halves are in `a`, their second halves in `b`.
  static void store_columns(Longs a, Longs b, std::uint8_t* out, std::size_t stride) {
    store(lower(a, b), out);
    store(upper(a, b), out + stride);
  }

  // Rows [i0, i0+n) and columns [j0, j0+k) of the range that begins at (n0, k0), code by code.
  void read_narrow(std::int64_t n0, std::int64_t i0, std::int64_t n, std::int64_t k0, std::int64_t j0, std::int64_t k,
                   std::uint8_t* out, std::size_t stride) const {
    const std::uint32_t mask = (1u << bits_) - 1;
    for (std::int64_t j = j0; j < j0 + k; ++j) {
      const std::byte* words = at(n0, k0 + j);
      const auto shift = static_cast<unsigned>(bits_ * ((k0 + j) % per_word_));
      for (std::int64_t i = i0; i < i0 + n; ++i) {
        out[static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j)] =
            static_cast<std::uint8_t>((load_unaligned<std::uint32_t>(words + 4 * i) >> shift) & mask);
      }
    }
  }

  std::shared_ptr<const Buffer> bytes_;
  const std::byte* data_;
  std::int64_t n_;
  int bits_;
  std::int64_t per_word_;
};

constexpr std::array<int, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};  // column of each lane

class AwqCodes final : public CodeSource {
 public:
  AwqCodes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n)
      : bytes_(std::move(bytes)), data_(bytes_->data() + offset), row_bytes_(n / 2) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    const std::int64_t wide_n = n0 % 8 == 0 ? n / 32 * 32 : 0;
    const std::int64_t wide_k = k / 16 * 16;
    for (std::int64_t i = 0; i < wide_n; i += 32) {
      for (std::int64_t j = 0; j < wide_k; j += 16) {
        read_32x16(data_ + (k0 + j) * row_bytes_ + (n0 + i) / 2, out + static_cast<std::size_t>(i) * stride + j, stride);
      }
    }
    read_narrow(n0, wide_n, n - wide_n, k0, 0, wide_k, out, stride);
    read_narrow(n0, 0, n, k0, wide_k, k - wide_k, out, stride);
  }

 private:
  // 16 rows (k) of 16 bytes (32 columns): transposed as bytes, four rounds of interleaving row i with row i + 8; then each vector
  // holds two columns, one in its low nibbles and one in its high ones.
  void read_32x16(const std::byte* in, std::uint8_t* out, std::size_t stride) const {
    Bytes a[16];
    Bytes b[16];
    for (int i = 0; i < 16; ++i) a[i] = load(in + i * row_bytes_);
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = lower(a[i], a[i + 8]);
      b[2 * i + 1] = upper(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = lower(b[i], b[i + 8]);
      a[2 * i + 1] = upper(b[i], b[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = lower(a[i], a[i + 8]);
      b[2 * i + 1] = upper(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = lower(b[i], b[i + 8]);
      a[2 * i + 1] = upper(b[i], b[i + 8]);
    }
    for (int i = 0; i < 16; ++i) {
      const auto at = static_cast<std::size_t>(i), word = 8 * (at / 4), lane = 2 * (at % 4);
      store(low_nibbles(a[i]), out + (word + static_cast<std::size_t>(kAwqOrder[lane])) * stride);
      store(high_nibbles(a[i]), out + (word + static_cast<std::size_t>(kAwqOrder[lane + 1])) * stride);
    }
  }

  void read_narrow(std::int64_t n0, std::int64_t i0, std::int64_t n, std::int64_t k0, std::int64_t j0, std::int64_t k,
                   std::uint8_t* out, std::size_t stride) const {
    for (std::int64_t j = j0; j < j0 + k; ++j) {
      const std::byte* row = data_ + (k0 + j) * row_bytes_;
      for (std::int64_t i = i0; i < i0 + n; ++i) {
        const auto word = load_unaligned<std::uint32_t>(row + (n0 + i) / 8 * 4);
        out[static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j)] =
            static_cast<std::uint8_t>((word >> (4 * kAwqLane[(n0 + i) % 8])) & 15u);
      }
    }
  }

  std::shared_ptr<const Buffer> bytes_;
  const std::byte* data_;
  std::int64_t row_bytes_;
};

}  // namespace

std::shared_ptr<const CodeSource> gptq_codes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n, int bits) {
  return std::make_shared<GptqCodes>(std::move(bytes), offset, n, bits);
}

std::shared_ptr<const CodeSource> awq_codes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n) {
  return std::make_shared<AwqCodes>(std::move(bytes), offset, n);
}

void unpack_words(const std::byte* in, std::int64_t rows, std::int64_t words, std::int64_t n, int bits, const int* lane_of,
                  std::uint32_t add, std::uint8_t* out) {
  const int per_word = 32 / bits;
  const std::uint32_t mask = (1u << bits) - 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* row = in + 4 * r * words;
    for (std::int64_t i = 0; i < n; i += per_word) {
      const std::uint32_t word = load_unaligned<std::uint32_t>(row + i / per_word * 4) + add;
      const std::int64_t count = std::min<std::int64_t>(per_word, n - i);
      for (std::int64_t j = 0; j < count; ++j) {
        out[r * n + i + j] = static_cast<std::uint8_t>((word >> (bits * (lane_of ? lane_of[j] : static_cast<int>(j)))) & mask);
      }
    }
  }
}

}  // namespace swordfish
