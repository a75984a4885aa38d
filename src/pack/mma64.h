// mma64/1: the byte layout of packed codes, as constexpr functions that host and device code share.
//
// N is cut into blocks of 64 rows, K into blocks of 64 columns (int4, fp4) or 32 columns (int8). A block is 2,048 bytes. Block
// (nb, kb) of a weight with KB blocks along K lies at byte 2048·(nb·KB + kb), so one n64 column streams from front to back, and a
// block can be copied as raw bytes (no tensor map). All words are little-endian.
//
// A block is a run of k16 sub-tiles; sub-tile s holds columns k = 16s … 16s+15 of all 64 rows. In each sub-tile (int4, fp4) or half
// sub-tile (int8) of 512 bytes, lane l of a warp owns the 16 bytes from 16l: one conflict-free 16-byte access, and the four words
// it reads are already the operands of mma.sync m16n8k16 and of wgmma's register A. Write g = l / 4 and t = l % 4.
//
//   int4, fp4: 4 sub-tiles of 512 bytes                 int8: 2 sub-tiles of 2 halves h of 512 bytes
//
//     byte 0      512     1024    1536    2048            byte 0      512     1024    1536    2048
//     +-------+-------+-------+-------+                   +-------+-------+-------+-------+
//     | s = 0 | s = 1 | s = 2 | s = 3 |                   |s=0 h=0|s=0 h=1|s=1 h=0|s=1 h=1|
//     | k 0…15|16…31  |32…47  |48…63  |                   |k 0…15, n 0…31 |  32…63| k 16…31 ...
//     +-------+-------+-------+-------+                   +-------+-------+-------+-------+
//
//   Inside 512 bytes, lanes lie side by side, four words each:
//
//     lane 0              lane 1              lane 2                    lane 31
//     | w0 | w1 | w2 | w3 | w0 | w1 | w2 | w3 | w0 | ...            ... | w0 | w1 | w2 | w3 |
//
//   int4, fp4: word j is the 16×16 patch n = 16j … 16j+15 of the sub-tile. Nibble 0 is bits 0–3.
//
//     nibble     7       6       5       4       3       2       1       0
//     row n    g+8     g+8       g       g     g+8     g+8       g       g       (+ 16j)
//     col k   2t+9    2t+1    2t+9    2t+1    2t+8      2t    2t+8      2t       (+ 16s)
//
//     (w >> 4i) & 0x000f000f is one pair of neighbouring columns in mma order: as B fragments i = 0, 1 (rows g), then 2, 3 (rows
//     g+8); as the A fragment (16 rows of W × 16 k) a0…a3 = i 0, 2, 1, 3.
//
//   int8: word 2p+r of half h holds row n = 16(2h+p) + g + 8r.
//
//     byte       3       2       1       0
//     col k   2t+9    2t+1    2t+8      2t                                       (+ 16s)
//
// Golden words. int4, q[n,k] = (3n+k) % 16, sub-tile 0: lane 0 word 0 = 0x19910880, lane 5 word 2 = 0x6EE65DD5, lane 31 word 3 =
// 0xC44CB33B. int8, q[n,k] = (7n+k) % 256, sub-tile 0: lane 0 half 0 word 0 = 0x09010800, lane 5 half 0 word 2 = 0x827A8179, lane
// 31 half 1 word 3 = 0xC8C0C7BF.
//
// The scale, zero and offset planes are [N/64, rows, 64] in their stored type: the 64 values of a block's rows lie together for
// each scale row, and stream in the order of the codes.
#pragma once

#include <cstdint>

namespace swordfish::mma64 {

inline constexpr std::int64_t block_n = 64;
inline constexpr std::int64_t block_bytes = 2048;
inline constexpr std::int64_t slice_k = 16;  // a sub-tile's columns; each has one scale row

// Columns of a block, by the bits of a code (4 or 8).
constexpr std::int64_t block_k(int bits) { return bits == 8 ? 32 : 64; }

// First byte of block (nb, kb) in a weight with `k_blocks` blocks along K.
constexpr std::int64_t block_offset(std::int64_t nb, std::int64_t kb, std::int64_t k_blocks) {
  return block_bytes * (nb * k_blocks + kb);
}

// The lane that owns row n and column k of a block.
constexpr int lane(int n, int k) { return 4 * (n % 8) + k % 8 / 2; }

// Where the code of row n in [0,64) and column k in [0,64) lies in a block of 4-bit codes.
struct Nibble {
  int byte;
  int shift;  // 0 or 4
};
constexpr Nibble nibble4(int n, int k) {
  return {512 * (k / 16) + 16 * lane(n, k) + 4 * (n / 16) + 2 * (k & 1) + (n >> 3 & 1), 4 * (k >> 3 & 1)};
}

// The byte of row n in [0,64) and column k in [0,32) in a block of 8-bit codes.
constexpr int byte8(int n, int k) {
  return 1024 * (k / 16) + 512 * (n / 32) + 16 * lane(n, k) + 4 * (n / 8 % 4) + 2 * (k & 1) + (k >> 3 & 1);
}

// The code of row n and column k (inside the block) of one block.
constexpr std::uint8_t code_at(const std::uint8_t* block, int bits, int n, int k) {
  if (bits == 8) return block[byte8(n, k)];
  const Nibble at = nibble4(n, k);
  return static_cast<std::uint8_t>(block[at.byte] >> at.shift & 15);
}

}  // namespace swordfish::mma64
