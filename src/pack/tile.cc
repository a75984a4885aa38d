// Moving codes with the compiler's 16-byte vectors: every step is one interleave that SSE2 and NEON have as one
// instruction, so the baseline of the machine is enough and nothing is dispatched at run time.
#include "pack/tile.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <array>
#include <cstring>

#include "pack/mma64.h"

namespace swordfish {
namespace {

using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Pairs = std::uint64_t __attribute__((vector_size(16)));

constexpr std::size_t kSliceBytes = 512;  // a sub-tile of 16 columns of 4-bit codes

inline Bytes load(const std::uint8_t* p) {
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline Bytes interleave_lower(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes interleave_upper(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Pairs interleave_lower(Words a, Words b) { return reinterpret_cast<Pairs>(__builtin_shufflevector(a, b, 0, 4, 1, 5)); }
inline Pairs interleave_upper(Words a, Words b) { return reinterpret_cast<Pairs>(__builtin_shufflevector(a, b, 2, 6, 3, 7)); }
// Past the caches, where the machine can: a store that first fetches its line takes memory bandwidth from the reads beside it.
inline void stream(Pairs v, std::uint8_t* out) {
#if defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(out), reinterpret_cast<__m128i>(v));
#else
  std::memcpy(out, &v, sizeof v);
#endif
}
inline void store_lower(Pairs a, Pairs b, std::uint8_t* out) { stream(__builtin_shufflevector(a, b, 0, 2), out); }
inline void store_upper(Pairs a, Pairs b, std::uint8_t* out) { stream(__builtin_shufflevector(a, b, 1, 3), out); }

// rj holds word j of the lanes 4g … 4g+3, for one g. A 4x4 transpose of words puts each lane's four words together: 64 bytes.
inline void store_lanes(Bytes r0, Bytes r1, Bytes r2, Bytes r3, std::uint8_t* out) {
  const auto w0 = reinterpret_cast<Words>(r0), w1 = reinterpret_cast<Words>(r1);
  const auto w2 = reinterpret_cast<Words>(r2), w3 = reinterpret_cast<Words>(r3);
  const Pairs a = interleave_lower(w0, w1), b = interleave_lower(w2, w3);
  const Pairs c = interleave_upper(w0, w1), d = interleave_upper(w2, w3);
  store_lower(a, b, out);
  store_upper(a, b, out + 16);
  store_lower(c, d, out + 32);
  store_upper(c, d, out + 48);
}

// Rows n and n+8, 16 columns of 4-bit codes, as the words of t = 0..3: column c meets c+8 in a byte, row n meets n+8 in a pair.
inline Bytes words4(const std::uint8_t* row, std::size_t stride) {
  const Bytes a = load(row), b = load(row + 8 * stride);
  // One shift of whole words: codes are at most 15, so that nothing crosses a byte.
  return interleave_lower(a, b) | reinterpret_cast<Bytes>(reinterpret_cast<Words>(interleave_upper(a, b)) << 4);
}

// One row, 16 columns of 8-bit codes, as the words of t = 0..3.
inline Bytes words8(const std::uint8_t* row) {
  const Bytes v = load(row);
  return __builtin_shufflevector(v, v, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Rows g and g+8 of every word, 32 columns of 16 bytes: the words of t = 0..3 for the first and the second 16 columns.
struct TwoSlices {
  Bytes first, second;
};
inline TwoSlices words_of_rows(const std::uint8_t* row, std::size_t row_bytes) {
  const Bytes a = load(row), b = load(row + 8 * row_bytes);
  // Bytes of the two rows side by side; of 16 columns the first four pairs hold columns 2t and 2t+1, the other four 2t+8 and 2t+9.
  const auto s0 = reinterpret_cast<Pairs>(interleave_lower(a, b)), s1 = reinterpret_cast<Pairs>(interleave_upper(a, b));
  auto near = reinterpret_cast<Words>(__builtin_shufflevector(s0, s1, 0, 2));
  auto far = reinterpret_cast<Words>(__builtin_shufflevector(s0, s1, 1, 3));
  // The high nibbles of `near` change places with the low ones of `far`: even columns, then odd ones.
  const Words swap = (near >> 4 ^ far) & 0x0f0f0f0fu;
  far ^= swap;
  near ^= swap << 4;
  const auto even = reinterpret_cast<Halves>(near), odd = reinterpret_cast<Halves>(far);
  return {reinterpret_cast<Bytes>(__builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11)),
          reinterpret_cast<Bytes>(__builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15))};
}

}  // namespace

void pack_blocks(int bits, const std::uint8_t* tile, std::size_t stride, std::int64_t blocks, std::uint8_t* out) {
  const std::int64_t slices = blocks * (mma64::block_k(bits) / mma64::slice_k);
  for (std::int64_t s = 0; s < slices; ++s, tile += mma64::slice_k) {
    if (bits == 8) {
      for (std::size_t h = 0; h < 2; ++h) {
        for (std::size_t g = 0; g < 8; ++g, out += 64) {
          const std::uint8_t* row = tile + (32 * h + g) * stride;
          store_lanes(words8(row), words8(row + 8 * stride), words8(row + 16 * stride), words8(row + 24 * stride), out);
        }
      }
    } else {
      for (std::size_t g = 0; g < 8; ++g, out += 64) {
        const std::uint8_t* row = tile + g * stride;
        store_lanes(words4(row, stride), words4(row + 16 * stride, stride), words4(row + 32 * stride, stride),
                    words4(row + 48 * stride, stride), out);
      }
    }
  }
}

void pack_stored_rows(const std::byte* rows, std::size_t row_bytes, std::int64_t blocks, std::uint8_t* out) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(rows);
  for (std::int64_t pair = 0; pair < 2 * blocks; ++pair, from += sizeof(Bytes), out += 2 * kSliceBytes) {
    for (std::size_t g = 0; g < 8; ++g) {
      const std::uint8_t* row = from + g * row_bytes;
      const TwoSlices w0 = words_of_rows(row, row_bytes), w1 = words_of_rows(row + 16 * row_bytes, row_bytes);
      const TwoSlices w2 = words_of_rows(row + 32 * row_bytes, row_bytes), w3 = words_of_rows(row + 48 * row_bytes, row_bytes);
      store_lanes(w0.first, w1.first, w2.first, w3.first, out + 64 * g);
      store_lanes(w0.second, w1.second, w2.second, w3.second, out + kSliceBytes + 64 * g);
    }
  }
}

void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

void transpose_16(const std::uint8_t* const columns[16], std::uint8_t* out, std::size_t stride) {
  std::array<Bytes, 16> a, b;
  for (std::size_t j = 0; j < 16; ++j) a[j] = load(columns[j]);
  // Seen as one run of 256 bytes, each round moves the bits of a byte's index on by one place; four of them swap row and column.
  for (int round = 0; round < 4; ++round) {
    for (std::size_t j = 0; j < 8; ++j) {
      b[2 * j] = interleave_lower(a[j], a[j + 8]);
      b[2 * j + 1] = interleave_upper(a[j], a[j + 8]);
    }
    a = b;
  }
  for (std::size_t i = 0; i < 16; ++i) std::memcpy(out + i * stride, &a[i], sizeof(Bytes));
}

}  // namespace swordfish
