// Programmatic dependent launch (sm_90 and up): griddepcontrol. On older targets both are no-ops, as for a plain launch.
#pragma once

#include "kernels/cuda/ptx/config.h"
#if !SF_ON_DEVICE
#include "kernels/cuda/ptx/model.h"
#endif

namespace swordfish::ptx {

// griddepcontrol.wait (PTX ISA, "Parallel Synchronization and Communication Instructions: griddepcontrol"): waits until the grids
// that this one depends on have ended and their memory is visible. Nothing that they write, nor anything that they may still read
// and this grid writes, may be touched before.
SF_DEVICE void griddep_wait(SF_AT_ONLY) {
#if SF_ON_DEVICE
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
#else
  emu::dependency_wait(at);
#endif
}
// griddepcontrol.launch_dependents: this CTA no longer keeps the next grid from starting.
SF_DEVICE void griddep_launch_dependents(SF_AT_ONLY) {
#if SF_ON_DEVICE
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#else
  emu::launch_dependents(at);
#endif
}

}  // namespace swordfish::ptx
