// Times the swizzle of block scales (src/pack/sm1xx_swizzle.cc) on one core, from memory to memory, beside the strided copy of
// single 4-byte words that it must beat and beside memcpy. GB/s of scales: each is read once and written once.
//
//   swizzle_bench [MiB of scales, default 256]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "pack/sm1xx_pack.h"
#include "swordfish/buffer.h"

namespace {

using namespace swordfish;

// The baseline: row after row, four scales at a time, each to its place.
void strided_copy(const std::uint8_t* from, std::int64_t n, std::int64_t s, std::uint8_t* to) {
  const std::int64_t k_atoms = sm1xx::k_atoms(s);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < s; c += 4) std::memcpy(to + sm1xx::scale_offset(i, c, k_atoms), from + i * s + c, 4);
}

// Processor time, so that a busy machine counts only by what it does to caches and memory.
template <class F>
double seconds(F f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mib = argc > 1 ? std::atoll(argv[1]) : 256;
  if (mib < 1) {
    std::fprintf(stderr, "usage: swizzle_bench [MiB of scales]\n");
    return 2;
  }
  std::printf("%7s %10s | %21s | %21s | %21s | %s\n", "S", "rows", "swizzle GB/s", "4-byte copies GB/s", "memcpy GB/s",
              "swizzle / copies");
  std::printf("%7s %10s | %10s %10s | %10s %10s | %10s %10s |\n", "", "", "median", "best", "median", "best", "median", "best");
  for (const std::int64_t s : {128, 256, 512, 896, 1792}) {
    const std::int64_t n = std::max<std::int64_t>(1, (mib << 20) / s / 128) * 128;
    const auto bytes = static_cast<std::size_t>(n * s);
    Buffer from(bytes), to(bytes), want(bytes);
    for (std::size_t i = 0; i < bytes; ++i) from.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    std::memset(to.data(), 1, bytes);
    strided_copy(from.as<std::uint8_t>(), n, s, want.as<std::uint8_t>());
    std::vector<double> times[3];
    for (int repeat = 0; repeat < 21; ++repeat) {  // interleaved, so that neighbours disturb all alike
      times[1].push_back(seconds([&] { strided_copy(from.as<std::uint8_t>(), n, s, to.as<std::uint8_t>()); }));
      times[2].push_back(seconds([&] { std::memcpy(to.data(), from.data(), bytes); }));
      times[0].push_back(seconds([&] { sm1xx::swizzle_scales(from.as<std::uint8_t>(), s, n, s, to.as<std::uint8_t>()); }));
    }
    if (std::memcmp(to.data(), want.data(), bytes) != 0) {
      std::fprintf(stderr, "S = %lld: wrong bytes\n", static_cast<long long>(s));
      return 1;
    }
    double rate[3][2];
    for (int i = 0; i < 3; ++i) {
      std::sort(times[i].begin(), times[i].end());
      rate[i][0] = static_cast<double>(bytes) / 1e9 / times[i][times[i].size() / 2];
      rate[i][1] = static_cast<double>(bytes) / 1e9 / times[i][0];
    }
    std::printf("%7lld %10lld | %10.2f %10.2f | %10.2f %10.2f | %10.2f %10.2f | %.2f\n", static_cast<long long>(s),
                static_cast<long long>(n), rate[0][0], rate[0][1], rate[1][0], rate[1][1], rate[2][0], rate[2][1],
                rate[0][0] / rate[1][0]);
  }
  return 0;
}
