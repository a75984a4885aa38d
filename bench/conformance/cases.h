// The conformance cases: small kernels, one per modelled instruction, with random operands, compiled by nvcc for record.cu (which
// runs them on a GPU and writes what came out) and by g++ for tests/emulator/conformance_test.cc (which runs them in the model and
// compares every bit).
//
// A case reads `in` words that fill() makes from its seed, and writes `out` words. Both sides make the same input, so that only
// outputs are recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/ptx/arith.h"
#include "kernels/cuda/ptx/async_copy.h"
#include "kernels/cuda/ptx/barrier.h"
#include "kernels/cuda/ptx/cluster.h"
#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/ptx/matrix.h"
#include "kernels/cuda/ptx/memory.h"
#include "kernels/cuda/ptx/registers.h"
#include "kernels/cuda/ptx/warp.h"

namespace swordfish::conformance {

using namespace ptx;
using Word = std::uint32_t;
using In = gptr<const Word>;
using Out = gptr<Word>;

// --- the kernels
// -------------------------------------------------------------------------------------------------------------------
SF_DEVICE Word global_thread() { return ctaid_x() * ntid_x() + tid_x(); }

// One mma a warp: 10 words a lane in (a, b, c), 4 out.
template <Half type>
SF_KERNEL void mma(In in, Out out) {
  const Word t = global_thread();
  Word a[4], b[2];
  float d[4];
  SF_UNROLL
  for (int i = 0; i < 4; ++i) a[i] = in[10 * t + i];
  SF_UNROLL
  for (int i = 0; i < 2; ++i) b[i] = in[10 * t + 4 + i];
  SF_UNROLL
  for (int i = 0; i < 4; ++i) d[i] = bits_as<float>(static_cast<Word>(in[10 * t + 6 + i]));
  mma_m16n8k16<type>(d, a, b);
  SF_UNROLL
  for (int i = 0; i < 4; ++i) out[4 * t + i] = bits_as<Word>(d[i]);
}

// Pairs: 3 words a lane in, 4 out.
template <Half type>
SF_KERNEL void pairs(In in, Out out) {
  const Word t = global_thread();
  const Word a = in[3 * t], b = in[3 * t + 1], c = in[3 * t + 2];
  out[4 * t] = fma_x2<type>(a, b, c);
  out[4 * t + 1] = mul_x2<type>(a, b);
  out[4 * t + 2] = add_x2<type>(a, b);
  out[4 * t + 3] = sub_x2<type>(a, b);
}

// 2 words (fp32) a lane in, 1 pair out; and a pair's elements as fp32.
template <Half type>
SF_KERNEL void conversions(In in, Out out) {
  const Word t = global_thread();
  const Word a = in[2 * t], b = in[2 * t + 1];
  out[3 * t] = cvt_x2<type>(bits_as<float>(a), bits_as<float>(b));
  out[3 * t + 1] = bits_as<Word>(to_f32<type>(a, 0));
  out[3 * t + 2] = bits_as<Word>(to_f32<type>(a, 1));
}

SF_KERNEL void fp32(In in, Out out) {
  const Word t = global_thread();
  const float a = bits_as<float>(static_cast<Word>(in[3 * t])), b = bits_as<float>(static_cast<Word>(in[3 * t + 1])),
              c = bits_as<float>(static_cast<Word>(in[3 * t + 2]));
  out[3 * t] = bits_as<Word>(fma_f32(a, b, c));
  out[3 * t + 1] = bits_as<Word>(mul_f32(a, b));
  out[3 * t + 2] = bits_as<Word>(add_f32(a, c));
}

SF_KERNEL void bit_operations(In in, Out out) {
  const Word t = global_thread();
  const Word a = in[3 * t], b = in[3 * t + 1], c = in[3 * t + 2];
  out[8 * t] = lop3<0x96>(a, b, c);
  out[8 * t + 1] = lop3<0xe8>(a, b, c);
  out[8 * t + 2] = lop3<0x2d>(a, b, c);
  out[8 * t + 3] = lop3<0x1b>(a, b, c);
  out[8 * t + 4] = and_or(a, b, c);
  out[8 * t + 5] = prmt(a, b, c);
  out[8 * t + 6] = shf_r(a, b, c);
  out[8 * t + 7] = prmt(b, c, 0x5140);
}

SF_KERNEL void exchange(In in, Out out) {
  const Word t = global_thread();
  const Word v = in[2 * t], s = in[2 * t + 1];
  out[8 * t] = shfl_idx(v, s);
  out[8 * t + 1] = shfl_bfly(v, s & 31);
  out[8 * t + 2] = shfl_down(v, s & 31);
  out[8 * t + 3] = shfl_up(v, s & 31);
  out[8 * t + 4] = vote_ballot(v & 1);
  out[8 * t + 5] = vote_any((v & 31) == 0);
  out[8 * t + 6] = vote_all((v & 31) != 3);
  Word half = 0;
  if (tid_x() % 32 < 16) half = shfl_bfly(v, 5, 0xffff) + vote_ballot(v & 2, 0xffff);
  out[8 * t + 7] = half;
}

// 32 rows of 16 bytes in shared memory, read in an order that the input gives: 5 words a lane in, 14 out.
SF_KERNEL void load_matrices(In in, Out out) {
  const Word t = global_thread(), l = tid_x();
  auto cursor = dyn_smem();
  const sptr<Word> s = carve<Word>(cursor, 128);
  for (Word i = 0; i < 4; ++i) s[4 * l + i] = in[5 * t + i];
  syncwarp();
  const Word row = in[5 * t + 4];
  const sptr<Word> p = s + 4 * (row % 32);
  Word x1[1], x2[2], x4[4];
  ldmatrix<1>(x1, p);
  out[14 * t] = x1[0];
  ldmatrix<2>(x2, p);
  for (int i = 0; i < 2; ++i) out[14 * t + 1 + i] = x2[i];
  ldmatrix<4>(x4, p);
  for (int i = 0; i < 4; ++i) out[14 * t + 3 + i] = x4[i];
  ldmatrix<1, true>(x1, p);
  out[14 * t + 7] = x1[0];
  ldmatrix<2, true>(x2, p);
  for (int i = 0; i < 2; ++i) out[14 * t + 8 + i] = x2[i];
  ldmatrix<4, true>(x4, p);
  for (int i = 0; i < 4; ++i) out[14 * t + 10 + i] = x4[i];
}

// 4 words a lane in; rows in reverse order; 4 words out after each of four stores.
SF_KERNEL void store_matrices(In in, Out out) {
  const Word t = global_thread(), l = tid_x();
  auto cursor = dyn_smem();
  const sptr<Word> s = carve<Word>(cursor, 128);
  Word v[4], two[2];
  for (int i = 0; i < 4; ++i) v[i] = in[4 * t + i];
  for (int i = 0; i < 2; ++i) two[i] = v[i + 2];
  const sptr<Word> p = s + 4 * (31 - l);
  const Word one[1] = {v[1]};
  for (Word step = 0; step < 4; ++step) {
    if (step == 0) stmatrix<4>(p, v);
    if (step == 1) stmatrix<2, true>(p, two);
    if (step == 2) stmatrix<1>(p, one);
    if (step == 3) stmatrix<4, true>(p, v);
    syncwarp();
    for (Word i = 0; i < 4; ++i) out[16 * t + 4 * step + i] = s[4 * l + i];
    syncwarp();
  }
}

// Asynchronous copies with source sizes from the input: 8 words a lane in (7 of data), 11 out.
SF_KERNEL void copies(In in, Out out) {
  const Word t = global_thread(), l = tid_x();
  auto cursor = dyn_smem();
  const sptr<Word> s16 = carve<Word>(cursor, 128), z16 = carve<Word>(cursor, 128), s8 = carve<Word>(cursor, 64),
                   s4 = carve<Word>(cursor, 32);
  const Word n = in[8 * t + 7];
  cp_async_cg_hint(s16 + 4 * l, in + 8 * t, policy_evict_first());
  cp_async_commit();
  cp_async_cg_zfill(z16 + 4 * l, in + 8 * t, n % 17);
  cp_async_ca_zfill<8>(s8 + 2 * l, in + 8 * t + 4, n / 32 % 9);
  cp_async_commit();
  cp_async_ca<4>(s4 + l, in + 8 * t + 6);
  cp_async_commit();
  cp_async_wait<0>();
  for (Word i = 0; i < 4; ++i) out[11 * t + i] = s16[4 * l + i];
  for (Word i = 0; i < 4; ++i) out[11 * t + 4 + i] = z16[4 * l + i];
  for (Word i = 0; i < 2; ++i) out[11 * t + 8 + i] = s8[2 * l + i];
  out[11 * t + 10] = s4[l];
}

// Atomics, each lane on words of its own: 4 words a lane in, 10 out.
SF_KERNEL void atomics(In in, Out out) {
  const Word t = global_thread();
  const Word v = in[4 * t], w = in[4 * t + 1], p = in[4 * t + 2], q = in[4 * t + 3];
  const Out o = out + 10 * t;
  for (int i = 0; i < 5; ++i) o[i] = v;
  o[0] = p;
  red_add_relaxed(cast<float>(o), bits_as<float>(q));
  o[1] = p;
  red_add_relaxed_x2<Half::f16>(o + 1, q);
  o[2] = p;
  red_add_relaxed_x2<Half::bf16>(o + 2, q);
  o[5] = atom_add_acq_rel(o + 3, w);
  o[6] = atom_inc_acq_rel(o + 4, w % 4 == 0 ? v : v + w % 4 - 2);
  o[7] = atom_exch_relaxed(o + 3, q);
  red_add_release(o + 4, 3);
  st_release(o + 8, v + 1);
  o[9] = ld_acquire(o + 8) + ld_nc<Word>(in + 4 * t);
}

// Clusters of two blocks of 64: each reads the other's shared memory, and names itself. 1 word a lane in, 8 out.
SF_KERNEL void cluster_exchange(In in, Out out) {
  const Word t = global_thread(), l = tid_x();
  auto cursor = dyn_smem();
  const sptr<Word> s = carve<Word>(cursor, 64), r = carve<Word>(cursor, 64);
  s[l] = in[t];
  cluster_arrive();
  cluster_wait();
  const Word other = cluster_ctarank() ^ 1;
  st_cluster(mapa(r, other) + (63 - l), ld_cluster<Word>(mapa(s, other) + l) + 1);
  cluster_arrive();
  cluster_wait();
  const Word got = r[l];
  const Out o = out + 8 * t;
  o[0] = got;
  o[1] = ctaid_x();
  o[2] = nctaid_x();
  o[3] = clusterid_x();
  o[4] = cluster_ctarank();
  o[5] = cluster_nctaid_x();
  o[6] = laneid() + 100 * cluster_ctaid_x();
  o[7] = ntid_x() + dynamic_smem_size();
}

// --- the list
// ------------------------------------------------------------------------------------------------------------------------ How the
// words of an input are drawn.
enum class Draw {
  bits,         // uniform bits
  near_one,     // 16-bit pairs and fp32 near 1 in size
  wide,         // exponents spread widely
  cancelling,   // large terms of both signs that nearly cancel, with small ones between
  accumulator,  // c much larger or smaller than the products
  tiny,         // subnormal inputs and results
  huge,         // sums near and beyond the largest fp32 (bf16), or the largest inputs (f16)
  specials,     // some infinities and NaN
};

struct Case {
  const char* name;
  void (*kernel)(In, Out);
  LaunchShape shape;
  Word in_words, out_words;  // a thread
  Draw draw;
  Half half;  // of pairs in the input
};

inline std::vector<Case> cases() {
  const LaunchShape one{.threads = 32, .dynamic_smem = 2048}, many{.grid_x = 8, .threads = 32}, tiles{.grid_x = 10, .threads = 32};
  const LaunchShape pair{.grid_x = 4, .threads = 64, .cluster_x = 2, .dynamic_smem = 512};
  const auto b = Half::bf16, f = Half::f16;
  return {
      {"mma bf16 near_one", mma<Half::bf16>, tiles, 10, 4, Draw::near_one, b},
      {"mma bf16 wide", mma<Half::bf16>, tiles, 10, 4, Draw::wide, b},
      {"mma bf16 cancelling", mma<Half::bf16>, tiles, 10, 4, Draw::cancelling, b},
      {"mma bf16 accumulator", mma<Half::bf16>, tiles, 10, 4, Draw::accumulator, b},
      {"mma bf16 tiny", mma<Half::bf16>, tiles, 10, 4, Draw::tiny, b},
      {"mma bf16 huge", mma<Half::bf16>, tiles, 10, 4, Draw::huge, b},
      {"mma bf16 specials", mma<Half::bf16>, tiles, 10, 4, Draw::specials, b},
      {"mma bf16 bits", mma<Half::bf16>, tiles, 10, 4, Draw::bits, b},
      {"mma f16 near_one", mma<Half::f16>, tiles, 10, 4, Draw::near_one, f},
      {"mma f16 wide", mma<Half::f16>, tiles, 10, 4, Draw::wide, f},
      {"mma f16 cancelling", mma<Half::f16>, tiles, 10, 4, Draw::cancelling, f},
      {"mma f16 accumulator", mma<Half::f16>, tiles, 10, 4, Draw::accumulator, f},
      {"mma f16 tiny", mma<Half::f16>, tiles, 10, 4, Draw::tiny, f},
      {"mma f16 huge", mma<Half::f16>, tiles, 10, 4, Draw::huge, f},
      {"mma f16 specials", mma<Half::f16>, tiles, 10, 4, Draw::specials, f},
      {"mma f16 bits", mma<Half::f16>, tiles, 10, 4, Draw::bits, f},
      {"pairs bf16 bits", pairs<Half::bf16>, many, 3, 4, Draw::bits, b},
      {"pairs bf16 near_one", pairs<Half::bf16>, many, 3, 4, Draw::near_one, b},
      {"pairs bf16 tiny", pairs<Half::bf16>, many, 3, 4, Draw::tiny, b},
      {"pairs f16 bits", pairs<Half::f16>, many, 3, 4, Draw::bits, f},
      {"pairs f16 near_one", pairs<Half::f16>, many, 3, 4, Draw::near_one, f},
      {"pairs f16 tiny", pairs<Half::f16>, many, 3, 4, Draw::tiny, f},
      {"conversions bf16", conversions<Half::bf16>, many, 2, 3, Draw::bits, b},
      {"conversions f16", conversions<Half::f16>, many, 2, 3, Draw::bits, f},
      {"conversions f16 near_one", conversions<Half::f16>, many, 2, 3, Draw::near_one, f},
      {"fp32", fp32, many, 3, 3, Draw::bits, b},
      {"fp32 near_one", fp32, many, 3, 3, Draw::near_one, b},
      {"bit operations", bit_operations, many, 3, 8, Draw::bits, b},
      {"exchange", exchange, many, 2, 8, Draw::bits, b},
      {"ldmatrix", load_matrices, one, 5, 14, Draw::bits, b},
      {"stmatrix", store_matrices, one, 4, 16, Draw::bits, b},
      {"cp.async", copies, one, 8, 11, Draw::bits, b},
      {"atomics bits", atomics, many, 4, 10, Draw::bits, b},
      {"atomics near_one bf16", atomics, many, 4, 10, Draw::near_one, b},
      {"atomics near_one f16", atomics, many, 4, 10, Draw::near_one, f},
      {"atomics tiny bf16", atomics, many, 4, 10, Draw::tiny, b},
      {"atomics tiny f16", atomics, many, 4, 10, Draw::tiny, f},
      {"cluster exchange", cluster_exchange, pair, 1, 8, Draw::bits, b},
  };
}

// A small generator (xorshift64*) whose values must never change: recorded outputs depend on them.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  Word next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<Word>((state_ * 0x2545f4914f6cdd1du) >> 32);
  }
  int in(int low, int high) { return low + static_cast<int>(next() % static_cast<Word>(high - low + 1)); }

 private:
  std::uint64_t state_;
};

