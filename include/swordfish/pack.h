// PackedWeight: one weight in the layout that every kernel of its family reads, and the files that store such weights.
//
// Layout mma64/1: N is cut into blocks of 64 rows (n64), K into blocks of 64 columns (int4, fp4) or 32 (int8); a block is 2,048
// bytes at 2048·(nb·KB + kb). src/pack/mma64.h has the byte specification with a drawing.
//
// Layout sm1xx-blockscaled/1 (FP4 only): codes as in the checkpoint, block scales in the atoms that Blackwell's block-scaled MMA
// reads; src/pack/sm1xx.h has the byte specification with a drawing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "swordfish/buffer.h"
#include "swordfish/checkpoint.h"
#include "swordfish/quant_tensor.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

enum class Layout : std::uint8_t { mma64_1, sm1xx_blockscaled_1 };
std::string_view name(Layout layout);  // "mma64/1", "sm1xx-blockscaled/1"

// A row range of a fused weight with its own global. Each part starts at a block of rows of its own: 64 rows in mma64/1 (codes and
// planes), 128 in sm1xx-blockscaled/1 (scales only; codes are not padded).
struct PackedPart {
  std::string name;     // module path of the part
  std::int64_t n0 = 0;  // first row in the fused (unpadded) output
  std::int64_t n = 0;
  std::int64_t block0 = 0;  // first block of rows
  Global global;
  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};

// The shape and bookkeeping of a packed weight, and where its planes lie (host or device memory). A plain struct that kernels
// take by value or pointer; it owns nothing. The comments on blocks and planes are about mma64/1; sm1xx-blockscaled/1 has blocks of
// 128 rows × 4 scales, codes [n, ceil(k/2)] bytes, scales [n_blocks, k_blocks, 512] bytes, group_size 16 or 32, and no other plane.
struct PackedView {
  Layout layout = Layout::mma64_1;
  CodeType code = CodeType::int4;
  std::int64_t n = 0;           // output features: sum over parts
  std::int64_t k = 0;           // input features
  std::int64_t n_blocks = 0;    // n64 blocks, padding of each part included
  std::int64_t k_blocks = 0;    // blocks along packed K
  std::int64_t rows = 0;        // scale rows
  std::int64_t group_size = 0;  // columns of packed K per scale row when row_of_slice is absent: slice s (16 columns) uses row
                                // min(16·s / group_size, rows−1); a power of two ≥ 16, or packed K when there is one row
  int zero = 8;                 // constant zero point when `zeros` is null
  DType scale_type = DType::f16;
  DType zero_type = DType::u8;  // u8, or i16 (only where a zero point exceeds 255)
  DType offset_type = DType::f16;
  const void* codes = nullptr;                 // n_blocks · k_blocks · 2048 bytes
  const void* scales = nullptr;                // [n_blocks, rows, 64] scale_type
  const void* zeros = nullptr;                 // [n_blocks, rows, 64] zero_type, or null
  const void* offsets = nullptr;               // [n_blocks, rows, 64] offset_type, or null
  const std::int32_t* row_of_slice = nullptr;  // [packed K / 16] scale row of each k16 slice, or null when regular
  const std::int32_t* gather = nullptr;        // [packed K] x column of each packed column, −1 for padding; null: identity
  const PackedPart* parts = nullptr;           // host memory always
  std::int64_t n_parts = 0;
  int cuda_device = -1;  // where the planes are: a CUDA device's index, or −1 for host memory

  std::int64_t block_k() const {
    if (layout == Layout::sm1xx_blockscaled_1) return 4 * group_size;
    return code == CodeType::int8 ? 32 : 64;
  }
  std::int64_t packed_k() const { return k_blocks * block_k(); }
  std::int64_t row(std::int64_t slice) const {
    if (row_of_slice) return row_of_slice[slice];
    const std::int64_t r = 16 * slice / group_size;
    return r < rows ? r : rows - 1;
  }
};

