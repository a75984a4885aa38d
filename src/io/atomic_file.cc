// A nameless (or temporarily named) file that becomes `path` at commit.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/file.h"
#include "io/temporary_names.h"

namespace swordfish::io {
namespace {

std::string random_name(const std::string& path) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint64_t>(getpid());
  return fmt::format("{}.{:016x}.tmp", path, number);
}

bool exists_now(const std::string& path) {
  struct stat unused {};
  return lstat(path.c_str(), &unused) == 0;
}

Status already_there(const std::string& path) {
  return invalid_argument("{} exists: give another name, or --force to replace it", path);
}

// Gives the file its final name unless that is taken (EEXIST); 0 or -1 with errno. File systems without hard links (FAT, some FUSE)
// can rename without replacing, or know neither.
int move_to_free_name(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return unlink(from.c_str());
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return -1;
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (exists_now(to)) {
    errno = EEXIST;
    return -1;
  }
  return rename(from.c_str(), to.c_str());
}

}  // namespace

Result<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::string& path, bool force) {
  if (path.empty() || path.back() == '/') return invalid_argument("'{}' is not a file name", path);
  if (exists_now(path)) {
    if (!force) return already_there(path);
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode))  // such as /dev/stdout
      return invalid_argument("{} is a symbolic link and is not replaced: name the file itself", path);
    if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return invalid_argument("{} is not a regular file and is not replaced", path);
  }
  std::unique_ptr<AtomicFile> file(new AtomicFile(path, force));
  SF_TRY(file->open_temporary());
  return file;
}

Status AtomicFile::open_temporary() {
  const std::string folder = folder_of(path_);
  fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd_ >= 0) return {};
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    return io_error("{}: cannot write in the folder {}: {}", path_, folder, errno_text(errno));
  for (int attempt = 0; attempt < 16 && fd_ < 0; ++attempt) {
    temporary_ = random_name(path_);
    remember_temporary(temporary_);  // before it exists, so that no signal falls between
    fd_ = open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      const int error = errno;
      forget_temporary(temporary_);
      temporary_.clear();
      if (error != EEXIST) return io_error("{}: cannot write in the folder {}: {}", path_, folder, errno_text(error));
    }
  }
  if (fd_ < 0) return io_error("{}: no free temporary name in {}", path_, folder);
  return {};
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
    forget_temporary(temporary_);
  }
}

Status AtomicFile::write(std::uint64_t offset, const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = pwrite(fd_, bytes, size, static_cast<off_t>(offset));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return io_error("{}: writing {} bytes at offset {} failed: {}", path_, size, offset, errno_text(errno));
    }
    bytes += wrote;
    offset += static_cast<std::uint64_t>(wrote);
    size -= static_cast<std::size_t>(wrote);
  }
  return {};
}

Status AtomicFile::commit() {
  if (fsync(fd_) != 0) return io_error("{}: fsync failed: {}", path_, errno_text(errno));
  if (temporary_.empty()) {
    const std::string self = fmt::format("/proc/self/fd/{}", fd_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      close(fd_);
      fd_ = -1;
    } else if (errno != EEXIST) {
      return io_error("{}: linkat failed: {}", path_, errno_text(errno));
    } else if (!force_) {
      return already_there(path_);
    } else {  // a nameless file cannot replace a name: it gets a temporary one first
      temporary_ = random_name(path_);
      remember_temporary(temporary_);
      if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
        const int error = errno;
        forget_temporary(temporary_);
        temporary_.clear();
        return io_error("{}: linkat failed: {}", path_, errno_text(error));
      }
    }
  }
  if (!temporary_.empty()) {
    if (force_) {
      if (rename(temporary_.c_str(), path_.c_str()) != 0) return io_error("{}: rename failed: {}", path_, errno_text(errno));
    } else if (move_to_free_name(temporary_, path_) != 0) {
      return errno == EEXIST ? already_there(path_) : io_error("{}: link failed: {}", path_, errno_text(errno));
    }
    forget_temporary(temporary_);
    temporary_.clear();
  }
  const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);  // some file systems refuse it for folders; the file itself is synced
    close(folder);
  }
  return {};
}

Status write_file(const std::string& path, std::string_view text, bool force) {
  SF_ASSIGN(const std::unique_ptr<AtomicFile> out, AtomicFile::create(path, force));
  SF_TRY(out->write(0, text.data(), text.size()));
  return out->commit();
}

}  // namespace swordfish::io
