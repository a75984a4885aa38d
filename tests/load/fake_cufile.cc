// libcufile.so as the loader opens it, with host memory for a GPU's. FAKE_OLD: a version without cuFileRead.
#include "load/fake_cufile.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#pragma GCC visibility push(default)
extern "C" {

// As in NVIDIA's documentation of the API, written down apart from the loader's own.
typedef struct {
  int err;
  int cu_err;
} FakeError;
typedef struct {
  int type;
  union {
    int fd;
    void* handle;
  } handle;
  const void* fs_ops;
} FakeDescription;

FakeCuFile fake_cufile;

static std::mutex mutex;
static std::map<const void*, std::size_t> buffers;

FakeError cuFileDriverOpen() {
  ++fake_cufile.drivers;
  return {fake_cufile.failing_driver != 0 ? 5001 : 0, 0};
}

FakeError cuFileHandleRegister(void** handle, FakeDescription* description) {
  if (++fake_cufile.files == fake_cufile.failing_file || description->type != 1) return {5027, 0};
  const int flags = ::fcntl(description->handle.fd, F_GETFL);
  if ((flags & O_DIRECT) == 0 || (flags & O_NONBLOCK) != 0) return {5027, 0};  // as cuFile 1.15 does
  ++fake_cufile.open_files;
  *handle = new int(::open(("/proc/self/fd/" + std::to_string(description->handle.fd)).c_str(), O_RDONLY));
  return {0, 0};
}

void cuFileHandleDeregister(void* handle) {
  --fake_cufile.open_files;
  ::close(*static_cast<int*>(handle));
  delete static_cast<int*>(handle);
}

FakeError cuFileBufRegister(const void* base, std::size_t size, int) {
  ++fake_cufile.buffers;
  if (fake_cufile.failing_buffers != 0) return {5019, 1};
  ++fake_cufile.open_buffers;
  const std::lock_guard lock(mutex);
  buffers[base] = size;
  return {0, 0};
}

FakeError cuFileBufDeregister(const void* base) {
  --fake_cufile.open_buffers;
  const std::lock_guard lock(mutex);
  buffers.erase(base);
  return {0, 0};
}

#ifndef FAKE_OLD
ssize_t cuFileRead(void* handle, void* base, std::size_t size, off_t file_offset, off_t base_offset) {
  const int number = ++fake_cufile.reads;
  if (fake_cufile.failing_read != 0 && number >= fake_cufile.failing_read) return fake_cufile.read_result;
  {
    const std::lock_guard lock(mutex);
    const auto buffer = buffers.find(base);
    if (buffer == buffers.end()) {
      ++fake_cufile.unregistered;
    } else if (static_cast<std::size_t>(base_offset) + size > buffer->second) {
      return -5019;
    }
  }
  if (fake_cufile.slow_reads) ::usleep(5000);
  if (fake_cufile.short_reads) size = std::min<std::size_t>(size, 1000);
  char* const to = static_cast<char*>(base) + base_offset;
  const ssize_t got = ::pread(*static_cast<int*>(handle), to, size, file_offset);
  if (got > 0) fake_cufile.bytes += static_cast<std::uint64_t>(got);
  if (got > 0 && number == fake_cufile.corrupt_read) to[got / 2] ^= 1;
  return got;
}
#endif

}  // extern "C"
#pragma GCC visibility pop
