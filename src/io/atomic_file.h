// AtomicFile: a file that appears whole or not at all, whenever the writer stops, and leaves nothing else behind.
//
// Where the file system has O_TMPFILE the bytes go to a file without a name, which the system removes by itself if the process
// dies; commit() gives it its name. Elsewhere a temporary name in the same folder is used and removed on failure, by the destructor
// and on SIGINT, SIGTERM and SIGHUP. commit() syncs the file and its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "swordfish/status.h"

namespace swordfish::io {

class AtomicFile {
 public:
  // Refuses (invalid_argument) when `path` exists, unless `force`; then it is replaced at commit.
  static Result<std::unique_ptr<AtomicFile>> create(const std::string& path, bool force);
  ~AtomicFile();  // without commit(): nothing remains
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Writes all of [data, data+size) at `offset`; safe from several threads.
  Status write(std::uint64_t offset, const void* data, std::size_t size);
  Status commit();

 private:
  AtomicFile(std::string path, bool force) : path_(std::move(path)), force_(force) {}
  Status open_temporary();

  std::string path_;
  std::string temporary_;  // the temporary's name; empty while the file has none
  bool force_;
  int fd_ = -1;
};

// A whole file of these bytes; `force` as in create().
Status write_file(const std::string& path, std::string_view text, bool force);

}  // namespace swordfish::io
