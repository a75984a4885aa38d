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
  // Lays the tensors out in the order given, without gaps; the header is padded to a multiple of 8 bytes. So every tensor is
  // aligned to its element when the caller gives the widest types first. Duplicate names and sizes that overflow are refused.
  static Result<SafetensorsWriter> create(const std::string& path, bool force, const std::vector<Entry>& entries,
                                          const std::map<std::string, std::string>& metadata);
  // Bytes [offset, offset+size) of tensor `entry`; the caller writes every byte once. Safe from several threads.
  Status write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t size);
  Status commit() { return file_->commit(); }
  std::uint64_t file_bytes() const { return begin_.back(); }

 private:
  std::unique_ptr<io::AtomicFile> file_;
  std::vector<std::uint64_t> begin_;  // absolute offset of each tensor, and the end
};

}  // namespace swordfish
