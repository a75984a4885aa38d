// File: a regular file read with pread, safe from several threads. All bytes enter Swordfish through one: by read(), or, while a
// model is loaded, by a read engine on its descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "swordfish/buffer.h"
#include "swordfish/status.h"

namespace swordfish::io {

class File {
 public:
  // Opens a regular file for reading (symbolic links are followed). A FIFO, device or folder is refused without blocking.
  static Result<std::shared_ptr<const File>> open(const std::string& path);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // at open
  int fd() const { return fd_; }                // for read engines, and for what is asked of the page cache

  // Reads exactly [offset, offset+size) into out; retries EINTR and short reads. A range past the end, or a file that has become
  // shorter, is an error that names the file and the offset.
  Status read(std::uint64_t offset, std::size_t size, void* out) const;
  Result<Buffer> read(std::uint64_t offset, std::size_t size) const;

 private:
  File(std::string path, int fd, std::uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;
  std::uint64_t size_;
};

// A whole small file (configuration, index) as text; refuses one larger than `limit` bytes.
Result<std::string> read_text(const std::string& path, std::uint64_t limit);
bool exists(const std::string& path);            // anything of that name, dangling links and FIFOs included
bool is_directory(const std::string& path);      // follows links
std::string folder_of(const std::string& path);  // in which the name stands: "." without a slash
// Plain names of the entries of a folder, sorted, without "." and "..".
Result<std::vector<std::string>> list_directory(const std::string& path);

}  // namespace swordfish::io
