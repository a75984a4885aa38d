// The self-check of a block-scaled GEMM: one small problem, made on the host and compared with fp64 there. It runs at the first use
// of an instance on a device, since these kernels have been compiled and not run; what fails is disabled with a sentence.
//
// The problem has two parts whose globals differ by 16/13, rows and K that end inside a tile and an atom, and block scales over
// many powers of two, so that a scale, a row, an alpha or a part in the wrong place shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/blockscaled/gemm.h"
#include "swordfish/pack.h"

namespace swordfish::blockscaled {

struct Check {
  PackedWeight weight;
  std::int64_t m = 0;
  DType type = DType::bf16;      // of x and y
  std::vector<std::uint16_t> x;  // [m, k]
  std::vector<float> bias;       // [n], or empty for grouped instances
  std::vector<double> y, slack;  // [m, n]: of the quantized x, in fp64, and how far a result may be from it
};
Check make_check(const Instance& instance);
// What is wrong with y[m, n], or empty.
std::string verdict(const Check& check, const std::vector<std::uint16_t>& y);

// The outcome for an instance on a device: empty, or why it is disabled. Runs the check at the first call; later calls are cheap.
const std::string& self_check(const Instance& instance, int device, int sms);

}  // namespace swordfish::blockscaled
