// Kernel sources keep to the wrappers: nothing in them escapes the checks of the model (design rule 6).
//
// Looked at: every .cuh under src/kernels/cuda but the wrappers themselves (device code lives in .cuh files; .cu files hold
// launchers).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace swordfish {
namespace {

// Comments and string literals blanked, lines kept.
std::string code_only(const std::string& text) {
  std::string out;
  enum { code, line, block, quote } in = code;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    switch (in) {
      case code:
        if (c == '/' && next == '/')
          in = line;
        else if (c == '/' && next == '*')
          in = block;
        else if (c == '"')
          in = quote;
        break;
      case line:
        if (c == '\n') in = code;
        break;
      case block:
        if (c == '*' && next == '/') {
          in = code;
          ++i;
          out += "  ";
          continue;
        }
        break;
      case quote:
        if (c == '\\') {
          out += "  ";
          ++i;
          continue;
        }
        if (c == '"') {
          in = code;
          out += ' ';
          continue;
        }
        break;
    }
    out += in == code || c == '\n' ? c : ' ';
  }
  return out;
}

// "line: what it must not use"
std::vector<std::string> offences(const std::string& text) {
  static const std::vector<std::pair<std::regex, const char*>> rules = [] {
    std::vector<std::pair<std::regex, const char*>> r;
    for (const auto& [pattern, why] : std::vector<std::pair<const char*, const char*>>{
             {R"(\basm\b)", "inline PTX (belongs into ptx/)"},
             {R"(__shared__)", "__shared__ (dyn_smem and carve)"},
             {R"(__global__|__device__|__launch_bounds__)", "CUDA spellings (SF_KERNEL, SF_DEVICE, SF_LAUNCH_BOUNDS)"},
             {R"(\b(threadIdx|blockIdx|blockDim|gridDim)\b)", "built-in variables (ptx/registers.h)"},
             {R"(\b__(sync|shfl|ballot|any_sync|all_sync|activemask|threadfence|ldg|ldcg|stcg|nanosleep))",
              "intrinsics with a wrapper in ptx/"},
             {R"(\batomic[A-Z])", "atomic functions (ptx/memory.h)"},
             {R"(\.raw\(\))", "raw pointers"},
             {R"(reinterpret_cast)", "reinterpret_cast (cast<U>(p), bits_as)"},
             {R"(#\s*pragma\s+unroll)", "#pragma unroll (SF_UNROLL)"}})
      r.emplace_back(std::regex(pattern), why);
    return r;
  }();
  std::vector<std::string> found;
  const std::string code = code_only(text);
  std::size_t line = 1;
  for (std::size_t at = 0; at < code.size(); ++line) {
    const std::size_t end = std::min(code.find('\n', at), code.size());
    const std::string one = code.substr(at, end - at);
    for (const auto& [pattern, why] : rules)
      if (std::regex_search(one, pattern)) found.push_back(std::to_string(line) + ": " + why);
    at = end + 1;
  }
  return found;
}

TEST(KernelSource, TheScanFindsWhatItShould) {
  EXPECT_EQ(offences("int x; // asm\n/* __shared__\nthreadIdx */ const char* s = \"asm\";\n").size(), 0u);
  EXPECT_EQ(offences("__shared__ float s[4];"), std::vector<std::string>{"1: __shared__ (dyn_smem and carve)"});
  EXPECT_EQ(offences("\n\nasm volatile(\"x\");").at(0).substr(0, 2), "3:");
  EXPECT_EQ(offences("int t = threadIdx.x; __syncthreads();").size(), 2u);
  EXPECT_EQ(offences("*p.raw() = 1;").size(), 1u);
}

TEST(KernelSource, KeepsToTheWrappers) {
  const std::filesystem::path root = SWORDFISH_SOURCE "/src/kernels/cuda";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    // The wrappers themselves, and what instantiates CUTLASS, which no machine model runs.
    const std::string folder = entry.path().parent_path().filename().string();
    if (entry.path().extension() != ".cuh" || folder == "ptx" || folder == "cutlass") continue;
    ++files;
    std::ifstream in(entry.path());
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (const std::string& o : offences(text)) ADD_FAILURE() << entry.path().string() << ":" << o;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace swordfish
