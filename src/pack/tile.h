// Moving codes into mma64/1 blocks, vectorised: from a tile (one byte a code, rows of W), or from rows of two codes a byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swordfish {

// Packs `blocks` neighbouring blocks along K of one n64 column. tile[i*stride + j] is the code of row i in [0,64) and column j in
// [0, blocks · mma64::block_k(bits)); for bits = 4 every code is at most 15. out: blocks · 2048 bytes, 16-byte aligned.
// Other threads see them after finish_stores().
void pack_blocks(int bits, const std::uint8_t* tile, std::size_t stride, std::int64_t blocks, std::uint8_t* out);

// The same from rows of two 4-bit codes a byte: byte i*row_bytes + j holds columns 2j (low nibble) and 2j+1 of row i in [0,64), for
// j in [0, 32 · blocks).
void pack_stored_rows(const std::byte* rows, std::size_t row_bytes, std::int64_t blocks, std::uint8_t* out);

// What this thread has packed becomes visible to the threads that it tells of it (the stores go past the caches, out of order).
void finish_stores();

// out[i*stride + j] = columns[j][i] for i and j in [0, 16): 16 columns of 16 codes become 16 rows. The other way round too.
void transpose_16(const std::uint8_t* const columns[16], std::uint8_t* out, std::size_t stride);

}  // namespace swordfish
