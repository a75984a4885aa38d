// Host memory of a load to a GPU, of which only CUDA's own is missing here: the ring, three times the headers, and 128 MiB.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "load/like_pack.h"
#include "load/load_device.h"
#include "load/load_hooks.h"
#include "sanitizer.h"
#include "synth/synth.h"
#include "temp_folder.h"

namespace swordfish {
namespace {

// Memory that can be pointed at, and takes none: copies go nowhere.
class NoDevice final : public LoadDevice {
 public:
  Device device() const override { return {}; }
  Result<std::byte*> allocate(std::size_t size) override {
    void* const memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return Status(Code::out_of_memory, "no addresses");
    return static_cast<std::byte*>(memory);
  }
  std::vector<DeviceBuffer> take_memory() override { return {}; }
  Result<std::span<std::byte>> page_locked(std::size_t size) override {
    locked_ = Buffer(size);
    std::memset(locked_.data(), 1, size);
    return std::span(locked_.data(), size);
  }
  Status copy(unsigned, std::byte*, const std::byte*, std::size_t) override { return {}; }
  Status wait(unsigned) override { return {}; }

 private:
  Buffer locked_;
};

std::uint64_t from_proc(const std::string& key) {  // bytes
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  return 0;
}

std::uint64_t header_bytes(const std::string& path) {
  std::uint64_t sum = 0;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    if (file.path().extension() != ".safetensors") continue;
    std::uint64_t length = 0;
    std::ifstream(file.path(), std::ios::binary).read(reinterpret_cast<char*>(&length), sizeof length);
    sum += sizeof length + length;
  }
  return sum;
}

// Peak of a process of its own beyond what it began with.
std::uint64_t peak_of_load(const std::string& path, const LoadOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins here
    const std::uint64_t before = from_proc("VmRSS:");
    NoDevice device;
    JobHooks hooks;
    hooks.device = &device;
    const Result<LoadedModel> model = load_hooked(path, options, hooks);
    const std::uint64_t peak = model.ok() ? from_proc("VmHWM:") - before : 0;
    const bool told = ::write(ends[1], &peak, sizeof peak) == sizeof peak;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::uint64_t peak = 0;
  if (::read(ends[0], &peak, sizeof peak) != sizeof peak) peak = 0;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return peak;
}

TEST(LoadMemory, OfALoadToAGpuIsBounded) {
#if SWORDFISH_ASAN
  GTEST_SKIP() << "the sanitizer's own memory is counted too";
#endif
  TempFolder folder;
  const std::string path = folder.path("model");
  SynthOptions synth;
  synth.model = SynthModel::qwen3_moe;
  synth.scheme = SynthScheme::nvfp4;
  synth.bytes = 400'000'000;
  synth.shard_bytes = 150'000'000;
  ASSERT_TRUE(synthesize(path, synth).ok());
  for (const std::uint64_t ring : {std::uint64_t{64} << 20, std::uint64_t{256} << 20}) {
    for (const bool cold : {true, false}) {
      LoadOptions options;
      options.ring_bytes = ring;
      options.threads = 16;
      if (cold) test::make_cold(path);
      const std::uint64_t peak = peak_of_load(path, options), bound = ring + 3 * header_bytes(path) + (std::uint64_t{128} << 20);
      EXPECT_GT(peak, ring / 4) << "it was measured";
      EXPECT_LE(peak, bound) << "ring " << (ring >> 20) << " MiB, " << (cold ? "cold" : "cached") << ": " << (peak >> 20) << " of "
                             << (bound >> 20) << " MiB";
      std::printf("  ring %d MiB, %s: peak %d MiB, allowed %d MiB\n", static_cast<int>(ring >> 20), cold ? "cold" : "cached",
                  static_cast<int>(peak >> 20), static_cast<int>(bound >> 20));
    }
  }
}

}  // namespace
}  // namespace swordfish
