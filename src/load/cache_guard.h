// CacheGuard: takes out of the page cache what opening a checkpoint has put there, and knows how large its files are.
#pragma once

#include <string>
#include <vector>

#include "io/descriptor.h"
#include "io/page_cache.h"

namespace swordfish {

class CacheGuard {
 public:
  // Remembers what is missing of the heads of the files that opening `path` may read: the folder's, or the file itself.
  explicit CacheGuard(const std::string& path);
  ~CacheGuard();
  CacheGuard(const CacheGuard&) = delete;
  CacheGuard& operator=(const CacheGuard&) = delete;

 private:
  struct Head {
    io::Descriptor file;
    std::vector<io::ByteRange> missing;
  };
  std::vector<Head> heads_;
};

}  // namespace swordfish
