// PackedCache: what a load has made, kept in a folder, so that the next one only reads.
//
//   <key>.packed.safetensors   the packed weights (pack/packed_format.h)
//   <key>.plain.safetensors    the bytes of all other tensors, each U8 [bytes]
//   <key>.manifest             what the key was made of, checksums of everything, and what the two files do not say: JSON, then its
//                              own checksum on a line
//
// The key is a hash of the format's version, the library's version and layout, options and rank, every configuration file and the
// index of shards, and of every shard: name, size, time and header. Each file appears whole or not at all, the manifest last;
// without it there is no cache. A checksum or a size that differs is damage: the caller loads from the checkpoint and writes the
// files anew.
#pragma once

#include <string>

#include "load/job.h"
#include "load/packed_job.h"
#include "swordfish/load.h"

namespace swordfish {

class PackedCache {
 public:
  // `path`: of the checkpoint.
  static Result<PackedCache> find(const std::string& path, const JobFiles& files, const LoadOptions& options);
  bool exists() const;
  // Loads it, onto a GPU where an uploader is given (straight from the disk where cuFile does it). malformed or io: damaged.
  Status load(const LoadOptions& options, Uploader* uploader, const JobHooks& hooks, LoadedModel& model) const;
  // Asks options.progress now and then whether to go on.
  Status store(const LoadedModel& model, const LoadOptions& options) const;

 private:
  std::string file(const char* ending) const { return stem_ + ending; }
  std::string stem_;  // folder and key
  std::string made_of_;
};

}  // namespace swordfish
