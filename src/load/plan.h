// The load plan: what is read for this rank, in which order, and what becomes of it; computed from headers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/staging.h"
#include "load/job.h"
#include "load/plain_tensors.h"
#include "load/ranks.h"
#include "pack/pack_units.h"
#include "swordfish/checkpoint.h"
#include "swordfish/status.h"

namespace swordfish {

// What one thread does at a time: one matrix of a packed weight, or some plain tensors, or a part of a large one.
struct LoadUnit {
  std::optional<std::size_t> pack_unit;  // in LoadPlan::pack_units; none: plain tensors
  std::int64_t expert = 0;
  std::vector<PlainPart> plain;
  std::vector<io::StagedRange> ranges;
  std::uint64_t bytes = 0;  // of the ranges
};

struct LoadPlan {
  std::vector<PackUnit> pack_units;      // what becomes one packed layer
  std::vector<LayerCut> cuts;            // of every layer of the checkpoint
  std::vector<LoadUnit> units;           // in the order of their bytes on disk
  std::vector<std::size_t> plain;        // numbers of the tensors that belong to no layer, of which units have parts
  std::vector<io::StagedRange> skipped;  // parts of the tensors that are read, not this rank's
  std::uint64_t bytes = 0;               // of all units
  std::uint64_t strided_bytes = 0;       // of these, read although another rank's: they lie between runs shorter than 64 KiB
  std::uint64_t strided_tensors = 0;
  std::vector<std::string> notes;
};

// Runs shorter than this are not worth a seek each: the tensor is read from its first to its last.
inline constexpr std::uint64_t kShortestRun = std::uint64_t{64} << 10;

// The files of a checkpoint's tensors.
JobFiles files_of(const std::vector<TensorInfo>& tensors);
// "tensor 'x'" for a byte of a file, or "": for messages.
std::string tensor_at(const std::vector<TensorInfo>& tensors, const std::string& path, std::uint64_t offset);

// Every tensor is planned once, except those of layers that are not chosen or not this rank's. When `pack.layers` names some
// layers, tensors that belong to no layer are left out too. `path` starts messages.
Result<LoadPlan> plan_load(const std::string& path, const std::vector<TensorInfo>& tensors, const JobFiles& files,
                           const std::vector<LayerInfo>& layers, const PackOptions& pack, const Rank& rank);

}  // namespace swordfish
