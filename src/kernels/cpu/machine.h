// Two loops that say what this machine can do at best: reading memory, and multiplying in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace swordfish::cpu {

// Reads every byte of [p, p+bytes), a multiple of 512, with vector loads; returns something that depends on all of them.
std::uint64_t read_loop(const std::byte* p, std::size_t bytes);
// `n` rounds of independent FMAs in registers; returns something that depends on all of them.
float fma_loop(std::int64_t n);
// Multiply-adds (one a lane) of one round.
std::int64_t fma_per_round();
// "AVX2", "SSE4", ...
std::string_view vectors_in_use();

}  // namespace swordfish::cpu
