// The machine model's interface: what the host halves of the wrappers call. tests/emulator implements it; the library does not.
//
// Every function acts for the running lane (one CUDA thread) and may switch to another one. A broken rule ends the launch with a
// report; the call then does not return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace swordfish::emu {

using Loc = std::source_location;
class Allocation;  // a run of global memory

// What the special registers hold (PTX ISA, "Special Registers").
struct Dim {
  std::uint32_t x = 1, y = 1, z = 1;
};
struct Registers {
  Dim tid, ntid, ctaid, nctaid, clusterid, cluster_ctaid, cluster_nctaid;
  std::uint32_t lane = 0, warp = 0, cluster_ctarank = 0, cluster_size = 1, dynamic_smem = 0;
};
const Registers& registers();

// --- memory ---------------------------------------------------------------------------------------------------------------------
enum class Access : std::uint8_t {
  read,
  write,
  read_nc,      // ld.global.nc: nothing in this launch may write it
  strong_read,  // volatile, relaxed, acquire: may race with other strong accesses
  strong_write,
  strong_rmw,
};
enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };

// Shared memory addresses are offsets into a CTA's window; [lo, hi) is the array that the pointer was carved from. cta is the rank
// in the cluster, -1 for the running lane's own CTA.
struct SharedAddress {
  std::uint32_t offset = 0, lo = 0, hi = 0;
  int cta = -1;
};

// Check one access of `size` bytes aligned to its size and return where the bytes lie in host memory.
void* global_access(const void* p, std::size_t size, const Allocation* allocation, Access access, Loc at);
void* shared_access(SharedAddress p, std::size_t size, Access access, Loc at);
// One strong access (volatile, relaxed or stronger): also orders, and lets other lanes run. The caller reads or writes the value
// through the returned pointer before its next call.
void* global_strong(const void* p, std::size_t size, const Allocation* allocation, Access access, Order order, Loc at);
void fence(Loc at);  // fence.acq_rel of gpu scope; cta and sys scope are taken as the same

// --- asynchronous copies (cp.async) ---------------------------------------------------------------------------------------------
void async_copy(SharedAddress to, const void* from, const Allocation* allocation, std::uint32_t size, std::uint32_t source_size,
                Loc at);
void async_commit(Loc at);
void async_wait(int groups_left, Loc at);  // -1: every copy, committed or not (cp.async.wait_all)

// --- warps ----------------------------------------------------------------------------------------------------------------------
// The operands of all lanes of one warp-synchronous instruction; in[l] and out[l] are valid for the lanes of `lanes`.
struct WarpArgs {
  std::uint32_t lanes = 0;
  const void* in[32];
  void* out[32];
  Loc at;
};
using WarpFn = void (*)(const WarpArgs&);
// Waits for the lanes of `mask`; the last to come runs f once for all. `aligned`: the whole warp must execute this very
// instruction; else exited lanes are left out. `orders`: memory accesses before are ordered before those after (bar.warp.sync).
void warp_op(const char* name, std::uint32_t mask, const void* in, void* out, WarpFn f, bool aligned, bool orders, Loc at);
// A report of a value that the ISA leaves undefined (shfl from a lane that does not take part).
[[noreturn]] void undefined_value(const char* what, Loc at);

// ldmatrix / stmatrix: `matrices` 8x8 matrices of 16-bit elements; lane l gives row address l (of matrix l/8).
void load_matrix(std::uint32_t* out, SharedAddress row, int matrices, bool transpose, Loc at);
void store_matrix(const std::uint32_t* in, SharedAddress row, int matrices, bool transpose, Loc at);
// mma.sync m16n8k16, 16-bit inputs, fp32 accumulator; bf16 or f16.
void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, bool bf16, Loc at);

// --- CTAs, clusters, grids -------------------------------------------------------------------------------------------------------
void barrier(int id, int threads, bool wait, Loc at);  // threads 0: all of the CTA; wait false: bar.arrive
void cluster_arrive(bool release, Loc at);
void cluster_wait(bool acquire, Loc at);
void dependency_wait(Loc at);    // griddepcontrol.wait
void launch_dependents(Loc at);  // griddepcontrol.launch_dependents

}  // namespace swordfish::emu
