// Loads and stores of global memory with cache hints, and the strong ones: atomics, reductions, acquire and release (gpu scope).
#pragma once

#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/config.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::ptx {

#if SF_ON_DEVICE
namespace detail {
template <class T>
SF_DEVICE std::size_t global_address(const T* p) {
  return __cvta_generic_to_global(p);
}
}  // namespace detail
#else
namespace detail {
template <class V, class T>
V strong_load(const gptr<T>& p, emu::Order order, emu::Loc at) {
  return read_bytes<V>(emu::global_strong(p.raw(), sizeof(V), p.allocation(), emu::Access::strong_read, order, at));
}
template <class T, class V>
void strong_store(const gptr<T>& p, const V& v, emu::Order order, emu::Loc at) {
  static_assert(!std::is_const_v<T>);
  std::memcpy(emu::global_strong(p.raw(), sizeof(V), p.allocation(), emu::Access::strong_write, order, at), &v, sizeof v);
}
// Read-modify-write; returns the old value.
template <class T, class F>
T strong_rmw(const gptr<T>& p, emu::Order order, emu::Loc at, F f) {
  void* where = emu::global_strong(p.raw(), sizeof(T), p.allocation(), emu::Access::strong_rmw, order, at);
  const T old = read_bytes<T>(where);
  const T now = f(old);
  std::memcpy(where, &now, sizeof now);
  return old;
}
}  // namespace detail
#endif

// ld.global.nc (PTX ISA, "Data Movement and Conversion Instructions: ld.global.nc"): memory that nothing writes while the kernel
// runs. V is 4, 8 or 16 bytes; no allocation in L1.
template <class V, class T>
SF_DEVICE V ld_nc(gptr<T> p SF_AT) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8 || sizeof(V) == 16);
#if SF_ON_DEVICE
  if constexpr (sizeof(V) == 4) {
    std::uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(detail::global_address(p)));
    return bits_as<V>(v);
  } else if constexpr (sizeof(V) == 8) {
    U32x2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(detail::global_address(p)));
    return bits_as<V>(v);
  } else {
    U32x4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(detail::global_address(p)));
    return bits_as<V>(v);
  }
#else
  return p.template get<V>(at, emu::Access::read_nc);
#endif
}
// The same, 16 bytes, with an L2 cache policy.
template <class V, class T>
SF_DEVICE V ld_nc_hint(gptr<T> p, CachePolicy policy SF_AT) {
  static_assert(sizeof(V) == 16);
#if SF_ON_DEVICE
  U32x4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(detail::global_address(p)), "l"(policy));
  return bits_as<V>(v);
#else
  (void)policy;
  return p.template get<V>(at, emu::Access::read_nc);
#endif
}
// prefetch.global.L2 (PTX ISA, "prefetch"): a hint without effect on values.
template <class T>
SF_DEVICE void prefetch_l2(gptr<T> p) {
#if SF_ON_DEVICE
  asm volatile("prefetch.global.L2 [%0];" ::"l"(detail::global_address(p)));
#else
  (void)p;
#endif
}

// ld.relaxed.gpu, ld.acquire.gpu (PTX ISA, "ld"): 4 bytes. Polling loops use these.
template <class T>
SF_DEVICE std::uint32_t ld_relaxed(gptr<T> p SF_AT) {
  static_assert(sizeof(T) == 4);
#if SF_ON_DEVICE
  std::uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(detail::global_address(p)) : "memory");
  return v;
#else
  return detail::strong_load<std::uint32_t>(p, emu::Order::relaxed, at);
#endif
}
template <class T>
SF_DEVICE std::uint32_t ld_acquire(gptr<T> p SF_AT) {
  static_assert(sizeof(T) == 4);
#if SF_ON_DEVICE
  std::uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(detail::global_address(p)) : "memory");
  return v;
#else
  return detail::strong_load<std::uint32_t>(p, emu::Order::acquire, at);
