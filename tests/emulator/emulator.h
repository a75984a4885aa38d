// The machine model for tests: runs a kernel written on kernels/cuda/ptx on the CPU, thread by thread, and checks every access.
//
//   emu::Memory memory;
//   auto x = memory.constant<std::uint16_t>("x", values);
//   auto y = memory.array<float>("y", n);                        // nothing written yet
//   emu::Outcome o = emu::launch(shape, {.kernel = "scale", .seed = 7}, [&] { scale(x, y, n); });
//   ASSERT_FALSE(o.fault) << o.fault->message();
//   std::vector<float> result = memory.read(y, n);               // see all_written() too
//
// A launch stops at the first fault. It runs on the calling thread; threads (or processes) may run launches side by side. The same
// seed gives the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/ptx/launch.h"
#include "kernels/cuda/ptx/pointers.h"

namespace swordfish::emu {

enum class FaultKind {
  out_of_bounds,    // outside of the array a pointer belongs to, or through null
  misaligned,       // address not a multiple of the access size
  uninitialised,    // read of bytes that nothing wrote
  in_flight,        // use of the target of an asynchronous copy before the wait that makes it visible
  race,             // two threads, no ordering, one writes
  deadlock,         // every thread waits
  livelock,         // only polling
  divergence,       // lanes of one warp at different warp-synchronous instructions, or some have exited
  barrier,          // a barrier used against its rules: id, count, too many arrivals
  dependency,       // dependent data touched before griddepcontrol.wait
  read_only,        // a write to constant memory, or one to memory read as non-coherent
  undefined_value,  // a result that the ISA leaves undefined
  cluster,          // distributed shared memory of a CTA that has not started or has exited
};
const char* name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::race;
  std::string kernel;
  Dim cta, thread;
  std::string file;
  unsigned line = 0, column = 0;
  std::string text;
  std::string message() const;  // "kernel, block (0,0,0) thread (5,0,0), file:line:column: race: ..."
};

// When the bytes of an asynchronous copy land, within what the rules allow.
enum class Copies {
  late,   // at the wait that makes them visible; until then the target is filled with 0xff
  early,  // at once
  mixed,  // each copy as the seed says
};

struct Options {
  std::string kernel = "kernel";
  std::uint64_t seed = 1;
  Copies copies = Copies::late;
  std::uint32_t resident_ctas = 0;  // CTAs that run at the same time (whole clusters); 0: all
  bool races = true;                // look for races (about half of the time of a run)
  bool count = false;               // fill Outcome::lines and the wavefront counts
};

// What one source line (or the whole launch) asked of the memory system. A request is one instruction of one warp.
struct Traffic {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;              // asked for by the lanes
  std::uint64_t shared_wavefronts = 0;  // passes through the 32 banks of 4 bytes, bank conflicts included
  std::uint64_t shared_ideal = 0;       // the same without conflicts: distinct bytes / 128, rounded up per phase
  std::uint64_t sectors = 0;            // 32-byte sectors of global memory
};
struct Counters {
  std::uint64_t warp_operations = 0, mma = 0, barriers = 0, switches = 0;
  // With Options::count:
  Traffic shared_loads, shared_stores, global_loads, global_stores, async_copies;
  std::uint64_t distinct_sectors_read = 0, distinct_sectors_written = 0;  // over the launch: the least that device memory must move
};

struct Outcome {
  std::optional<Fault> fault;
  Counters counters;
  std::map<std::string, Traffic> lines;  // by "file:line:column kind"
};

// Global memory. Allocations live as long as the Memory; each starts at a multiple of 256 bytes.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Uninitialised.
  template <class T>
  ptx::gptr<T> array(const std::string& name, std::size_t count) {
    Allocation* a = allocate(name, count * sizeof(T), nullptr, false);
    return {static_cast<T*>(data(a)), a};
  }
  // Initialised, writable.
  template <class T>
  ptx::gptr<T> array(const std::string& name, std::span<const T> values) {
    Allocation* a = allocate(name, values.size_bytes(), values.data(), false);
    return {static_cast<T*>(data(a)), a};
  }
  // Initialised; a write is a fault, and reads need no race check.
  template <class T>
  ptx::gptr<const T> constant(const std::string& name, std::span<const T> values) {
    Allocation* a = allocate(name, values.size_bytes(), values.data(), true);
    return {static_cast<const T*>(data(a)), a};
  }
  template <class T>
  std::vector<T> read(const ptx::gptr<T>& p, std::size_t count) const {
    return std::vector<T>(p.raw(), p.raw() + count);
  }
  // Whether every byte of [p, p + count) has been written.
  template <class T>
  bool all_written(const ptx::gptr<T>& p, std::size_t count) const {
    return written(p.allocation(), p.raw(), count * sizeof(T));
  }
  // Written or read by the grid that launches with LaunchShape::dependent wait for: not to be touched before griddepcontrol.wait.
  template <class T>
  void set_dependent(const ptx::gptr<T>& p, bool on = true) {
    set_dependent(p.allocation(), on);
  }
  // Forgets what was written there: uninitialised again, as scratch memory is between calls.
  template <class T>
  void poison(const ptx::gptr<T>& p) {
    poison(p.allocation());
  }

 private:
  Allocation* allocate(const std::string& name, std::size_t bytes, const void* values, bool constant);
  static void* data(Allocation* a);
  static bool written(const Allocation* a, const void* p, std::size_t bytes);
  static void set_dependent(const Allocation* a, bool on);
  static void poison(const Allocation* a);
  std::vector<std::unique_ptr<Allocation>> allocations_;
};

// Runs kernel() once per thread of the shape.
Outcome launch(const ptx::LaunchShape& shape, const Options& options, const std::function<void()>& kernel);

}  // namespace swordfish::emu
