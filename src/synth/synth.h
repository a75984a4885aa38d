// synthesize(): writes a checkpoint of a named model family and quantization scheme with random weights, for load tests and
// benches.
//
// Names, shapes, types, configuration, shards and the order of tensors in a file are those of published checkpoints. Values come
// from pools of a few MiB that are drawn once (Student-t weights quantized in their groups, so that block scales spread over many
// powers of two) and read from a different place for every tensor: writing runs at the speed of the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "swordfish/status.h"
#include "synth/architecture.h"

namespace swordfish {

enum class SynthScheme : std::uint8_t { nvfp4, ct_nvfp4, gptq, awq, compressed_tensors };

struct SynthOptions {
  SynthModel model = SynthModel::llama;
  SynthScheme scheme = SynthScheme::nvfp4;
  std::uint64_t bytes = 0;                 // about this large: layers are added until it is; below two layers the shape is halved
  std::uint64_t shard_bytes = 5000000000;  // a new file begins when one would become larger
  std::uint64_t seed = 0;
  bool (*progress)(std::uint64_t done, std::uint64_t total, void* user) = nullptr;  // false cancels
  void* user = nullptr;
};

struct SynthReport {
  SynthShape shape;
  std::uint64_t bytes = 0;  // of tensor data
  std::int64_t tensors = 0, shards = 0;
  double seconds = 0;
};

// Writes the folder `out`, which must not exist and appears whole or not at all.
Result<SynthReport> synthesize(const std::string& out, const SynthOptions& options);

}  // namespace swordfish
