// Pointers into global, shared and distributed shared memory: raw pointers on the GPU, checked ones in the model.
//
//   gptr<T>  global memory; sptr<T> shared memory of this CTA; dptr<T> shared memory of a CTA of the cluster (from mapa).
//   p[i]           one element, read or written           (T v = p[i]; p[i] = v;)
//   ld<V>(p)       one vector access of sizeof(V) bytes at p, which must be aligned to it; st(p, v) likewise
//   cast<U>(p)     the same address as a pointer to U
//   dyn_smem()     the CTA's dynamic shared memory; carve<T>(cursor, count) cuts an array of count elements off it
//
// `auto v = p[i]` gives a reference, not a value: write the type. There is no unary *, so that no access escapes the checks.
#pragma once

#include "kernels/cuda/ptx/config.h"

#if SF_ON_DEVICE

namespace swordfish::ptx {

template <class T>
using gptr = T*;
template <class T>
using sptr = T*;
// An address of the shared::cluster window.
template <class T>
struct dptr {
  std::uint32_t address;
  SF_DEVICE dptr operator+(std::int64_t i) const { return {address + static_cast<std::uint32_t>(i * sizeof(T))}; }
};

template <class U, class T>
SF_DEVICE U* cast(T* p) {
  return reinterpret_cast<U*>(p);
}

namespace detail {
template <std::size_t N>
struct Word;
template <>
struct Word<1> {
  using type = std::uint8_t;
};
template <>
struct Word<2> {
  using type = std::uint16_t;
};
template <>
struct Word<4> {
  using type = std::uint32_t;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};
}  // namespace detail

template <class V, class T>
SF_DEVICE V ld(const T* p) {
  // By way of a value of the word's own type: a copy from the reference would be one of single bytes.
  const typename detail::Word<sizeof(V)>::type word = *reinterpret_cast<const typename detail::Word<sizeof(V)>::type*>(p);
  return bits_as<V>(word);
}
template <class T, class V>
SF_DEVICE void st(T* p, const V& v) {
  using Word = typename detail::Word<sizeof(V)>::type;
  *reinterpret_cast<Word*>(p) = bits_as<Word>(v);
}

// The 32-bit shared-window address that PTX instructions take.
SF_DEVICE std::uint32_t shared_u32(const void* p) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(p)); }

// The same value, through a shuffle (whole warps) of what differs by lane: compilers then keep it in a register, where they would
// otherwise compute it again at every use in a loop, and take it for different in each lane. The latter matters: where a cp.async
// with a cache policy has an address with a uniform part, ptxas 13.0 writes illegal operands ([R+UR0], desc[UR1]).
SF_DEVICE int pinned(int v) {
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  v += lane;
  asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, 0xffffffff;" : "+r"(v) : "r"(lane));
  return v - lane;
}
template <class T>
SF_DEVICE T* pinned(T* shared) {
  return static_cast<T*>(__cvta_shared_to_generic(static_cast<std::uint32_t>(pinned(static_cast<int>(shared_u32(shared))))));
}
// The shared-memory address with some of its low bits flipped (a swizzle).
template <class T>
SF_DEVICE T* address_xor(T* shared, std::uint32_t bits) {
  return static_cast<T*>(__cvta_shared_to_generic(shared_u32(shared) ^ bits));
}

// Called once, by whole warps; pinned, since the base would be computed again (S2R of the CTA's rank) before every access.
SF_DEVICE std::byte* dyn_smem() {
  extern __shared__ __align__(1024) std::byte sf_dyn_smem[];
  return pinned(static_cast<std::byte*>(sf_dyn_smem));
}
template <class T>
SF_DEVICE T* carve(std::byte*& cursor, std::size_t count) {
  T* p = reinterpret_cast<T*>(cursor);
  cursor += (count * sizeof(T) + 15) / 16 * 16;
  return p;
}

}  // namespace swordfish::ptx

#else

#include <concepts>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/ptx/model.h"

namespace swordfish::ptx {

namespace detail {

// An element index that remembers where it was written.
struct Index {
  template <std::integral I>
  Index(I i, emu::Loc where = emu::Loc::current()) : value(static_cast<std::int64_t>(i)), at(where) {}
  std::int64_t value;
  emu::Loc at;
};

template <class P, class T>
class Ref {
 public:
  using Value = std::remove_const_t<T>;
  Ref(P p, emu::Loc at) : p_(p), at_(at) {}
  Ref(const Ref&) = default;
  operator Value() const { return p_.template get<Value>(at_); }
  const Ref& operator=(const Value& v) const
    requires(!std::is_const_v<T>)
  {
    p_.template set<Value>(v, at_);
    return *this;
  }
  const Ref& operator=(const Ref& other) const
    requires(!std::is_const_v<T>)
  {
    return *this = static_cast<Value>(other);
  }
  const Ref& operator+=(const Value& v) const
    requires(!std::is_const_v<T>)
  {
    return *this = static_cast<Value>(static_cast<Value>(*this) + v);
  }

