// Code sources of the two arrangements that hold K and N crosswise: GPTQ (words along K) and AWQ gemm (words along N).
//
// GPTQ, b bits, P = 32/b: word [k/P][n] holds q[n, k] at bits b·(k%P):
//
//            n = 0      1      2   …                       bits 31     …      0
//   k/P = 0  word   word   word          b = 4:  word =  | k+7 k+6 k+5 … k+1 k |
//   k/P = 1  word   word   word          b = 8:  word =  | k+3  k+2  k+1  k    |
//
// AWQ gemm, 4 bits: word [k][n/8] holds columns 8c+{0,2,4,6,1,3,5,7} in lanes 0..7 (lane i at bits 4i):
//
//   bits 31 … 0:  | 8c+7  8c+5  8c+3  8c+1  8c+6  8c+4  8c+2  8c+0 |
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "swordfish/buffer.h"
#include "swordfish/quant_tensor.h"

namespace swordfish {

// qweight [ceil(K/P), N] of 32-bit words at bytes + offset; bits is 4 or 8.
std::shared_ptr<const CodeSource> gptq_codes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n, int bits);
// qweight [K, N/8] of 32-bit words at bytes + offset.
std::shared_ptr<const CodeSource> awq_codes(std::shared_ptr<const Buffer> bytes, std::size_t offset, std::int64_t n);

// The lane of an AWQ word that holds column 8c + j is kAwqLane[j].
inline constexpr int kAwqLane[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Packed zero points: `rows` rows of `words` 32-bit words, P = 32/bits values a word along N, to one byte a value: out[r*n + i] for
// i < n ≤ words·P. `lane_of` maps i % P to its lane (null: natural order). `add` is added to each whole word first, modulo 2^32.
void unpack_words(const std::byte* in, std::int64_t rows, std::int64_t words, std::int64_t n, int bits, const int* lane_of,
                  std::uint32_t add, std::uint8_t* out);

}  // namespace swordfish