// Owns what a PackedView points to, in host memory.
struct PackedWeight {
  PackedView view;  // points into the buffers below, and stays valid when the PackedWeight is moved
  Buffer codes, scales, zeros, offsets, row_of_slice, gather;
  std::vector<PackedPart> parts;
  std::string name;  // module path, or the fused module's

  PackedWeight() = default;
  PackedWeight(PackedWeight&& other) noexcept;
  PackedWeight& operator=(PackedWeight&& other) noexcept;
  std::uint64_t bytes() const;  // all planes and bookkeeping
};

// Packs the parts of one weight. They must agree in k, code type, scale rows and the map of columns to them, and in which planes
// they have. The result does not refer to them.
// `threads`: 0 uses all cores. Throws std::bad_alloc.
Result<PackedWeight> pack(std::span<const QuantTensor> parts, std::string name, int threads = 0);
Result<PackedWeight> pack(const QuantTensor& tensor, int threads = 0);
// A weight with a shape but no data, for planning and explaining. group_size 0: channelwise.
Result<PackedWeight> describe(CodeType code, std::int64_t n, std::int64_t k, std::int64_t group_size);
// The inverse, for one part: exact in codes, scales, zeros and offsets, with K in the original column order. The result reads the
// packed codes in place, so they must outlive it. For a view of host memory.
Result<QuantTensor> unpack(const PackedView& weight, std::int64_t part);

// A file of packed weights: safetensors, with the layout's name and version in its metadata (docs/layouts.md). Const members may be
// called from several threads at once; what load() returns owns its bytes.
class PackedFile {
 public:
  struct Layer {
    std::string name;
    PackedView shape;  // pointers null
    std::vector<PackedPart> parts;
    std::vector<std::string> weight_names;  // of each part's dense weight in the checkpoint, for `dequantize`
    std::string bias;                       // tensor name in the file, or empty
    std::int64_t experts = 0;               // 0: a plain matrix
    std::string scheme;                     // of the checkpoint it came from
    std::uint64_t bytes = 0;
  };
  // True when `path` is a safetensors file whose metadata names a Swordfish layout.
  static bool is_packed(const std::string& path);
  static Result<PackedFile> open(const std::string& path);
  PackedFile(PackedFile&&) noexcept;
  PackedFile& operator=(PackedFile&&) noexcept;
  ~PackedFile();

  const std::string& path() const;
  const std::vector<Layer>& layers() const;
  Result<PackedWeight> load(std::size_t layer, std::int64_t expert = 0) const;
  Result<std::optional<std::vector<float>>> load_bias(std::size_t layer, std::int64_t expert = 0) const;

 private:
  friend struct PackedFileAccess;  // of the library itself
  struct Impl;
  explicit PackedFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct PackOptions {
  Layout layout = Layout::mma64_1;  // sm1xx_blockscaled_1 leaves out what is not FP4 with scales per 16 or 32, with a note
  std::string layers;               // PCRE2 pattern searched in layer names; empty: all
  bool fuse = false;                // pack q|k|v and gate|up as one weight each
  bool force = false;               // replace an existing file
  int threads = 0;
};
struct PackReport {
  std::int64_t layers = 0;
  std::uint64_t source_bytes = 0, packed_bytes = 0;
  double read_seconds = 0, pack_seconds = 0, write_seconds = 0;
  std::vector<std::string> notes;  // fused modules whose parts were packed apart, and why
};
// Streams a checkpoint's layers into a packed file, one matrix at a time. The file appears complete or not at all, and nothing else
// is left behind. `progress(done_bytes, total_bytes, user)` returns false to cancel.
Result<PackReport> pack_checkpoint(const Checkpoint& checkpoint, const std::string& out, const PackOptions& options,
                                   bool (*progress)(std::uint64_t, std::uint64_t, void*) = nullptr, void* user = nullptr);

}  // namespace swordfish