// One 16-bit float with a random mantissa and sign and the exponent e (of 2^e; below the format's least: subnormal).
inline Word half_word(Random& r, Half type, int e) {
  const bool bf16 = type == Half::bf16;
  const int field = e + (bf16 ? 127 : 15);
  const Word mantissa = r.next() & (bf16 ? 0x7fu : 0x3ffu), sign = (r.next() & 1) << 15;
  return sign | (field <= 0 ? 0 : static_cast<Word>(field) << (bf16 ? 7 : 10)) | mantissa;
}
inline Word float_word(Random& r, int e) {
  const int field = e + 127 < 0 ? 0 : (e + 127 > 254 ? 254 : e + 127);
  return (r.next() & 0x807fffffu) | static_cast<Word>(field) << 23;
}

// Word i of a thread's input: for mma words 6 to 9 are fp32, the others pairs; elsewhere near_one is fp32 for "fp32" and
// conversions.
inline std::vector<Word> fill(const Case& c, std::uint64_t seed) {
  Random r(seed);
  const bool is_mma = c.in_words == 10, bf16 = c.half == Half::bf16;
  const Word threads = c.shape.grid_x * c.shape.threads;
  std::vector<Word> words(threads * c.in_words);
  for (Word i = 0; i < words.size(); ++i) {
    const Word position = i % c.in_words;
    const bool is_fp32 =
        (is_mma && position >= 6) || c.in_words == 2 || c.kernel == fp32 || (c.kernel == atomics && i / c.in_words % 2 == 0);
    int low = 0, high = 0;  // exponents
    switch (c.draw) {
      case Draw::bits: words[i] = r.next(); continue;
      case Draw::near_one: low = -3, high = 2; break;
      case Draw::wide: low = bf16 ? -24 : -13, high = bf16 ? 24 : 13; break;
      case Draw::cancelling:
        // Exponents from a small set, so that sums of the largest terms often cancel.
        low = high = r.in(0, 3) == 0 ? 6 : (r.in(0, 1) == 0 ? -6 : -12 + r.in(0, 6));
        break;
      case Draw::accumulator: low = is_fp32 ? -30 : -3, high = is_fp32 ? 30 : 2; break;
      case Draw::tiny:
        if (is_fp32)
          low = -130, high = -100;
        else if (is_mma)
          low = bf16 ? -70 : -16, high = bf16 ? -56 : -12;
        else
          low = bf16 ? -129 : -17, high = bf16 ? -122 : -10;
        break;
      case Draw::huge:
        if (is_fp32)
          low = 120, high = 127;
        else
          low = bf16 ? 58 : 12, high = bf16 ? 63 : 15;
        break;
      case Draw::specials: low = -3, high = 2; break;
    }
    if (is_fp32) {
      words[i] = float_word(r, r.in(low, high));
      if (c.draw == Draw::specials && r.in(0, 15) == 0)
        words[i] = (r.next() & 0x80000000u) | (r.in(0, 1) ? 0x7f800000u : 0x7fc00001u);
      if (c.draw == Draw::cancelling && r.in(0, 1) == 0) words[i] = 0;
    } else {
      words[i] = half_word(r, c.half, r.in(low, high)) | half_word(r, c.half, r.in(low, high)) << 16;
      if (c.draw == Draw::cancelling)
        words[i] &= bf16 ? 0xff80ff80u | (r.next() & 0x00030003u) : 0xfc00fc00u | (r.next() & 0x00030003u);
      if (c.draw == Draw::specials && r.in(0, 30) == 0)
        words[i] = (words[i] & 0xffff0000u) | (r.next() & 0x8000u) | (bf16 ? 0x7f80u : 0x7c00u) | (r.in(0, 3) == 0 ? 1u : 0u);
    }
  }
  return words;
}

}  // namespace swordfish::conformance
