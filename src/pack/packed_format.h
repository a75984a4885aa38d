// The file of packed weights: what its tensors are called and what its metadata says, for the writer and the reader.
//
// A packed file is a valid safetensors file (formats.md 1) whose header is padded with spaces so that the data section begins at a
// multiple of 4,096. For each layer, or each expert "<layer>.expert<e>" of a stacked layer, it holds, in this order:
//
//   tensor                   type                              shape
//   <entry>.codes            I32                               [n_blocks, k_blocks, 512]   blocks of 2,048 bytes (pack/mma64.h)
//   <entry>.scales           F16, BF16, F32, F8_E4M3, F8_E8M0  [n_blocks, rows, 64]
//   <entry>.zeros            U8, I16                           [n_blocks, rows, 64]        where zero points are integers
//   <entry>.offsets          F16, BF16, F32                    [n_blocks, rows, 64]        where offsets are real
//   <entry>.gather           I32                               [packed K]                  where columns are sorted; −1: padding
//   <entry>.row_of_slice     I32                               [packed K / 16 rounded up to 16]   where groups are irregular
//   <layer>.bias             F32                               [n] or [experts, n]         where the layer has one
//
// That is layout mma64/1. In sm1xx-blockscaled/1 (pack/sm1xx.h) every layer is fp4, and an entry has two tensors:
//
//   <entry>.codes            U8                                [n, ceil(k/2)]
//   <entry>.scales           F8_E4M3, F8_E8M0                  [n_blocks, k_blocks, 512]   atoms
//
// Biases come last in the file; all other tensors begin at a multiple of 64 bytes. __metadata__ holds strings:
//
//   "swordfish.layout"       "mma64/1" or "sm1xx-blockscaled/1", one for the whole file
//   "swordfish.version"      of the program that wrote the file
//   "swordfish.layers"       a JSON array with one object a layer:
//     {"name": text, "scheme": text, "code": "int4" | "int8" | "fp4", "k": K, "experts": 0 or their number,
//      "parts": [{"name": text, "weight": text, "n": rows}, ...],
//      "entries": [{"group_size": G, "zero": Z, "globals": [[value, "multiply" | "divide"], ...]}, ...]}
//     with one entry for a plain layer, else one for each expert; one global for each part, which is exactly an fp32 value. G and Z
//     are PackedView's group_size (0 beside row_of_slice) and zero.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/container.h"
#include "pack/packed_weight.h"
#include "pack/sm1xx.h"
#include "swordfish/dtype.h"
#include "swordfish/pack.h"

namespace swordfish {

inline constexpr char kLayoutKey[] = "swordfish.layout";
inline constexpr char kVersionKey[] = "swordfish.version";
inline constexpr char kLayersKey[] = "swordfish.layers";
inline constexpr std::int64_t kRowOfSliceMultiple = 16;  // entries: 64 bytes

inline std::string entry_name(const std::string& layer, std::int64_t experts, std::int64_t expert) {
  return experts == 0 ? layer : layer + ".expert" + std::to_string(expert);
}

// One tensor of an entry: its last name component, what it must look like, and the buffer that it fills in a PackedWeight.
struct PackedPlane {
  const char* leaf;
  DType dtype;
  std::vector<std::int64_t> shape;
  Buffer PackedWeight::*buffer;
  std::size_t bytes() const {
    std::size_t size = static_cast<std::size_t>(bits(dtype)) / 8;
    for (const std::int64_t dim : shape) size *= static_cast<std::size_t>(dim);
    return size;
  }
};

// The tensors of an open packed file, for those that read planes in their own way. They live as long as the file's handle, moved or
// not.
struct PackedFileAccess {
  static const Container& tensors(const PackedFile& file);
};

// Rows of a block of scales (and, in mma64/1, of codes).
inline std::int64_t block_rows(Layout layout) { return layout == Layout::mma64_1 ? mma64::block_n : sm1xx::atom_n; }

// Every plane that a weight of this shape can have, in file order. Types come from the view; codes and scales are always there.
inline std::vector<PackedPlane> packed_planes(const PackedView& v) {
  if (v.layout == Layout::sm1xx_blockscaled_1) {
    return {{"codes", DType::u8, {v.n, ceil_div(v.k, 2)}, &PackedWeight::codes},
            {"scales", v.scale_type, {v.n_blocks, v.k_blocks, sm1xx::atom_bytes}, &PackedWeight::scales}};
  }
  const std::int64_t slices = v.packed_k() / mma64::slice_k;
  const std::vector<std::int64_t> plane{v.n_blocks, v.rows, mma64::block_n};
  return {{"codes", DType::i32, {v.n_blocks, v.k_blocks, mma64::block_bytes / 4}, &PackedWeight::codes},
          {"scales", v.scale_type, plane, &PackedWeight::scales},
          {"zeros", v.zero_type, plane, &PackedWeight::zeros},
          {"offsets", v.offset_type, plane, &PackedWeight::offsets},
          {"gather", DType::i32, {v.packed_k()}, &PackedWeight::gather},
          {"row_of_slice", DType::i32, {ceil_div(slices, kRowOfSliceMultiple) * kRowOfSliceMultiple}, &PackedWeight::row_of_slice}};
}

}  // namespace swordfish