 private:
  P p_;
  emu::Loc at_;
};

template <class V>
V read_bytes(const void* p) {
  static_assert(std::is_trivially_copyable_v<V>);
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace detail

// A pointer to global memory and the allocation it may reach.
template <class T>
class gptr {
 public:
  gptr() = default;
  gptr(std::nullptr_t) {}
  gptr(T* p, const emu::Allocation* allocation) : p_(p), allocation_(allocation) {}
  template <class U>
    requires(std::is_same_v<const U, T>)
  gptr(const gptr<U>& other) : p_(other.raw()), allocation_(other.allocation()) {}

  T* raw() const { return p_; }
  const emu::Allocation* allocation() const { return allocation_; }
  template <class V>
  V get(emu::Loc at, emu::Access access = emu::Access::read) const {
    return detail::read_bytes<V>(emu::global_access(p_, sizeof(V), allocation_, access, at));
  }
  template <class V>
  void set(const V& v, emu::Loc at) const {
    static_assert(!std::is_const_v<T>);
    std::memcpy(emu::global_access(p_, sizeof(V), allocation_, emu::Access::write, at), &v, sizeof v);
  }

  detail::Ref<gptr, T> operator[](detail::Index i) const { return {*this + i.value, i.at}; }
  gptr operator+(std::int64_t i) const { return shifted(i * static_cast<std::int64_t>(sizeof(T))); }
  gptr operator-(std::int64_t i) const { return *this + -i; }
  std::int64_t operator-(const gptr& o) const { return (address() - o.address()) / static_cast<std::int64_t>(sizeof(T)); }
  gptr& operator+=(std::int64_t i) { return *this = *this + i; }
  gptr& operator-=(std::int64_t i) { return *this = *this - i; }
  gptr& operator++() { return *this += 1; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const gptr& a, const gptr& b) { return a.p_ == b.p_; }
  friend auto operator<=>(const gptr& a, const gptr& b) { return a.address() <=> b.address(); }

 private:
  // Pointers may pass outside of their array (only accesses are checked), which C++ pointer arithmetic may not: count in integers.
  std::int64_t address() const { return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p_)); }
  gptr shifted(std::int64_t bytes) const {
    return {reinterpret_cast<T*>(static_cast<std::uintptr_t>(address() + bytes)), allocation_};
  }

  T* p_ = nullptr;
  const emu::Allocation* allocation_ = nullptr;
};

// A pointer to shared memory: an offset, and the bounds of the array that it was carved from. Distributed: with the CTA's rank.
template <class T, bool distributed>
class SharedPointer {
 public:
  SharedPointer() = default;
  explicit SharedPointer(emu::SharedAddress a) : a_(a) {}
  template <class U>
    requires(std::is_same_v<const U, T>)
  SharedPointer(const SharedPointer<U, distributed>& other) : a_(other.address()) {}

  emu::SharedAddress address() const { return a_; }
  template <class V>
  V get(emu::Loc at) const {
    return detail::read_bytes<V>(emu::shared_access(a_, sizeof(V), emu::Access::read, at));
  }
  template <class V>
  void set(const V& v, emu::Loc at) const {
    static_assert(!std::is_const_v<T>);
    std::memcpy(emu::shared_access(a_, sizeof(V), emu::Access::write, at), &v, sizeof v);
  }

  detail::Ref<SharedPointer, T> operator[](detail::Index i) const
    requires(!distributed)
  {
    return {*this + i.value, i.at};
  }
  SharedPointer operator+(std::int64_t i) const {
    emu::SharedAddress a = a_;
    a.offset += static_cast<std::uint32_t>(i * static_cast<std::int64_t>(sizeof(T)));
    return SharedPointer(a);
  }
  SharedPointer operator-(std::int64_t i) const { return *this + -i; }
  SharedPointer& operator+=(std::int64_t i) { return *this = *this + i; }
  SharedPointer& operator-=(std::int64_t i) { return *this = *this - i; }
  SharedPointer& operator++() { return *this += 1; }
  friend bool operator==(const SharedPointer& a, const SharedPointer& b) {
    return a.a_.offset == b.a_.offset && a.a_.cta == b.a_.cta;
  }

 private:
  emu::SharedAddress a_;
};
template <class T>
using sptr = SharedPointer<T, false>;
template <class T>
using dptr = SharedPointer<T, true>;

template <class U, class T>
gptr<U> cast(const gptr<T>& p) {
  return {reinterpret_cast<U*>(p.raw()), p.allocation()};
}
template <class U, class T, bool distributed>
SharedPointer<U, distributed> cast(const SharedPointer<T, distributed>& p) {
  return SharedPointer<U, distributed>(p.address());
}

template <class V, class T>
V ld(const gptr<T>& p SF_AT) {
  return p.template get<V>(at);
}
template <class V, class T>
V ld(const sptr<T>& p SF_AT) {
  return p.template get<V>(at);
}
template <class T, class V>
void st(const gptr<T>& p, const V& v SF_AT) {
  p.template set<V>(v, at);
}
template <class T, class V>
void st(const sptr<T>& p, const V& v SF_AT) {
  p.template set<V>(v, at);
}

inline int pinned(int v) { return v; }
template <class T>
sptr<T> pinned(const sptr<T>& p) {
  return p;
}
// The dynamic shared memory is taken to start at a multiple of 1,024, as on the GPU.
template <class T>
sptr<T> address_xor(const sptr<T>& p, std::uint32_t bits) {
  emu::SharedAddress a = p.address();
  a.offset ^= bits;
  return sptr<T>(a);
}

inline sptr<std::byte> dyn_smem() { return sptr<std::byte>({0, 0, emu::registers().dynamic_smem, -1}); }
// Past the end of the dynamic shared memory the array is cut short, so that its use is reported.
template <class T>
sptr<T> carve(sptr<std::byte>& cursor, std::size_t count) {
  emu::SharedAddress a = cursor.address();
  const std::uint64_t end = a.offset + std::uint64_t{count} * sizeof(T);
  a.lo = a.offset;
  const emu::SharedAddress array{a.offset, a.lo, static_cast<std::uint32_t>(end < a.hi ? end : a.hi), a.cta};
  cursor += static_cast<std::int64_t>((count * sizeof(T) + 15) / 16 * 16);
  return sptr<T>(array);
}

}  // namespace swordfish::ptx

#endif
