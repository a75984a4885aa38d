// DirectFiles: files read straight into a GPU's memory, past host memory and page cache, with NVIDIA's cuFile (GPUDirect Storage).
//
// cuFile is opened at run time, where the kernel driver nvidia-fs is loaded. Whatever is missing or fails (the library, a function
// of it, its driver, a file that it does not take, a read), the caller is told no more than that it has to read in the usual way:
// GPUDirect Storage is an offer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace swordfish {

class DirectFiles {
 public:
  // null: not to be had. Files are numbered as in `paths`. `library`: in place of NVIDIA's, in tests.
  static std::unique_ptr<DirectFiles> open(const std::vector<std::string>& paths, const char* library = nullptr);
  ~DirectFiles();
  DirectFiles(const DirectFiles&) = delete;
  DirectFiles& operator=(const DirectFiles&) = delete;

  // Device memory that will be read into, as long as this lives; where it cannot be registered reads are slower. Not beside reads.
  void add_memory(std::span<std::byte> memory);
  // Whether all of [offset, offset+size) has arrived at `to`, in memory of the GPU that is current. After the first failure no read
  // is tried. Safe from several threads.
  bool read(std::size_t file, std::uint64_t offset, std::size_t size, std::byte* to);
  bool works() const { return works_; }

 private:
  struct State;
  explicit DirectFiles(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  std::atomic<bool> works_{true};
};

}  // namespace swordfish
