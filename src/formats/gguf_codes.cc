// Code sources over GGUF blocks: unpacks the nibble and high-bit arrangements of each block type into one byte a code.
//
// Each type is described by one struct: bytes and elements of a block, elements of a unit (the run of consecutive k that its bytes
// give without touching the rest of the block), and decode(block, unit, out). Byte specification, offsets in a block:
//
//   type   bytes/elements  codes
//   Q4_0    18/32   d[0,2) qs[2,18)                       byte j: element j low, j+16 high
//   Q4_1    20/32   d m qs[4,20)                          the same
//   Q5_0    22/32   d qh[2,6) qs[6,22)                    low four bits the same; bit 4 of element j is bit j of qh
//   Q5_1    24/32   d m qh[4,8) qs[8,24)                  the same
//   Q8_0    34/32   d q[2,34)                             two's complement
//   Q4_K   144/256  d dmin sc[4,16) qs[16,144)            unit p of 64: bytes 32p..32p+31, 32 low nibbles then 32 high
//   Q5_K   176/256  d dmin sc[4,16) qh[16,48) qs[48,176)  the same; bit 4 of element l of sub-block i is bit i of qh[l]
//   Q6_K   210/256  ql[0,128) qh[128,192) sc[192,208) d   half h of 128, element l + 32·s: low bits from ql[64h + l + 32·(s&1)],
//   nibble s/2,
//                                                         high bits (qh[32h + l] >> 2s) & 3
//   MXFP4   17/32   e qs[1,17)                            as Q4_0
//   NVFP4   36/64   s[0,4) qs[4,36)                       unit s of 16: byte j of 8: element j low, j+8 high
//
// All loops have constant counts over contiguous bytes, so that the compiler makes whole-vector code of them.
#include "formats/gguf_codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/prefetch.h"

namespace swordfish {
namespace {

// A copy of N bytes in registers: `out` cannot alias it, which is what lets the loops below vectorise.
template <std::size_t N>
std::array<std::uint8_t, N> load(const std::byte* p) {
  std::array<std::uint8_t, N> v;
  std::memcpy(v.data(), p, N);
  return v;
}

// Eight codes at a time in a 64-bit word, where a block has too few bytes for whole vectors: byte j of the word is element j.
static_assert(std::endian::native == std::endian::little);
constexpr std::uint64_t kOnes = 0x0101010101010101u;

// H bytes -> H low nibbles, then H high ones.
template <std::size_t H>
void split_nibbles(const std::byte* in, std::uint8_t* out) {
  const auto q = load<H>(in);
  for (std::size_t j = 0; j < H; ++j) out[j] = q[j] & 15;
  for (std::size_t j = 0; j < H; ++j) out[H + j] = q[j] >> 4;
}

template <std::size_t Bytes, std::size_t CodesAt>
struct Nibbles32 {
  static constexpr std::size_t bytes = Bytes;
  static constexpr std::int64_t elements = 32, unit = 32;
  static void decode(const std::byte* block, std::int64_t, std::uint8_t* out) { split_nibbles<16>(block + CodesAt, out); }
};
using Q4_0 = Nibbles32<18, 2>;
using Q4_1 = Nibbles32<20, 4>;
using Mxfp4 = Nibbles32<17, 1>;

template <std::size_t Bytes, std::size_t HighAt, std::uint8_t Bias>
struct Q5 {
  static constexpr std::size_t bytes = Bytes;
  static constexpr std::int64_t elements = 32, unit = 32;
  static void decode(const std::byte* block, std::int64_t, std::uint8_t* out) {
    std::uint64_t q[2];
    std::memcpy(q, block + HighAt + 4, sizeof q);
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint64_t low = (j < 2 ? q[j] : q[j - 2] >> 4) & (15 * kOnes);
      const std::uint64_t codes = (low | high_bits(std::to_integer<std::uint8_t>(block[HighAt + j]))) + Bias * kOnes;
      std::memcpy(out + 8 * j, &codes, sizeof codes);
    }
  }

 private:
  // Bit j of `bits` as bit 4 of byte j: a copy in each byte, one bit kept of each, 0x7f added (no byte can overflow) moves "some
  // bit" to bit 7, which is shifted into place.
  static std::uint64_t high_bits(std::uint64_t bits) {
    return ((((bits * kOnes) & 0x8040201008040201u) + 0x7f * kOnes) >> 3) & (16 * kOnes);
  }
};
using Q5_0 = Q5<22, 2, 112>;
using Q5_1 = Q5<24, 4, 0>;

struct Q8_0 {
  static constexpr std::size_t bytes = 34;
  static constexpr std::int64_t elements = 32, unit = 32;
  static void decode(const std::byte* block, std::int64_t, std::uint8_t* out) {
    const auto q = load<32>(block + 2);
    for (std::size_t j = 0; j < 32; ++j) out[j] = q[j] ^ 0x80;
  }
};

struct Q4K {
  static constexpr std::size_t bytes = 144;
  static constexpr std::int64_t elements = 256, unit = 64;
  static void decode(const std::byte* block, std::int64_t u, std::uint8_t* out) { split_nibbles<32>(block + 16 + 32 * u, out); }
};

struct Q5K {
  static constexpr std::size_t bytes = 176;
  static constexpr std::int64_t elements = 256, unit = 64;
  static void decode(const std::byte* block, std::int64_t u, std::uint8_t* out) {
    const auto high = load<32>(block + 16);
    const auto q = load<32>(block + 48 + 32 * u);
    const auto low_bit = static_cast<std::uint8_t>(1u << (2 * u)), high_bit = static_cast<std::uint8_t>(2u << (2 * u));
    for (std::size_t j = 0; j < 32; ++j) out[j] = static_cast<std::uint8_t>((q[j] & 15) | ((high[j] & low_bit) != 0 ? 16 : 0));
    for (std::size_t j = 0; j < 32; ++j)
      out[32 + j] = static_cast<std::uint8_t>((q[j] >> 4) | ((high[j] & high_bit) != 0 ? 16 : 0));
  }
};

struct Q6K {
  static constexpr std::size_t bytes = 210;
  static constexpr std::int64_t elements = 256, unit = 64;
  // Unit u is s = 2·(u%2) and s+1 of half u/2: its low bits are nibble u%2 of 64 bytes of ql.
  static void decode(const std::byte* block, std::int64_t u, std::uint8_t* out) {
    const std::byte* low = block + 64 * (u / 2);
    const std::byte* high = block + 128 + 32 * (u / 2);
    u % 2 == 0 ? combine<0>(low, high, out) : combine<4>(low, high, out);
  }

