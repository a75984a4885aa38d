// The machine: lanes in warps in CTAs in clusters in a grid, all on one thread of the operating system, and their shadow memory.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/clock.h"
#include "emulator/emulator.h"
#include "emulator/fiber.h"

namespace swordfish::emu {

struct Lane;
struct Warp;
struct Cta;
struct Cluster;
struct Grid;

// --- shadow memory --------------------------------------------------------------------------------------------------------------
enum class ByteState : std::uint8_t { never_written = 0, written = 1, in_flight = 2 };

// Who last wrote and who has since read some bytes. `writer` is a thread's id + 1 (0: nobody in this launch). One warp's readers at
// one time are a mask; readers that are not ordered among each other go to a list (Shadow::sets).
struct Cell {
  std::uint32_t writer = 0;
  Time written = 0;
  std::uint32_t reader_warp = 0;
  std::uint32_t readers = 0;  // lanes; 0: nobody
  Time read = 0;
  std::uint32_t more : 30 = 0;  // index + 1 into Shadow::sets (further readers), or of four byte cells when `split`
  std::uint32_t split : 1 = 0;
  std::uint32_t strong : 1 = 0;  // the last write was strong (relaxed or stronger)
  std::int32_t written_at = 0;   // places, see pack_place
  std::int32_t read_at = 0;
};
static_assert(sizeof(Cell) == 32);

struct ReadSet {
  struct Entry {
    std::uint32_t warp, lanes;
    Time time;
    std::int32_t at;
  };
  std::vector<Entry> entries;
};

// A place in 32 bits: a Loc is a pointer to a constant record, kept as its distance from another one. 0 where that is too far (code
// in another shared object): then the place is not told.
std::int32_t pack_place(const Loc& at);
std::string unpack_place(std::int32_t packed);

// The state of every byte and, per 4-byte word, a Cell (split into bytes where accesses are narrower).
struct Shadow {
  std::vector<ByteState> state;
  std::vector<Cell> words;  // empty until the first access that needs it
  std::vector<std::array<Cell, 4>> bytes;
  std::vector<ReadSet> sets;
  std::vector<std::uint32_t> free_sets;
  std::uint32_t take_set();  // an empty one; its index
  void reset(std::size_t size, ByteState initial);
  void forget_accesses();
};

class Allocation {
 public:
  std::string name;
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool constant = false;
  bool dependent = false;
  bool read_nc = false;  // read by ld.global.nc in this launch
  std::uint64_t launch = 0;
  Shadow shadow;
  std::vector<std::uint8_t> sectors;  // when counting: bit 0 read, bit 1 written, per 32 bytes
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> storage;
};

// --- the machine
// ------------------------------------------------------------------------------------------------------------------
struct Copy {
  Cta* cta = nullptr;
  std::uint32_t offset = 0, size = 0, source_size = 0;
  const std::byte* source = nullptr;
  Allocation* allocation = nullptr;
  std::uint64_t group = 0;
  bool landed = false;  // early: the bytes are there, but nobody may rely on it
  Loc at;
};

// A place in the kernel, comparable.
inline bool same_place(const Loc& a, const Loc& b) {
  if (std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b)) return true;  // the usual case: one static record a place
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

enum class LaneState : std::uint8_t { ready, blocked, exited };

struct Lane {
  Fiber fiber;
  Warp* warp = nullptr;
  std::uint32_t index = 0;  // in the warp
  LaneState state = LaneState::ready;
  const char* waits_for = "";  // blocked: the instruction
  Loc at;                      // ... and where
  Registers registers;
  ClockRef clock;
  bool dependency = false;  // has passed griddepcontrol.wait
  ClockRef fence;           // what its last fence published with its relaxed writes
  ClockRef seen;            // what its relaxed reads will bring with the next fence
  std::vector<Copy> copies;
  std::uint64_t committed = 0;                                  // groups
  std::unordered_map<std::uint64_t, std::uint32_t> executions;  // when counting: how often it came by a place

