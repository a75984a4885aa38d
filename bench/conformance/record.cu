// Runs every conformance case on the GPU and writes the outputs.
//
//   nvcc -std=c++20 -O2 -gencode arch=compute_90a,code=sm_90a -I src -I include -I . bench/conformance/record.cu -o record
//   ./record hopper.bin
//
// The file: for each case u32 length of the name, the name, u32 number of words, the words; little-endian.
#include <cstdio>
#include <cstring>

#include "bench/conformance/cases.h"

namespace {

bool check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return true;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
  return false;
}

bool write_words(std::FILE* f, const void* p, std::size_t bytes) { return std::fwrite(p, 1, bytes, f) == bytes; }

}  // namespace

int main(int argc, char** argv) {
  using namespace swordfish::conformance;
  if (argc != 2) {
    std::fprintf(stderr, "usage: record FILE\n");
    return 2;
  }
  cudaDeviceProp properties;
  if (!check(cudaGetDeviceProperties(&properties, 0), "device")) return 1;
  std::printf("%s, compute capability %d.%d\n", properties.name, properties.major, properties.minor);
  std::FILE* f = std::fopen(argv[1], "wb");
  if (f == nullptr) return 1;
  std::uint64_t seed = 1;
  for (const Case& c : cases()) {
    const std::vector<Word> in = fill(c, seed++);
    const std::size_t threads = std::size_t{c.shape.grid_x} * c.shape.threads;
    std::vector<Word> out(threads * c.out_words);
    Word *d_in = nullptr, *d_out = nullptr;
    if (!check(cudaMalloc(&d_in, in.size() * 4), c.name) || !check(cudaMalloc(&d_out, out.size() * 4), c.name)) return 1;
    if (!check(cudaMemcpy(d_in, in.data(), in.size() * 4, cudaMemcpyHostToDevice), c.name)) return 1;
    if (!check(cudaMemset(d_out, 0xff, out.size() * 4), c.name)) return 1;
    if (!check(swordfish::ptx::launch<In, Out>(c.kernel, c.shape, nullptr, d_in, d_out), c.name)) return 1;
    if (!check(cudaDeviceSynchronize(), c.name)) return 1;
    if (!check(cudaMemcpy(out.data(), d_out, out.size() * 4, cudaMemcpyDeviceToHost), c.name)) return 1;
    const auto length = static_cast<std::uint32_t>(std::strlen(c.name));
    const auto count = static_cast<std::uint32_t>(out.size());
    if (!write_words(f, &length, 4) || !write_words(f, c.name, length) || !write_words(f, &count, 4) ||
        !write_words(f, out.data(), out.size() * 4))
      return 1;
    cudaFree(d_in);
    cudaFree(d_out);
    std::printf("%-28s %u words\n", c.name, count);
  }
  return std::fclose(f) == 0 ? 0 : 1;
}