 private:
  template <int Shift>
  static void combine(const std::byte* low_bits, const std::byte* high_bits, std::uint8_t* out) {
    const auto low = load<64>(low_bits);
    const auto high = load<32>(high_bits);
    for (std::size_t j = 0; j < 32; ++j) {
      out[j] = static_cast<std::uint8_t>((((low[j] >> Shift) & 15) | (((high[j] >> Shift) & 3) << 4)) + 96);
    }
    for (std::size_t j = 0; j < 32; ++j) {
      out[32 + j] = static_cast<std::uint8_t>((((low[32 + j] >> Shift) & 15) | (((high[j] >> Shift) & 12) << 2)) + 96);
    }
  }
};

struct Nvfp4 {
  static constexpr std::size_t bytes = 36;
  static constexpr std::int64_t elements = 64, unit = 16;
  static void decode(const std::byte* block, std::int64_t u, std::uint8_t* out) {
    std::uint64_t q;
    std::memcpy(&q, block + 4 + 8 * u, sizeof q);
    const std::uint64_t codes[2] = {q & (15 * kOnes), (q >> 4) & (15 * kOnes)};
    std::memcpy(out, codes, sizeof codes);
  }
};

template <class Type>
class BlockCodes final : public CodeSource {
 public:
  BlockCodes(std::shared_ptr<const Buffer> bytes, std::size_t row_blocks)
      : bytes_(std::move(bytes)), row_bytes_(row_blocks * Type::bytes) {}

  void read(std::int64_t n0, std::int64_t n, std::int64_t k0, std::int64_t k, std::uint8_t* out,
            std::size_t stride) const override {
    const std::int64_t end = k0 + k;
    const std::int64_t whole0 = std::min(end, (k0 + Type::unit - 1) / Type::unit * Type::unit);  // units that lie inside the range
    const std::int64_t whole1 = std::max(whole0, end / Type::unit * Type::unit);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::byte* row = bytes_->data() + static_cast<std::size_t>(n0 + i) * row_bytes_;
      std::uint8_t* to = out + static_cast<std::size_t>(i) * stride;
      prefetch_ahead(row + static_cast<std::size_t>(end / Type::elements) * Type::bytes, 64 * Type::bytes / Type::elements);
      if (k0 < whole0) part(row, k0, whole0, to);
      for (std::int64_t kk = whole0; kk < whole1; kk += Type::unit) unit(row, kk, to + (kk - k0));
      if (whole1 < end) part(row, whole1, end, to + (whole1 - k0));
    }
  }

 private:
  static void unit(const std::byte* row, std::int64_t k, std::uint8_t* out) {
    Type::decode(row + static_cast<std::size_t>(k / Type::elements) * Type::bytes, k % Type::elements / Type::unit, out);
  }
  // [k, end) inside one unit.
  static void part(const std::byte* row, std::int64_t k, std::int64_t end, std::uint8_t* out) {
    std::array<std::uint8_t, static_cast<std::size_t>(Type::unit)> codes;
    const std::int64_t start = k / Type::unit * Type::unit;
    unit(row, start, codes.data());
    std::memcpy(out, codes.data() + (k - start), static_cast<std::size_t>(end - k));
  }

  std::shared_ptr<const Buffer> bytes_;
  std::size_t row_bytes_;
};

}  // namespace

std::shared_ptr<const CodeSource> gguf_codes(GgufBlock type, std::shared_ptr<const Buffer> bytes, std::size_t row_blocks) {
  switch (type) {
    case GgufBlock::q4_0: return std::make_shared<BlockCodes<Q4_0>>(std::move(bytes), row_blocks);
    case GgufBlock::q4_1: return std::make_shared<BlockCodes<Q4_1>>(std::move(bytes), row_blocks);
    case GgufBlock::q5_0: return std::make_shared<BlockCodes<Q5_0>>(std::move(bytes), row_blocks);
    case GgufBlock::q5_1: return std::make_shared<BlockCodes<Q5_1>>(std::move(bytes), row_blocks);
    case GgufBlock::q8_0: return std::make_shared<BlockCodes<Q8_0>>(std::move(bytes), row_blocks);
    case GgufBlock::q4_k: return std::make_shared<BlockCodes<Q4K>>(std::move(bytes), row_blocks);
    case GgufBlock::q5_k: return std::make_shared<BlockCodes<Q5K>>(std::move(bytes), row_blocks);
    case GgufBlock::q6_k: return std::make_shared<BlockCodes<Q6K>>(std::move(bytes), row_blocks);
    case GgufBlock::mxfp4: return std::make_shared<BlockCodes<Mxfp4>>(std::move(bytes), row_blocks);
    case GgufBlock::nvfp4: return std::make_shared<BlockCodes<Nvfp4>>(std::move(bytes), row_blocks);
  }
  return nullptr;
}

}  // namespace swordfish