  std::uint32_t id() const;  // 32 * warp + lane
};

// One warp-synchronous instruction on which lanes of a warp wait for each other.
struct Rendezvous {
  const char* name = nullptr;  // null: free
  std::uint32_t mask = 0, arrived = 0;
  bool aligned = false;
  WarpArgs args;
};

struct Warp {
  Cta* cta = nullptr;
  std::uint32_t id = 0;  // in the grid, from 1 on
  std::uint32_t existing = 0, alive = 0, ready = 0;
  std::array<Lane*, 32> lanes{};
  std::vector<Rendezvous> meetings;
  Time time = 1;
  std::uint32_t cluster_phase = 0;               // how many cluster barriers it has arrived at
  bool cluster_pending = false;                  // arrived, has not waited
  int list_position = -1;                        // in Grid::ready
  ClockRef clock_of(std::uint32_t lanes_of_it);  // the join of these lanes' clocks, themselves included; time moves on
};

struct Barrier {
  std::uint32_t expected = 0, arrived = 0;
  bool whole_cta = false;
  ClockRef joined;
  std::vector<Warp*> waiting;
};

struct Cta {
  Cluster* cluster = nullptr;
  std::uint32_t rank = 0;  // in the cluster
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::unique_ptr<std::byte[]> storage;
  std::byte* shared = nullptr;
  Shadow shadow;
  std::array<Barrier, 16> barriers;
  std::uint32_t alive = 0;         // threads
  std::int64_t remote_phase = -1;  // the newest cluster phase in which another CTA touched its shared memory
  Loc remote_at;
};

struct Cluster {
  Grid* grid = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::uint32_t phase = 0;    // barriers completed
  std::uint32_t arrived = 0;  // threads, in this phase
  std::uint32_t alive = 0;
  ClockRef joined, released;
  std::vector<Warp*> waiting;
};

// One access of one lane, kept for the counts.
struct Sample {
  std::uint32_t place;  // index into Grid::places
  std::uint32_t warp;
  std::uint32_t execution;
  std::uint16_t size;
  std::uint8_t lane;
  std::uint8_t phase;  // ldmatrix and stmatrix: the matrix; else 0xff: by lane
  std::uint64_t address;
};
enum class PlaceKind : std::uint8_t { shared_load, shared_store, global_load, global_store, async_copy };
struct Place {
  Loc at;
  PlaceKind kind;
};

struct Grid {
  ptx::LaunchShape shape;
  Options options;
  const std::function<void()>* kernel = nullptr;
  std::uint64_t number = 0;  // of the launch
  Fiber main;
  Lane* current = nullptr;
  std::vector<std::unique_ptr<Cluster>> clusters;  // resident
  std::vector<Warp*> ready;
  std::uint32_t next_cluster = 0, total_clusters = 0, warps_per_cta = 0;
  std::size_t clock_size = 0;
  std::unordered_map<const void*, ClockRef> objects;  // what acquires of an address bring
  std::uint64_t random_state = 1;
  std::uint64_t idle = 0;  // polling loads since anything else happened
  Outcome outcome;
  std::vector<Place> places;
  std::unordered_map<std::uint64_t, std::uint32_t> place_index;
  std::vector<Sample> samples;
  std::vector<Allocation*> touched;  // allocations whose shadow belongs to this launch

  std::uint32_t random(std::uint32_t n);  // 0..n-1
  void set_ready(Lane& lane);
  void run();
  void start_cluster();
  void reap();
};

inline constexpr std::uint32_t kWholeWarp = 0xffffffffu;
// Of the running launch. Constant initialisation and the initial-exec model spare every access a call.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Grid* grid;
inline Lane& lane() { return *grid->current; }

[[noreturn]] void fail(FaultKind kind, std::string text, const Loc& at);
// Puts the running lane to sleep until set_ready; or lets others run.
void block(const char* what, const Loc& at);
void yield();
// Both end lanes' waits when lanes have exited.
void recheck_meetings(Warp& warp);
void recheck_barriers(Cta& cta);
void recheck_cluster(Cluster& cluster);
void check_exit(Cta& cta);

// Gives the lanes of a mask the same clock, in which all of them precede.
void order_lanes(Warp& warp, std::uint32_t mask);

// Counting.
void sample(PlaceKind kind, std::uint64_t address, std::size_t size, const Loc& at, std::uint8_t phase = 0xff);
void count_traffic(Grid& g);

// The CTA behind a shared address; checks bounds, alignment and, for other CTAs, that it lives.
Cta& shared_target(const SharedAddress& p, std::size_t size, std::size_t alignment, const Loc& at);
// Checks and records an access of bytes [offset, offset + size).
void touch_shared(Cta& cta, std::uint32_t offset, std::size_t size, Access access, const Loc& at);

}  // namespace swordfish::emu