#endif
}
// ld.relaxed.gpu of 16 bytes, as four words: partial sums that other CTAs wrote (L1 is bypassed).
template <class T>
SF_DEVICE F32x4 ld_relaxed_f32x4(gptr<T> p SF_AT) {
#if SF_ON_DEVICE
  F32x4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(detail::global_address(p))
               : "memory");
  return v;
#else
  return p.template get<F32x4>(at);
#endif
}
// st.relaxed.gpu, st.release.gpu (PTX ISA, "st").
SF_DEVICE void st_relaxed(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(detail::global_address(p)), "r"(v) : "memory");
#else
  detail::strong_store(p, v, emu::Order::relaxed, at);
#endif
}
SF_DEVICE void st_release(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(detail::global_address(p)), "r"(v) : "memory");
#else
  detail::strong_store(p, v, emu::Order::release, at);
#endif
}

// atom.add (PTX ISA, "Parallel Synchronization and Communication Instructions: atom"), gpu scope; returns the old value.
SF_DEVICE std::uint32_t atom_add_relaxed(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(detail::global_address(p)), "r"(v) : "memory");
  return old;
#else
  return detail::strong_rmw(p, emu::Order::relaxed, at, [v](std::uint32_t old) { return old + v; });
#endif
}
SF_DEVICE std::uint32_t atom_add_acq_rel(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(detail::global_address(p)), "r"(v) : "memory");
  return old;
#else
  return detail::strong_rmw(p, emu::Order::acq_rel, at, [v](std::uint32_t old) { return old + v; });
#endif
}
// atom.inc: old >= limit ? 0 : old + 1, so that a counter returns to zero by itself; returns the old value.
SF_DEVICE std::uint32_t atom_inc_acq_rel(gptr<std::uint32_t> p, std::uint32_t limit SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(detail::global_address(p)), "r"(limit) : "memory");
  return old;
#else
  return detail::strong_rmw(p, emu::Order::acq_rel, at, [limit](std::uint32_t old) { return old >= limit ? 0 : old + 1; });
#endif
}
// atom.exch; returns the old value.
SF_DEVICE std::uint32_t atom_exch_relaxed(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  std::uint32_t old;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(detail::global_address(p)), "r"(v) : "memory");
  return old;
#else
  return detail::strong_rmw(p, emu::Order::relaxed, at, [v](std::uint32_t) { return v; });
#endif
}

// red.add (PTX ISA, "red"), gpu scope: no value comes back.
SF_DEVICE void red_add_release(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(detail::global_address(p)), "r"(v) : "memory");
#else
  detail::strong_rmw(p, emu::Order::release, at, [v](std::uint32_t old) { return old + v; });
#endif
}
// Subnormal sums and inputs are flushed to zero (the ISA says so of global red.f32).
SF_DEVICE void red_add_relaxed(gptr<float> p, float v SF_AT) {
#if SF_ON_DEVICE
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(detail::global_address(p)), "f"(v) : "memory");
#else
  const auto flush = [](float f) {
    return (bits_as<std::uint32_t>(f) & 0x7f800000u) ? f : bits_as<float>(bits_as<std::uint32_t>(f) & 0x80000000u);
  };
  detail::strong_rmw(p, emu::Order::relaxed, at, [v, flush](float old) { return flush(add_f32(flush(old), flush(v))); });
#endif
}
// Two 16-bit floats at once, each rounded to nearest; subnormals kept. f16x2: sm_60 and up; bf16x2: sm_90 and up.
template <Half type>
SF_DEVICE void red_add_relaxed_x2(gptr<std::uint32_t> p, std::uint32_t v SF_AT) {
#if SF_ON_DEVICE
  if constexpr (type == Half::f16) {
    asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;" ::"l"(detail::global_address(p)), "r"(v) : "memory");
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    asm volatile("trap;");
#else
    asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;" ::"l"(detail::global_address(p)), "r"(v) : "memory");
#endif
  }
#else
  detail::strong_rmw(p, emu::Order::relaxed, at, [v](std::uint32_t old) { return add_x2<type>(old, v); });
#endif
}

}  // namespace swordfish::ptx
