// cp.async: non-bulk asynchronous copies from global to shared memory, by groups, and the L2 cache policies they may carry.
//
// A copy is visible to the thread that started it after that thread's wait, to others only after a barrier that follows the wait.
// Bulk copies (TMA) come with the kernels that use them: tma.h beside this file.
#pragma once

#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::ptx {

// An opaque L2 cache policy.
using CachePolicy = std::uint64_t;

// createpolicy.fractional (PTX ISA, "Data Movement and Conversion Instructions: createpolicy"), all of the accesses.
SF_DEVICE CachePolicy policy_evict_first() {
#if SF_ON_DEVICE
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
#else
  return 1;
#endif
}
SF_DEVICE CachePolicy policy_evict_normal() {
#if SF_ON_DEVICE
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
#else
  return 3;
#endif
}
SF_DEVICE CachePolicy policy_evict_last() {
#if SF_ON_DEVICE
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
#else
  return 2;
#endif
}

// cp.async.ca (PTX ISA, "cp.async"): `bytes` = 4, 8 or 16, both addresses aligned to it; cached in L1 and L2.
template <int bytes, class T, class U>
SF_DEVICE void cp_async_ca(sptr<T> to, gptr<U> from SF_AT) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
#if SF_ON_DEVICE
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_u32(to)), "l"(__cvta_generic_to_global(from)), "n"(bytes)
               : "memory");
#else
  emu::async_copy(to.address(), from.raw(), from.allocation(), bytes, bytes, at);
#endif
}
// The same, reading only the first `source_bytes` (0..bytes) and filling the rest with zeros; with 0 the source is not touched.
template <int bytes, class T, class U>
SF_DEVICE void cp_async_ca_zfill(sptr<T> to, gptr<U> from, std::uint32_t source_bytes SF_AT) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
#if SF_ON_DEVICE
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_u32(to)), "l"(__cvta_generic_to_global(from)),
               "n"(bytes), "r"(source_bytes)
               : "memory");
#else
  emu::async_copy(to.address(), from.raw(), from.allocation(), bytes, source_bytes, at);
#endif
}
// cp.async.cg: 16 bytes, cached in L2 only.
template <class T, class U>
SF_DEVICE void cp_async_cg(sptr<T> to, gptr<U> from SF_AT) {
#if SF_ON_DEVICE
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_u32(to)), "l"(__cvta_generic_to_global(from)) : "memory");
#else
  emu::async_copy(to.address(), from.raw(), from.allocation(), 16, 16, at);
#endif
}
template <class T, class U>
SF_DEVICE void cp_async_cg_zfill(sptr<T> to, gptr<U> from, std::uint32_t source_bytes SF_AT) {
#if SF_ON_DEVICE
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_u32(to)), "l"(__cvta_generic_to_global(from)),
               "r"(source_bytes)
               : "memory");
#else
  emu::async_copy(to.address(), from.raw(), from.allocation(), 16, source_bytes, at);
#endif
}
// cp.async.cg with an L2 cache policy.
template <class T, class U>
SF_DEVICE void cp_async_cg_hint(sptr<T> to, gptr<U> from, CachePolicy policy SF_AT) {
#if SF_ON_DEVICE
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_u32(to)),
               "l"(__cvta_generic_to_global(from)), "l"(policy)
               : "memory");
#else
  (void)policy;
  emu::async_copy(to.address(), from.raw(), from.allocation(), 16, 16, at);
#endif
}
template <class T, class U>
SF_DEVICE void cp_async_cg_zfill_hint(sptr<T> to, gptr<U> from, std::uint32_t source_bytes, CachePolicy policy SF_AT) {
#if SF_ON_DEVICE
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_u32(to)),
               "l"(__cvta_generic_to_global(from)), "r"(source_bytes), "l"(policy)
               : "memory");
#else
  (void)policy;
  emu::async_copy(to.address(), from.raw(), from.allocation(), 16, source_bytes, at);
#endif
}

// cp.async.commit_group: the copies since the last one become a group (an empty one too).
SF_DEVICE void cp_async_commit(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emu::async_commit(at);
#endif
}
// cp.async.wait_group: waits until at most `groups` of this thread's newest groups are under way.
template <int groups>
SF_DEVICE void cp_async_wait(SF_AT_ONLY) {
  static_assert(groups >= 0);
#if SF_ON_DEVICE
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#else
  emu::async_wait(groups, at);
#endif
}
// cp.async.wait_all: every copy of this thread, committed or not.
SF_DEVICE void cp_async_wait_all(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emu::async_wait(-1, at);
#endif
}

}  // namespace swordfish::ptx
