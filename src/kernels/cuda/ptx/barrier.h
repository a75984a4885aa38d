// CTA barriers (named, 0..15) and memory fences.
//
// mbarrier objects come with the kernels that use them: mbarrier.h beside this file, and a state machine beside Cta's barriers in
// tests/emulator.
#pragma once

#include "kernels/cuda/ptx/config.h"
#if !SF_ON_DEVICE
#include "kernels/cuda/ptx/model.h"
#endif

namespace swordfish::ptx {

// bar.sync a (PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier") with every thread of the CTA. All
// threads of a warp must execute the same bar.
SF_DEVICE void bar_sync(int id SF_AT) {
#if SF_ON_DEVICE
  asm volatile("bar.sync %0;" ::"r"(id) : "memory");
#else
  emu::barrier(id, 0, true, at);
#endif
}
// bar.sync a, b: waits until `threads` (a multiple of 32) have come, arrivals counted.
SF_DEVICE void bar_sync(int id, int threads SF_AT) {
#if SF_ON_DEVICE
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  emu::barrier(id, threads, true, at);
#endif
}
// bar.arrive a, b: counts the warp as come and goes on.
SF_DEVICE void bar_arrive(int id, int threads SF_AT) {
#if SF_ON_DEVICE
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  emu::barrier(id, threads, false, at);
#endif
}

// fence.acq_rel (PTX ISA, "membar / fence"): orders this thread's memory accesses for the threads of the scope.
SF_DEVICE void fence_gpu(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  emu::fence(at);
#endif
}
SF_DEVICE void fence_cta(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("fence.acq_rel.cta;" ::: "memory");
#else
  emu::fence(at);
#endif
}

}  // namespace swordfish::ptx
