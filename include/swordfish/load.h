// load(): from a checkpoint to packed weights in host memory or on a GPU, at the speed of the disk.
//
// The headers are read, and everything that this rank needs is planned. Then large reads (io_uring with O_DIRECT where the system
// has them, otherwise threads with pread; from the page cache where the file is in it) fill a bounded ring, while worker threads
// pack what has arrived. No file is mapped, the page cache is left as it was found, and the result is complete or an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "swordfish/buffer.h"
#include "swordfish/checkpoint.h"
#include "swordfish/device.h"
#include "swordfish/pack.h"
#include "swordfish/status.h"

namespace [[gnu::visibility("default")]] swordfish {

struct LoadProgress {
  std::uint64_t total = 0;   // bytes that are needed
  std::uint64_t read = 0;    // of these, read so far
  std::uint64_t packed = 0;  // of these, packed so far
  double seconds = 0;        // since the start
};

struct LoadOptions {
  Device device;  // where everything goes; the CPU means host memory
  Layout layout = Layout::mma64_1;
  std::string layers;  // PCRE2 pattern searched in layer names; empty: all layers, and the tensors that belong to none
  bool fuse = false;   // pack q|k|v and gate|up as one weight each

  // Tensor parallelism. A rank holds its rows of q, k, v, gate, up and the output head, its columns (cut at group boundaries) of o
  // and down, and all of everything else. Of a tensor with several projections (qkv_proj, gate_up_proj) it holds its rows of each,
  // as one part per projection. With whole_experts, routed experts are dealt out whole instead of being cut.
  int rank = 0, ranks = 1;
  bool whole_experts = false;

  bool raw = false;  // only read the same bytes, to see what the disk can do; the model stays empty
  std::string
      cache;  // folder of packed caches; empty: none. A second load of the same files with the same options reads packed bytes

  std::uint64_t ring_bytes = std::uint64_t{256} << 20;  // memory that reads land in; for a GPU, a quarter of it is for copies to it
  unsigned depth = 32;                                  // reads in flight
  int threads = 0;                                      // that pack; 0: all cores
  bool direct = true;                                   // use O_DIRECT where the file system has it
  bool uring = true;                                    // use io_uring where the system has it
  OpenOptions open;

  // Called about ten times a second, on the calling thread; return false to cancel.
  bool (*progress)(const LoadProgress& progress, void* user) = nullptr;
  void* user = nullptr;
};

// A layer as this rank holds it.
struct LoadedLayer {
  std::string name;  // of the layer, or of the fused module
  std::string scheme;
  std::vector<std::string> weight_names;     // of each part's dense weight in the checkpoint
  std::int64_t experts = 0;                  // in the checkpoint; 0: a plain matrix
  std::int64_t first_expert = 0;             // weights[i] is expert first_expert + i
  std::vector<PackedWeight> weights;         // in host memory, or
  std::vector<DeviceWeight> device_weights;  // on a GPU
  std::vector<float> bias;                   // [weights, n]; empty: none
  const float* device_bias = nullptr;        // the same on a GPU
};
// A tensor that belongs to no quantized layer, as stored.
struct LoadedTensor {
  TensorInfo info;
  Buffer bytes;                  // in host memory, or
  const void* device = nullptr;  // on a GPU
};

struct LoadReport {
  std::int64_t layers = 0, tensors = 0;
  std::uint64_t source_bytes = 0;     // needed from the files
  std::uint64_t disk_bytes = 0;       // read from the disk for that (whole pages)
  std::uint64_t cached_bytes = 0;     // found in the page cache
  std::uint64_t past_ring_bytes = 0;  // read by the workers themselves, because the ring was full
  std::uint64_t direct_bytes = 0;     // read straight into GPU memory (GPUDirect Storage)
  std::uint64_t unplanned_bytes = 0;  // read although the plan did not foresee it, or read twice: 0
  std::uint64_t strided_bytes = 0;    // of other ranks, read because they lie between runs shorter than 64 KiB
  std::uint64_t packed_bytes = 0;     // resident at the end
  std::uint64_t device_bytes = 0;     // GPU memory allocated for them, never more at any time
  bool from_packed = false;           // read from the packed cache (or a packed file): nothing was transformed
  bool cache_written = false;
  int threads = 0;
  std::string engine;         // "io_uring + O_DIRECT", "pread", "page cache", ...
  double seconds = 0;         // the whole load, without writing the cache
  double open_seconds = 0;    // headers and plan
  double device_seconds = 0;  // until the GPU was ready, in parallel with headers and reads
  double disk_seconds = 0;    // with reads in flight
  double full_seconds = 0;    // without any, because packing was behind
  double wait_seconds = 0;    // workers waiting for bytes; summed over threads, like the next three
  double copy_seconds = 0;    // copying out of the ring (or the page cache)
  double pack_seconds = 0;
  double upload_seconds = 0;  // starting copies to the GPU and waiting for earlier ones
  double cache_seconds = 0;   // writing the cache
  std::vector<std::string> notes;
};

struct LoadedModel {
  std::vector<LoadedLayer> layers;  // in the checkpoint's order
  std::vector<LoadedTensor> tensors;
  Device device;                            // where they are
  std::vector<DeviceBuffer> device_memory;  // owns what device_weights, device_bias and LoadedTensor::device point to
  LoadReport report;
};

// `path`: as for Checkpoint::open, or a packed file. Throws std::bad_alloc, on the calling thread only.
Result<LoadedModel> load(const std::string& path, const LoadOptions& options = {});

}  // namespace swordfish
