// cuFile's functions and types as NVIDIA's "cuFile API Reference Guide" gives them, and reads with them.
#include "load/direct.h"

#include <fcntl.h>
#include <sys/types.h>

#include <optional>
#include <utility>

#include "base/library.h"
#include "io/descriptor.h"
#include "io/file.h"

namespace swordfish {
namespace {

struct CuFileError {  // CUfileError_t
  int cufile = 0;     // 0: success
  int cuda = 0;
};
struct CuFileDescription {  // CUfileDescr_t
  int type = 1;             // CU_FILE_HANDLE_TYPE_OPAQUE_FD
  union {
    int fd;
    void* handle;
  } handle{};
  const void* operations = nullptr;
};
using CuFileHandle = void*;

struct Functions {
  CuFileError (*driver_open)();
  CuFileError (*handle_register)(CuFileHandle*, CuFileDescription*);
  void (*handle_deregister)(CuFileHandle);
  CuFileError (*buffer_register)(const void*, std::size_t, int);
  CuFileError (*buffer_deregister)(const void*);
  ssize_t (*read)(CuFileHandle, void*, std::size_t, off_t, off_t);
};

template <class Function>
bool find(const Library& library, const char* name, Function*& function) {
  function = library.function<Function>(name);
  return function != nullptr;
}

}  // namespace

struct DirectFiles::State {
  std::optional<Library> library;
  Functions cufile{};
  struct File {
    io::Descriptor descriptor;
    CuFileHandle handle = nullptr;
  };
  std::vector<File> files;
  std::vector<std::span<std::byte>> memory;  // what is registered

  ~State() {
    for (const auto& registered : memory) cufile.buffer_deregister(registered.data());
    for (const File& file : files) cufile.handle_deregister(file.handle);
  }
};

DirectFiles::DirectFiles(std::unique_ptr<State> state) : state_(std::move(state)) {}
DirectFiles::~DirectFiles() = default;

std::unique_ptr<DirectFiles> DirectFiles::open(const std::vector<std::string>& paths, const char* library) {
  // Without NVIDIA's driver for it cuFile reads through host memory as we do, and leaves a log file in the current folder.
  if (library == nullptr && !io::is_directory("/proc/driver/nvidia-fs")) return nullptr;
  Result<Library> opened = library != nullptr ? Library::open({library}) : Library::open({"libcufile.so.0", "libcufile.so"});
  if (!opened.ok()) return nullptr;
  auto state = std::make_unique<State>();
  Functions& f = state->cufile;
  if (!find(*opened, "cuFileDriverOpen", f.driver_open) || !find(*opened, "cuFileHandleRegister", f.handle_register) ||
      !find(*opened, "cuFileHandleDeregister", f.handle_deregister) || !find(*opened, "cuFileBufRegister", f.buffer_register) ||
      !find(*opened, "cuFileBufDeregister", f.buffer_deregister) || !find(*opened, "cuFileRead", f.read))
    return nullptr;
  state->library.emplace(std::move(opened).value());
  if (f.driver_open().cufile != 0) return nullptr;
  for (const std::string& path : paths) {
    io::Descriptor descriptor(path, O_DIRECT);
    // cuFile 1.15 refuses a descriptor with O_NONBLOCK.
    if (!descriptor || ::fcntl(descriptor.fd(), F_SETFL, O_DIRECT) != 0) return nullptr;
    CuFileDescription description;
    description.handle.fd = descriptor.fd();
    CuFileHandle handle = nullptr;
    if (f.handle_register(&handle, &description).cufile != 0) return nullptr;
    state->files.push_back({std::move(descriptor), handle});
  }
  return std::unique_ptr<DirectFiles>(new DirectFiles(std::move(state)));
}

void DirectFiles::add_memory(std::span<std::byte> memory) {
  if (state_->cufile.buffer_register(memory.data(), memory.size(), 0).cufile == 0) state_->memory.push_back(memory);
}

bool DirectFiles::read(std::size_t file, std::uint64_t offset, std::size_t size, std::byte* to) {
  // Registered memory is named by its beginning.
  std::byte* base = to;
  for (const auto& registered : state_->memory)
    if (to >= registered.data() && to < registered.data() + registered.size()) base = registered.data();
  while (size > 0 && works_) {
    const ssize_t got =
        state_->cufile.read(state_->files[file].handle, base, size, static_cast<off_t>(offset), static_cast<off_t>(to - base));
    if (got <= 0 || static_cast<std::size_t>(got) > size) {  // an error, or the end of the file
      works_ = false;
      break;
    }
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
    to += got;
  }
  return size == 0;
}

}  // namespace swordfish
