// sm1xx-blockscaled/1: the byte layout of FP4 weights for Blackwell's block-scaled MMA, as constexpr functions that host and device
// code share.
//
// A weight [N, K] has S = ceil(K / V) scales a row, V = 16 (NVFP4, e4m3) or 32 (MXFP4, e8m0).
//
// Codes: [N, ceil(K/2)] bytes, row-major, no padding; the low nibble of byte j is column 2j, the high nibble column 2j+1 (0 past an
// odd K). The parts of a fused weight follow each other without a gap: row n0 of the part table is a row of this matrix.
//
// Scales: atoms of 512 bytes, 128 rows × 4 scales each (128 × 64 columns for NVFP4, 128 × 128 for MXFP4). Each part starts at an
// atom row of its own (block0 of the part table). With KT = ceil(S / 4), the scale s of row n of a part lies at byte
//
//     512·((block0 + n/128)·KT + s/4)  +  16·(n % 32) + 4·(n/32 % 4) + s % 4
//
//   atoms: K fastest                              one atom: 32 runs of 16 bytes
//
//              s 0…3     4…7            KT-1      byte 0        4         8         12        16
//            +--------+--------+- - -+--------+        +---------+---------+---------+---------+
//   n 0…127  | atom 0 | atom 1 |     | KT - 1 |      0 |  n = 0  | n = 32  | n = 64  | n = 96  |   each field: s = 0 1 2 3
//            +--------+--------+- - -+--------+     16 |  n = 1  | n = 33  | n = 65  | n = 97  |
//   128…255  |   KT   | KT + 1 |     |        |        |   ...                                 |
//            +--------+--------+- - -+--------+    496 |  n = 31 | n = 63  | n = 95  | n = 127 |
//                                                      +---------+---------+---------+---------+
//
// Rows and scales past the edge are zero bytes (an uninitialised byte may be a NaN, and 0 · NaN is NaN). The hardware reads e4m3
// scales as unsigned: −0 (0x80) becomes 0, other bytes with a sign are refused. Stacked experts: one such run of atoms an expert.
//
// This is CUTLASS's Sm1xxBlockScaledConfig<V>, layouts SFA and SFB (equal); tests/blockscaled evaluates it at every coordinate.
#pragma once

#include <cstdint>

namespace swordfish::sm1xx {

inline constexpr std::int64_t atom_n = 128;  // rows
inline constexpr std::int64_t atom_s = 4;    // scales along K
inline constexpr std::int64_t atom_bytes = atom_n * atom_s;

// Atoms along K for s scales a row.
constexpr std::int64_t k_atoms(std::int64_t s) { return (s + atom_s - 1) / atom_s; }

// Where scale s of row n lies, for `k_atoms` atoms along K.
constexpr std::int64_t scale_offset(std::int64_t n, std::int64_t s, std::int64_t k_atoms) {
  return atom_bytes * (n / atom_n * k_atoms + s / atom_s) + 16 * (n % 32) + 4 * (n / 32 % 4) + s % atom_s;
}

}  // namespace swordfish::sm1xx
