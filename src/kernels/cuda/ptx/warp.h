// Warp-synchronous exchange: shuffles, votes, redux and the warp barrier.
#pragma once

#include "kernels/cuda/ptx/config.h"
#if !SF_ON_DEVICE
#include "kernels/cuda/ptx/model.h"
#endif

namespace swordfish::ptx {

#if !SF_ON_DEVICE
namespace detail {
struct ShuffleIn {
  std::uint32_t value;
  std::uint32_t source;  // lane to read, or the own lane where the ISA says so
};
inline void shuffle(const emu::WarpArgs& args) {
  for (std::uint32_t l = 0; l < 32; ++l) {
    if (!(args.lanes >> l & 1)) continue;
    const std::uint32_t s = static_cast<const ShuffleIn*>(args.in[l])->source;
    if (!(args.lanes >> s & 1)) emu::undefined_value("shfl.sync reads a lane that does not take part", args.at);
    *static_cast<std::uint32_t*>(args.out[l]) = static_cast<const ShuffleIn*>(args.in[s])->value;
  }
}
inline void ballot(const emu::WarpArgs& args) {
  std::uint32_t votes = 0;
  for (std::uint32_t l = 0; l < 32; ++l)
    if (args.lanes >> l & 1) votes |= static_cast<std::uint32_t>(*static_cast<const bool*>(args.in[l])) << l;
  for (std::uint32_t l = 0; l < 32; ++l)
    if (args.lanes >> l & 1) *static_cast<std::uint32_t*>(args.out[l]) = votes;
}
inline std::uint32_t shuffle_from(std::uint32_t mask, std::uint32_t value, std::uint32_t source, emu::Loc at) {
  const ShuffleIn in{value, source};
  std::uint32_t out = 0;
  emu::warp_op("shfl.sync", mask, &in, &out, shuffle, false, false, at);
  return out;
}
}  // namespace detail
#endif

// bar.warp.sync (PTX ISA, "Parallel Synchronization and Communication Instructions: bar.warp.sync"): also orders memory among the
// lanes of the mask.
SF_DEVICE void syncwarp(std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
#else
  emu::warp_op("bar.warp.sync", mask, nullptr, nullptr, nullptr, false, true, at);
#endif
}

// shfl.sync.idx (PTX ISA, "Data Movement and Conversion Instructions: shfl.sync"), whole-warp segments: the value of lane
// `source` % 32.
SF_DEVICE std::uint32_t shfl_idx(std::uint32_t value, std::uint32_t source, std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t out;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(out) : "r"(value), "r"(source), "r"(mask));
  return out;
#else
  return detail::shuffle_from(mask, value, source % 32, at);
#endif
}
// shfl.sync.bfly: the value of lane (own lane xor `lanes`).
SF_DEVICE std::uint32_t shfl_bfly(std::uint32_t value, std::uint32_t lanes, std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t out;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, %3;" : "=r"(out) : "r"(value), "r"(lanes), "r"(mask));
  return out;
#else
  return detail::shuffle_from(mask, value, (emu::registers().lane ^ lanes) % 32, at);
#endif
}
// shfl.sync.down: the value of lane (own lane + delta); past lane 31 the own value.
SF_DEVICE std::uint32_t shfl_down(std::uint32_t value, std::uint32_t delta, std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t out;
  asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, %3;" : "=r"(out) : "r"(value), "r"(delta), "r"(mask));
  return out;
#else
  const std::uint32_t lane = emu::registers().lane, source = lane + (delta & 31);
  return detail::shuffle_from(mask, value, source < 32 ? source : lane, at);
#endif
}
// shfl.sync.up: the value of lane (own lane - delta); below lane 0 the own value.
SF_DEVICE std::uint32_t shfl_up(std::uint32_t value, std::uint32_t delta, std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t out;
  asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, %3;" : "=r"(out) : "r"(value), "r"(delta), "r"(mask));
  return out;
#else
  const std::uint32_t lane = emu::registers().lane, d = delta & 31;
  return detail::shuffle_from(mask, value, d <= lane ? lane - d : lane, at);
#endif
}
// The same on floats.
SF_DEVICE float shfl_idx(float value, std::uint32_t source, std::uint32_t mask = kFullWarp SF_AT) {
  return bits_as<float>(shfl_idx(bits_as<std::uint32_t>(value), source, mask SF_PASS));
}
SF_DEVICE float shfl_bfly(float value, std::uint32_t lanes, std::uint32_t mask = kFullWarp SF_AT) {
  return bits_as<float>(shfl_bfly(bits_as<std::uint32_t>(value), lanes, mask SF_PASS));
}
SF_DEVICE float shfl_down(float value, std::uint32_t delta, std::uint32_t mask = kFullWarp SF_AT) {
  return bits_as<float>(shfl_down(bits_as<std::uint32_t>(value), delta, mask SF_PASS));
}

// vote.sync.ballot (PTX ISA, "vote.sync"): bit l is lane l's predicate; lanes outside of the mask give 0.
SF_DEVICE std::uint32_t vote_ballot(bool predicate, std::uint32_t mask = kFullWarp SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t out;
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, %2;\n}"
               : "=r"(out)
               : "r"(static_cast<std::uint32_t>(predicate)), "r"(mask));
  return out;
#else
  std::uint32_t out = 0;
  emu::warp_op("vote.sync.ballot", mask, &predicate, &out, detail::ballot, false, false, at);
  return out;
#endif
}
// vote.sync.any and vote.sync.all, by way of the ballot (the compiler folds the comparison).
SF_DEVICE bool vote_any(bool predicate, std::uint32_t mask = kFullWarp SF_AT) { return vote_ballot(predicate, mask SF_PASS) != 0; }
SF_DEVICE bool vote_all(bool predicate, std::uint32_t mask = kFullWarp SF_AT) { return vote_ballot(!predicate, mask SF_PASS) == 0; }

}  // namespace swordfish::ptx
