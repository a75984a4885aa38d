// Descriptor: a file open for reading as the system knows it, for what File does not do (O_DIRECT, advice, residency).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace swordfish::io {

class Descriptor {
 public:
  Descriptor() = default;
  // `flags`: O_DIRECT or 0. Never blocks on a FIFO. On failure fd() is −1 and errno says why.
  explicit Descriptor(const std::string& path, int flags = 0) {
    do {
      fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    } while (fd_ < 0 && errno == EINTR);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace swordfish::io
