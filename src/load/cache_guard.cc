// Heads of weight files: their headers, and what the kernel reads ahead behind them.
#include "load/cache_guard.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "io/file.h"

namespace swordfish {
namespace {

constexpr std::uint64_t kHead = std::uint64_t{32} << 20;

}  // namespace

CacheGuard::CacheGuard(const std::string& path) {
  const auto add = [&](const std::string& name) {
    if (!name.ends_with(".safetensors") && !name.ends_with(".gguf")) return;
    io::Descriptor file(name);
    struct stat info = {};
    if (!file || ::fstat(file.fd(), &info) != 0) return;  // opening the checkpoint will say why
    auto missing = io::missing_from_cache(file.fd(), 0, std::min(kHead, static_cast<std::uint64_t>(info.st_size)));
    heads_.push_back({std::move(file), std::move(missing)});
  };
  if (!io::is_directory(path)) {
    // The other files of a split model lie beside it.
    if (path.ends_with(".gguf")) {
      const std::string folder = io::folder_of(path);
      const auto names = io::list_directory(folder);
      if (names.ok())
        for (const std::string& name : *names) add(fmt::format("{}/{}", folder, name));
    } else {
      add(path);
    }
    return;
  }
  const auto names = io::list_directory(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) add(fmt::format("{}/{}", path, name));
}

CacheGuard::~CacheGuard() {
  for (const Head& head : heads_) io::drop_from_cache(head.file.fd(), head.missing);
}

}  // namespace swordfish
