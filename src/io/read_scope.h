// ReadScope: while it lives, what this thread reads of some files comes from a ByteSource.
//
// The loader's worker threads open one around the work on a unit. So the format readers, which read through File, need not know
// who serves them, and no other thread, nor another load of the same files in the same process, is touched.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "io/byte_source.h"

namespace swordfish::io {

class ReadScope {
 public:
  // `files`: the source's number of each path. Both outlive the scope. Scopes do not nest.
  ReadScope(const ByteSource& source, const std::map<std::string, std::size_t>& files);
  ~ReadScope();
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

  // For File::read: serves the read if a scope of this thread has the file; false: read it from the file. A source that reads a
  // File itself is not asked again.
  static bool serve(const std::string& path, std::uint64_t offset, std::size_t size, void* out, Status& status);

 private:
  const ByteSource& source_;
  const std::map<std::string, std::size_t>& files_;
};

}  // namespace swordfish::io
