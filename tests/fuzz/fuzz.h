// What the fuzz targets share: a folder in memory for the input files, and a limit on what one input may make the library allocate.
#pragma once

#include <sanitizer/allocator_interface.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace swordfish::fuzz {

// A failed check ends the program, so that libFuzzer keeps the input.
inline void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz check failed: %s\n", what);
  std::abort();
}

// Counts live bytes between construction and destruction; more than 32 times the input + 16 MiB at any moment is a failure.
// One at a time; the targets are single-threaded, but the library may start threads, hence the atomic counters.
class AllocationGuard {
 public:
  explicit AllocationGuard(std::size_t input_size) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    check(installed > 0, "the allocation hooks could not be installed");
    live_ = 0;
    limit_ = static_cast<std::int64_t>(input_size) * 32 + (std::int64_t{16} << 20);
    active_ = true;
  }
  ~AllocationGuard() { active_ = false; }
  AllocationGuard(const AllocationGuard&) = delete;
  AllocationGuard& operator=(const AllocationGuard&) = delete;

 private:
  static void on_malloc(const volatile void* /*block*/, std::size_t size) {
    if (!active_) return;
    const std::int64_t now = __atomic_add_fetch(&live_, static_cast<std::int64_t>(size), __ATOMIC_RELAXED);
    if (now <= limit_) return;
    active_ = false;
    std::fprintf(stderr, "allocation: %lld bytes live, the limit is %lld\n", static_cast<long long>(now),
                 static_cast<long long>(limit_));
    std::abort();
  }
  static void on_free(const volatile void* block) {
    if (!active_ || block == nullptr) return;
    const auto size = static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(block)));
    __atomic_sub_fetch(&live_, size, __ATOMIC_RELAXED);
  }
  static inline bool active_ = false;
  static inline std::int64_t live_ = 0;
  static inline std::int64_t limit_ = 0;
};

// A folder in memory (/dev/shm, else $TMPDIR or /tmp), made once a process and reused by every input.
class MemoryFolder {
 public:
  MemoryFolder() {
    for (const char* base : {"/dev/shm", static_cast<const char*>(std::getenv("TMPDIR")), "/tmp"}) {
      if (base == nullptr) continue;
      root_ = std::string(base) + "/swordfish_fuzz_XXXXXX";
      if (::mkdtemp(root_.data()) != nullptr) return;
    }
    check(false, "no folder for the input files");
  }
  ~MemoryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& root() const { return root_; }
  std::string path(std::string_view name) const { return root_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view bytes) const {
    std::ofstream file(path(name), std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    check(static_cast<bool>(file.flush()), "an input file could not be written");
  }

 private:
  std::string root_;
};

inline std::string_view text(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace swordfish::fuzz
