// Thread block clusters (sm_90 and up): the cluster barrier and distributed shared memory.
#pragma once

#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::ptx {

// barrier.cluster.arrive / .wait (PTX ISA, "Parallel Synchronization and Communication Instructions: barrier.cluster"), aligned:
// release on arrive, acquire on wait, over all threads of the cluster.
SF_DEVICE void cluster_arrive(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  emu::cluster_arrive(true, at);
#endif
}
// Orders no memory: for a last barrier that only keeps a CTA's shared memory alive.
SF_DEVICE void cluster_arrive_relaxed(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  emu::cluster_arrive(false, at);
#endif
}
SF_DEVICE void cluster_wait(SF_AT_ONLY) {
#if SF_ON_DEVICE
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  emu::cluster_wait(true, at);
#endif
}

// mapa.shared::cluster (PTX ISA, "Data Movement and Conversion Instructions: mapa"): where CTA `rank` of the cluster keeps what p
// points to in this CTA.
template <class T>
SF_DEVICE dptr<T> mapa(sptr<T> p, std::uint32_t rank) {
#if SF_ON_DEVICE
  dptr<T> d;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d.address) : "r"(shared_u32(p)), "r"(rank));
  return d;
#else
  emu::SharedAddress a = p.address();
  a.cta = static_cast<int>(rank);
  return dptr<T>(a);
#endif
}

// ld.shared::cluster and st.shared::cluster (PTX ISA, "ld", "st"), 4 or 16 bytes.
template <class V, class T>
SF_DEVICE V ld_cluster(dptr<T> p SF_AT) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 16);
#if SF_ON_DEVICE
  if constexpr (sizeof(V) == 4) {
    std::uint32_t v;
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(v) : "r"(p.address) : "memory");
    return bits_as<V>(v);
  } else {
    U32x4 v;
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(p.address)
                 : "memory");
    return bits_as<V>(v);
  }
#else
  return p.template get<V>(at);
#endif
}
template <class T, class V>
SF_DEVICE void st_cluster(dptr<T> p, const V& value SF_AT) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 16);
#if SF_ON_DEVICE
  if constexpr (sizeof(V) == 4) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(p.address), "r"(bits_as<std::uint32_t>(value)) : "memory");
  } else {
    const U32x4 v = bits_as<U32x4>(value);
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(p.address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  }
#else
  p.template set<V>(value, at);
#endif
}

}  // namespace swordfish::ptx
