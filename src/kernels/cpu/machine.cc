// Two loops that say what this machine can do at best: reading memory, and multiplying in registers.
#include "kernels/cpu/machine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/machine.cc"
#include "base/simd_targets.h"

#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace swordfish::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // latency 4, two a cycle: 8 suffice on today's cores

std::uint64_t ReadLoop(const std::byte* p, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t step = hn::Lanes(d);
  const auto* q = reinterpret_cast<const std::uint64_t*>(p);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); i += 4 * step) {
    a = hn::Xor(a, hn::LoadU(d, q + i));
    b = hn::Xor(b, hn::LoadU(d, q + i + step));
    c = hn::Xor(c, hn::LoadU(d, q + i + 2 * step));
    e = hn::Xor(e, hn::LoadU(d, q + i + 3 * step));
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)));
}

float FmaLoop(std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  // Different starts: equal chains would be merged into one.
  auto a0 = hn::Set(d, 0.0f), a1 = hn::Set(d, 0.1f), a2 = hn::Set(d, 0.2f), a3 = hn::Set(d, 0.3f), a4 = hn::Set(d, 0.4f),
       a5 = hn::Set(d, 0.5f), a6 = hn::Set(d, 0.6f), a7 = hn::Set(d, 0.7f), a8 = hn::Set(d, 0.8f), a9 = hn::Set(d, 0.9f),
       a10 = hn::Set(d, 1.1f), a11 = hn::Set(d, 1.2f);
  for (std::int64_t i = 0; i < n; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
    a10 = hn::MulAdd(a10, x, y);
    a11 = hn::MulAdd(a11, x, y);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  return hn::GetLane(hn::Add(low, high));
}

std::int64_t FmaPerRound() { return kChains * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>())); }
std::int64_t Target() { return HWY_TARGET; }

}  // namespace swordfish::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swordfish::cpu {
HWY_EXPORT(ReadLoop);
HWY_EXPORT(FmaLoop);
HWY_EXPORT(FmaPerRound);
HWY_EXPORT(Target);

std::uint64_t read_loop(const std::byte* p, std::size_t bytes) { return HWY_DYNAMIC_DISPATCH(ReadLoop)(p, bytes); }
float fma_loop(std::int64_t n) { return HWY_DYNAMIC_DISPATCH(FmaLoop)(n); }
std::int64_t fma_per_round() { return HWY_DYNAMIC_DISPATCH(FmaPerRound)(); }
std::string_view vectors_in_use() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(Target)()); }
}  // namespace swordfish::cpu
#endif  // HWY_ONCE
