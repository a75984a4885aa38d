// Special registers: who the running thread is (PTX ISA, "Special Registers").
#pragma once

#include "kernels/cuda/ptx/config.h"
#if !SF_ON_DEVICE
#include "kernels/cuda/ptx/model.h"
#endif

namespace swordfish::ptx {

#if SF_ON_DEVICE
#define SF_REGISTER(function, register_name, field)    \
  SF_DEVICE std::uint32_t function() {                 \
    std::uint32_t v;                                   \
    asm("mov.u32 %0, %%" register_name ";" : "=r"(v)); \
    return v;                                          \
  }
#else
#define SF_REGISTER(function, register_name, field) \
  SF_DEVICE std::uint32_t function() { return emu::registers().field; }
#endif

SF_REGISTER(tid_x, "tid.x", tid.x)
SF_REGISTER(tid_y, "tid.y", tid.y)
SF_REGISTER(ntid_x, "ntid.x", ntid.x)
SF_REGISTER(ntid_y, "ntid.y", ntid.y)
SF_REGISTER(ctaid_x, "ctaid.x", ctaid.x)
SF_REGISTER(ctaid_y, "ctaid.y", ctaid.y)
SF_REGISTER(ctaid_z, "ctaid.z", ctaid.z)
SF_REGISTER(nctaid_x, "nctaid.x", nctaid.x)
SF_REGISTER(nctaid_y, "nctaid.y", nctaid.y)
SF_REGISTER(nctaid_z, "nctaid.z", nctaid.z)
SF_REGISTER(laneid, "laneid", lane)
SF_REGISTER(dynamic_smem_size, "dynamic_smem_size", dynamic_smem)
// sm_90 and up.
SF_REGISTER(clusterid_x, "clusterid.x", clusterid.x)
SF_REGISTER(cluster_ctaid_x, "cluster_ctaid.x", cluster_ctaid.x)
SF_REGISTER(cluster_nctaid_x, "cluster_nctaid.x", cluster_nctaid.x)
SF_REGISTER(cluster_ctarank, "cluster_ctarank", cluster_ctarank)

#undef SF_REGISTER

// The warp's index in its CTA (of x-only blocks). Uniform over the warp, which the compiler cannot know: kernels that branch on it
// hand it through shfl once.
SF_DEVICE std::uint32_t warpid() { return tid_x() / 32; }

}  // namespace swordfish::ptx
