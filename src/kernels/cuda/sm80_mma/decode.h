// The host's view of the decode kernels: what they can do, a plan for one product, and its launch. No CUDA headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/sm80_mma/shape.h"
#include "swordfish/dtype.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace swordfish::mma {

// What a plan must know of a GPU.
struct Gpu {
  int sms = 0;                  // that the launch may use
  int arch = 0;                 // 10 · major + minor
  std::int64_t smem_block = 0;  // bytes of shared memory that a CTA may have (opt-in limit), and
  std::int64_t smem_sm = 0;     // that an SM has
};

// Plain, and a pure function of its inputs. The decode kernel takes 8·m8 rows of x a launch (more rows are done in turn); the
// middle kernel takes any number, in tiles of 16·m16 rows × 64·columns outputs.
struct DecodePlan {
  Weights weights = Weights::int4;
  Flush flush = Flush::units;
  bool bf16 = true;        // type of x
  int m8 = 1;              // decode: tiles of 8 tokens, 1 or 2
  int m16 = 0;             // middle: tiles of 16 tokens, 2 to 4 or 8; 0: the decode kernel
  int columns = 1;         // middle: n64 columns of a tile
  int units = 1;           // blocks of k in a step
  bool dependent = false;  // whether the architecture has programmatic dependent launch
  int warps = 16;          // a CTA
  bool two_ctas = false;   // an SM holds two CTAs
  int ctas = 0;
  bool whole = false;      // no column (tile) is split between CTAs
  int cluster = 1;         // CTAs that share columns through distributed shared memory
  std::uint32_t smem = 0;  // bytes a CTA
  std::int64_t packed_k = 0;
  std::size_t flags_bytes = 0;                  // at the workspace's start: zero before and after every launch
  std::size_t pieces_offset = 0, x_offset = 0;  // scratch: columns' partial sums, x as the kernels read it
  std::size_t workspace = 0;                    // bytes in all

  int tile_m() const { return m16 ? 16 * m16 : 8 * m8; }  // tokens
  int tile_n() const { return 64 * columns; }             // outputs
};

// Empty, or one sentence saying why not. Reads no pointer of the weight but `parts`; row_of_slice and gather count by being set.
std::string decode_refuses(const PackedView& weight, DType x_type, const Gpu& gpu);
// What benches and tests force; the defaults leave the choice to the plan.
struct DecodeChoice {
  enum Kernel { best, decode } kernel = best;
  int columns = 0, m16 = 0;  // of the middle kernel's tiles
};
// For a weight that decode_refuses has passed and m ≥ 1.
DecodePlan plan_decode(const PackedView& weight, std::int64_t m, DType x_type, const Gpu& gpu, const DecodeChoice& choice = {});

struct DecodeCall {
  const void* x =
      nullptr;  // [m, k] of the plan's type, row stride ldx ≥ k elements; where base or stride is no multiple of 16 bytes,
  std::int64_t ldx = 0;  // K is padded or columns are gathered, a prep kernel copies it first
  std::int64_t m = 0;
  void* y = nullptr;  // [m, n] of y_type (bf16, f16, f32), aligned to its element, row stride ldy ≥ n elements
  std::int64_t ldy = 0;
  DType y_type = DType::bf16;
  const float* bias = nullptr;  // [n] or null
  void* workspace = nullptr;    // 256-byte aligned
  std::size_t workspace_size = 0;
  void* stream = nullptr;  // cudaStream_t
  bool dependent = true;   // programmatic dependent launch (sm_90 and up): weights are fetched while the kernel ahead ends
};
// Launches on the current device. `weight` and its planes are in device memory (parts: host). Allocates nothing, waits for nothing.
Status launch_decode(const PackedView& weight, const DecodePlan& plan, const DecodeCall& call);
// Zeroes the flags of a fresh workspace.
Status init_decode_workspace(const DecodePlan& plan, void* workspace, void* stream);

}  // namespace swordfish::mma
