// ByteSource: where a container takes its bytes from when not straight from its files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "swordfish/status.h"

namespace swordfish::io {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Exactly [offset, offset+size) of file number `file`. Safe from several threads.
  virtual Status read(std::size_t file, std::uint64_t offset, std::size_t size, void* out) const = 0;
};

}  // namespace swordfish::io
