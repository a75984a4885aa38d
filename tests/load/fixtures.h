// The fixtures as the loader's tests open them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace swordfish::test {

// What to open of every fixture: its folder, or its first GGUF file.
inline std::vector<std::string> fixtures() {
  namespace fs = std::filesystem;
  fs::path base = fs::path(SWORDFISH_SHARED) / "fixtures";
  if (!fs::is_directory(base)) base = fs::path(SWORDFISH_TEST_DATA) / "fixtures";
  std::vector<std::string> out;
  for (const auto& folder : fs::directory_iterator(base)) {
    if (!fs::exists(folder.path() / "meta.json")) continue;
    std::vector<std::string> ggufs;
    for (const auto& file : fs::directory_iterator(folder.path()))
      if (file.path().extension() == ".gguf") ggufs.push_back(file.path());
    out.push_back(ggufs.empty() ? folder.path().string() : *std::min_element(ggufs.begin(), ggufs.end()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace swordfish::test
