// Reading regular files with pread, and the few questions asked of folders.
#include "io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/read_scope.h"

namespace swordfish::io {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO (pipe)";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

}  // namespace

Result<std::shared_ptr<const File>> File::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return invalid_argument("{}: a path may not hold a NUL byte", printable(path));
  int fd = -1;
  do {
    // O_NONBLOCK: a FIFO without a writer must not block; it changes nothing for a regular file.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    if (errno == ENXIO) return io_error("{}: not a regular file (a socket or a device that is not there)", path);
    return io_error("{}: cannot open: {}", path, errno_text(errno));
  }
  struct stat info = {};
  const int failed = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (failed != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    if (failed != 0) return io_error("{}: cannot stat: {}", path, errno_text(failed));
    return io_error("{}: not a regular file but {}", path, kind_of(info.st_mode));
  }
  return std::shared_ptr<const File>(new File(path, fd, static_cast<std::uint64_t>(info.st_size)));
}

File::~File() { ::close(fd_); }

Status File::read(std::uint64_t offset, std::size_t size, void* out) const {
  if (offset > size_ || size > size_ - offset)
    return io_error("{}: cannot read {} bytes at offset {}: the file has {} bytes (truncated?)", path_, size, offset, size_);
  if (Status served; ReadScope::serve(path_, offset, size, out, served)) return served;
  auto* to = static_cast<char*>(out);
  while (size > 0) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux moves at most 2^31 - 4096 bytes a call
    const ssize_t got = ::pread(fd_, to, std::min(size, kMost), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return io_error("{}: cannot read at offset {}: {}", path_, offset, errno_text(errno));
    }
    if (got == 0)
      return io_error("{}: truncated: the file ends at offset {}, but had {} bytes when it was opened", path_, offset, size_);
    to += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<Buffer> File::read(std::uint64_t offset, std::size_t size) const {
  if (offset > size_ || size > size_ - offset)
    return read(offset, size, nullptr);  // before allocating; the call only makes the message
  Buffer buffer(size);
  SF_TRY(read(offset, size, buffer.data()));
  return buffer;
}

Result<std::string> read_text(const std::string& path, std::uint64_t limit) {
  SF_ASSIGN(const std::shared_ptr<const File> file, File::open(path));
  if (file->size() > limit) return malformed("{}: {} bytes; a file of this kind may have at most {}", path, file->size(), limit);
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  SF_TRY(file->read(0, text.size(), text.data()));
  return text;
}

bool exists(const std::string& path) {
  struct stat info = {};
  return path.find('\0') == std::string::npos && ::lstat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info = {};
  return path.find('\0') == std::string::npos && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  if (path.find('\0') != std::string::npos) return invalid_argument("{}: a path may not hold a NUL byte", printable(path));
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return io_error("{}: cannot list the folder: {}", path, errno_text(errno));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(folder)) {  // one stream, one thread: readdir is safe
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(folder);
  if (error != 0) return io_error("{}: cannot list the folder: {}", path, errno_text(error));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace swordfish::io
