// SafetensorsWriter: writes a safetensors file whose tensors are known by name, type and shape beforehand, through an AtomicFile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "swordfish/dtype.h"
#include "swordfish/status.h"

namespace swordfish {

class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::u8;
    std::vector<std::int64_t> shape;
  };
  // Lays the tensors out in the order given, each at a multiple of its element's alignment by the writers' convention (the header
  // is padded to 8 bytes; wide types first is the caller's choice). Duplicate names and sizes past 2^63 are refused.
  static Result<SafetensorsWriter> create(const std::string& path, bool force, const std::vector<Entry>& entries,
                                          const std::map<std::string, std::string>& metadata);
  // Bytes [offset, offset+size) of tensor `entry`; every byte must be written once by the caller. Safe from several threads.
  Status write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t size);
  Status commit() { return file_->commit(); }

 private:
  std::unique_ptr<io::AtomicFile> file_;
  std::vector<std::uint64_t> begin_;  // absolute offset of each tensor, and the end
};

}  // namespace swordfish
