// Memory: bounds, alignment, initialisation, races and ordering of every access; asynchronous copies.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "emulator/machine.h"
#include "quant/numeric.h"

namespace swordfish::emu {
namespace {

struct Accessor {
  Lane& lane;
  Time now;
  bool write;
  bool strong;
  std::int32_t at;  // packed
};

bool is_write(Access a) { return a == Access::write || a == Access::strong_write || a == Access::strong_rmw; }
bool is_strong(Access a) { return a == Access::strong_read || a == Access::strong_write || a == Access::strong_rmw; }

// Where some bytes lie, for messages.
struct Where {
  const Allocation* allocation;  // null: shared memory
  const Cta* cta;
  std::uint64_t offset;
  std::size_t size;
};
std::string describe(const Where& w) {
  if (w.allocation != nullptr)
    return fmt::format("{} bytes at offset {} of {} ({} bytes)", w.size, w.offset, w.allocation->name, w.allocation->size);
  return fmt::format("{} bytes at offset {} of the shared memory of block {}", w.size, w.offset,
                     w.cta->lanes[0]->registers.ctaid.x);
}

std::string thread_name(std::uint32_t warp, std::uint32_t lane_index) {
  const std::uint32_t linear = warp - 1;
  return fmt::format("thread {} of block {}", 32 * (linear % grid->warps_per_cta) + lane_index, linear / grid->warps_per_cta);
}

[[noreturn]] void report_race(const Accessor& a, bool other_wrote, std::uint32_t warp, std::uint32_t lane_index,
                              std::int32_t other_at, const Where& where, const Loc& at) {
  fail(FaultKind::race,
       fmt::format("{} of {} is not ordered after the {} by {}{}", a.write ? "write" : "read", describe(where),
                   other_wrote ? "write" : "read", thread_name(warp, lane_index), unpack_place(other_at)),
       at);
}

// Lanes of the mask whose read at that time is not known to precede; 0 when all do. The own lane always does.
std::uint32_t unordered(const Accessor& a, std::uint32_t warp, std::uint32_t lanes, Time t) {
  if (warp == a.lane.warp->id) lanes &= ~(1u << a.lane.index);
  if (lanes == 0 || a.lane.clock->warp[warp] >= t) return 0;
  std::uint32_t left = 0;
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
    const auto l = static_cast<std::uint32_t>(std::countr_zero(m));
    if (!a.lane.clock->covers(warp, l, t)) left |= 1u << l;
  }
  return left;
}

void check_cell(Shadow& shadow, Cell& c, const Accessor& a, const Where& where, const Loc& at) {
  const std::uint32_t me = a.lane.id() + 1;
  if (c.writer != 0 && c.writer != me && !(a.strong && c.strong)) {
    const std::uint32_t id = c.writer - 1;
    if (!a.lane.clock->covers(id / 32, id % 32, c.written)) report_race(a, true, id / 32, id % 32, c.written_at, where, at);
  }
  if (a.write) {
    if (c.readers != 0) {
      const std::uint32_t left = unordered(a, c.reader_warp, c.readers, c.read);
      if (left != 0) report_race(a, false, c.reader_warp, static_cast<std::uint32_t>(std::countr_zero(left)), c.read_at, where, at);
      if (c.more != 0) {
        auto& entries = shadow.sets[c.more - 1].entries;
        for (const ReadSet::Entry& e : entries) {
          const std::uint32_t others = unordered(a, e.warp, e.lanes, e.time);
          if (others != 0) report_race(a, false, e.warp, static_cast<std::uint32_t>(std::countr_zero(others)), e.at, where, at);
        }
        entries.clear();
        shadow.free_sets.push_back(c.more - 1);
        c.more = 0;
      }
    }
    c.readers = 0;
    c.writer = me;
    c.written = a.now;
    c.written_at = a.at;
    c.strong = a.strong;
    return;
  }
  // Strong reads race with plain writes only, which a strong write later orders or reports itself; they are not kept.
  if (a.strong) return;
  const std::uint32_t warp = a.lane.warp->id, bit = 1u << a.lane.index;
  if (c.readers != 0 && c.reader_warp == warp && c.read == a.now) {
    c.readers |= bit;
    return;
  }
  // Earlier reads that precede this one need no keeping: whatever is ordered after this read is ordered after them.
  const auto covered = [&](const ReadSet::Entry& e) { return unordered(a, e.warp, e.lanes, e.time) == 0; };
  if (c.more != 0) std::erase_if(shadow.sets[c.more - 1].entries, covered);
  if (c.readers != 0) {
    const ReadSet::Entry last{c.reader_warp, c.readers, c.read, c.read_at};
    if (!covered(last)) {
      if (c.more == 0) c.more = shadow.take_set() + 1;
      auto& entries = shadow.sets[c.more - 1].entries;
      const auto same = std::find_if(entries.begin(), entries.end(),
                                     [&](const ReadSet::Entry& e) { return e.warp == last.warp && e.time == last.time; });
      if (same != entries.end())
        same->lanes |= last.lanes;
      else
        entries.push_back(last);
    }
  }
  c.reader_warp = warp;
  c.readers = bit;
  c.read = a.now;
  c.read_at = a.at;
}

void check_races(Shadow& shadow, std::uint64_t offset, std::size_t size, Access access, const Where& where, const Loc& at) {
  if (!grid->options.races) return;
  if (shadow.words.empty()) shadow.words.resize((shadow.state.size() + 3) / 4);
  Lane& l = lane();
  const Accessor a{l, l.warp->time, is_write(access), is_strong(access), pack_place(at)};
  const std::uint64_t end = offset + size;
  for (std::uint64_t word = offset / 4; word * 4 < end; ++word) {
    const std::uint64_t from = std::max(offset, word * 4) - word * 4, to = std::min(end, word * 4 + 4) - word * 4;
    Cell* c = &shadow.words[word];
    if (!c->split) {
      if (to - from == 4) {
        check_cell(shadow, *c, a, where, at);
        continue;
      }
      const Cell byte = *c;
      shadow.bytes.push_back({byte, byte, byte, byte});
      if (byte.more != 0) {  // each byte needs its own list of readers
        for (std::size_t i = 1; i < 4; ++i) {
          const std::uint32_t set = shadow.take_set();
          shadow.sets[set] = shadow.sets[byte.more - 1];
          shadow.bytes.back()[i].more = set + 1;
        }
      }
      c->split = 1;
      c->more = static_cast<std::uint32_t>(shadow.bytes.size());
    }
    for (std::uint64_t i = from; i < to; ++i) check_cell(shadow, shadow.bytes[c->more - 1][i], a, where, at);
  }
}

bool all_are(const ByteState* s, std::size_t n, ByteState state) {
  const std::uint64_t pattern = 0x0101010101010101u * static_cast<std::uint64_t>(state);
  for (; n >= 8; s += 8, n -= 8)
    if (load_unaligned<std::uint64_t>(s) != pattern) return false;
  if (n == 4) return load_unaligned<std::uint32_t>(s) == static_cast<std::uint32_t>(pattern);
  return std::all_of(s, s + n, [state](ByteState b) { return b == state; });
}
bool any_is(const ByteState* s, std::size_t n, ByteState state) {
  return std::any_of(s, s + n, [state](ByteState b) { return b == state; });
}

// The copy under way into a byte of shared memory.
const Copy* find_copy(const Cta& cta, std::uint64_t offset, Lane*& owner) {
  for (const auto& l : cta.lanes) {
    for (const Copy& c : l->copies) {
      if (offset < c.offset || offset >= c.offset + c.size) continue;
      owner = l.get();
      return &c;
    }
  }
  return nullptr;
}

void check_state(Shadow& shadow, std::uint64_t offset, std::size_t size, bool write, const Where& where, const Loc& at) {
  ByteState* s = shadow.state.data() + offset;
  if (all_are(s, size, ByteState::written)) return;
  if (any_is(s, size, ByteState::in_flight)) {
    const std::uint64_t byte = offset + static_cast<std::uint64_t>(std::find(s, s + size, ByteState::in_flight) - s);
    Lane* owner = nullptr;
    const Copy* copy = find_copy(*where.cta, byte, owner);
    std::string by = copy == nullptr
                         ? "a thread that has exited"
                         : fmt::format("thread {} at {}:{}", owner->registers.tid.x, copy->at.file_name(), copy->at.line());
    fail(FaultKind::in_flight,
         fmt::format("{} of {}, the target of a copy that {} started and has not waited for", write ? "write" : "read",
                     describe(where), by),
         at);
  }
  if (!write) {
    const auto first = static_cast<std::size_t>(std::find(s, s + size, ByteState::never_written) - s);
    fail(FaultKind::uninitialised, fmt::format("read of {}: byte {} was never written", describe(where), offset + first), at);
  }
  std::fill_n(s, size, ByteState::written);
}

std::size_t natural_alignment(std::size_t size) { return std::min<std::size_t>(16, size & (~size + 1)); }

PlaceKind kind_of(bool shared, bool write) {
  return shared ? (write ? PlaceKind::shared_store : PlaceKind::shared_load)
                : (write ? PlaceKind::global_store : PlaceKind::global_load);
}

// Everything that is checked about an access of global memory but its alignment; gives the offset.
std::uint64_t check_global(const void* p, std::size_t size, Allocation* a, Access access, const Loc& at) {
  if (a == nullptr)
    fail(FaultKind::out_of_bounds, fmt::format("{} of {} bytes through a null pointer", is_write(access) ? "write" : "read", size),
         at);
  const auto address = reinterpret_cast<std::uintptr_t>(p), base = reinterpret_cast<std::uintptr_t>(a->data);
  if (address < base || size > a->size || address - base > a->size - size) {
    fail(FaultKind::out_of_bounds,
         fmt::format("{} of {} bytes at offset {} of {} ({} bytes)", is_write(access) ? "write" : "read", size,
                     static_cast<std::int64_t>(address - base), a->name, a->size),
         at);
  }
  const std::uint64_t offset = address - base;
  const Where where{a, nullptr, offset, size};
  if (a->launch != grid->number) {
    a->launch = grid->number;
    a->read_nc = false;
    a->shadow.forget_accesses();
    a->sectors.assign(grid->options.count ? a->size / 32 + 1 : 0, 0);
    grid->touched.push_back(a);
  }
  if (a->dependent && !lane().dependency && !lane().clock->dependency) fail(FaultKind::dependency, describe(where), at);
  const bool write = is_write(access);
  if (write && a->constant) fail(FaultKind::read_only, fmt::format("write of {}", describe(where)), at);
  check_state(a->shadow, offset, size, write, where, at);
  if (!a->constant) check_races(a->shadow, offset, size, access, where, at);
  if (access == Access::read_nc) a->read_nc = true;
  if (write && a->read_nc)
    fail(FaultKind::read_only, fmt::format("write of {}, which this kernel reads by ld.global.nc", describe(where)), at);
  if (grid->options.count) {
    for (std::uint64_t s = offset / 32; s <= (offset + size - 1) / 32; ++s)
      a->sectors[s] |= access == Access::strong_rmw ? 3 : (write ? 2 : 1);
  }
  if (write) grid->idle = 0;
  return offset;
}

// Only accesses of a launch know their grid; the shadow belongs to the memory that const pointers lead to.
Allocation* writable(const Allocation* a) { return const_cast<Allocation*>(a); }

}  // namespace

// --- shadow
// ------------------------------------------------------------------------------------------------------------------------
void Shadow::reset(std::size_t size, ByteState initial) {
  state.assign(size, initial);
  forget_accesses();
}
void Shadow::forget_accesses() {
  words.clear();
  bytes.clear();
  sets.clear();
  free_sets.clear();
}
std::uint32_t Shadow::take_set() {
  if (free_sets.empty()) {
    sets.emplace_back();
    return static_cast<std::uint32_t>(sets.size() - 1);
  }
  const std::uint32_t set = free_sets.back();
  free_sets.pop_back();
  return set;
}

namespace {
static_assert(sizeof(Loc) == sizeof(std::uintptr_t));
const Loc anchor = Loc::current();
}  // namespace

std::int32_t pack_place(const Loc& at) {
  const auto distance = static_cast<std::int64_t>(std::bit_cast<std::uintptr_t>(at) - std::bit_cast<std::uintptr_t>(anchor));
  return distance == static_cast<std::int32_t>(distance) ? static_cast<std::int32_t>(distance) : 0;
}
std::string unpack_place(std::int32_t packed) {
  if (packed == 0) return "";
  const Loc at = std::bit_cast<Loc>(std::bit_cast<std::uintptr_t>(anchor) + static_cast<std::uintptr_t>(std::int64_t{packed}));
  return fmt::format(" at {}:{}:{}", at.file_name(), at.line(), at.column());
}

// --- global memory
// -----------------------------------------------------------------------------------------------------------------
void* global_access(const void* p, std::size_t size, const Allocation* allocation, Access access, Loc at) {
  Allocation* a = writable(allocation);
  const std::uint64_t offset = check_global(p, size, a, access, at);
  if (offset % natural_alignment(size) != 0)
    fail(FaultKind::misaligned,
         fmt::format("{} is no multiple of {}", describe({a, nullptr, offset, size}), natural_alignment(size)), at);
  if (grid->options.count) sample(kind_of(false, is_write(access)), reinterpret_cast<std::uintptr_t>(a->data) + offset, size, at);
  return a->data + offset;
}

void* global_strong(const void* p, std::size_t size, const Allocation* allocation, Access access, Order order, Loc at) {
  Lane& self = lane();
  self.at = at;
  // Let others run before: all of them for a poll (and counted against livelock), some of them for the rest.
  if (access == Access::strong_read)
    yield();
  else if (grid->random(2) == 0)
    yield();
  if (access != Access::strong_read) grid->idle = 0;
  void* where = global_access(p, size, allocation, access, at);
  const bool reads = access != Access::strong_write, writes = access != Access::strong_read;
  ClockRef& object = grid->objects[where];
  if (reads && object) {
    if (order == Order::acquire || order == Order::acq_rel)
      self.clock.join(object);
    else
      self.seen.join(object);
  }
  if (writes) {
    ClockRef published;
    if (order == Order::release || order == Order::acq_rel)
      published = self.warp->clock_of(1u << self.index);
    else
      published = self.fence;
    if (access == Access::strong_write)
      object = published;  // ends what earlier releases of this address began
    else
      object.join(published);  // a read-modify-write goes on with it
  }
  return where;
}

void fence(Loc) {
  Lane& self = lane();
  if (self.seen) {
    self.clock.join(self.seen);
    self.seen = ClockRef();
  }
  self.fence = self.warp->clock_of(1u << self.index);
}

// --- shared memory
// -----------------------------------------------------------------------------------------------------------------
Cta& shared_target(const SharedAddress& p, std::size_t size, std::size_t alignment, const Loc& at) {
  Cta& own = *lane().warp->cta;
  Cta* cta = &own;
  if (p.cta >= 0) {
    Cluster& cluster = *own.cluster;
    if (static_cast<std::size_t>(p.cta) >= cluster.ctas.size())
      fail(FaultKind::cluster, fmt::format("rank {} of a cluster of {}", p.cta, cluster.ctas.size()), at);
    cta = cluster.ctas[static_cast<std::size_t>(p.cta)].get();
    if (cta != &own) {
      if (cta->alive == 0)
        fail(FaultKind::cluster, fmt::format("shared memory of block {} of the cluster, which has exited", p.cta), at);
      if (lane().warp->cluster_phase == 0 || (lane().warp->cluster_pending && lane().warp->cluster_phase == 1))
        fail(FaultKind::cluster,
             fmt::format("shared memory of block {} of the cluster before a cluster barrier: it may not have started", p.cta), at);
      cta->remote_phase = std::max<std::int64_t>(cta->remote_phase, lane().warp->cluster_phase);
      cta->remote_at = at;
    }
  }
  if (p.offset < p.lo || p.offset > p.hi || size > p.hi - p.offset || p.hi > grid->shape.dynamic_smem) {
    fail(FaultKind::out_of_bounds,
         fmt::format("{} bytes at shared offset {}, {} bytes from the start of an array of {}", size,
                     static_cast<std::int32_t>(p.offset), static_cast<std::int64_t>(p.offset) - static_cast<std::int64_t>(p.lo),
                     p.hi - p.lo),
         at);
  }
  if (p.offset % alignment != 0)
    fail(FaultKind::misaligned, fmt::format("{} bytes at shared offset {} are no multiple of {}", size, p.offset, alignment), at);
  return *cta;
}

void touch_shared(Cta& cta, std::uint32_t offset, std::size_t size, Access access, const Loc& at) {
  const Where where{nullptr, &cta, offset, size};
  check_state(cta.shadow, offset, size, is_write(access), where, at);
  check_races(cta.shadow, offset, size, access, where, at);
  if (is_write(access)) grid->idle = 0;
}

void* shared_access(SharedAddress p, std::size_t size, Access access, Loc at) {
  Cta& cta = shared_target(p, size, natural_alignment(size), at);
  touch_shared(cta, p.offset, size, access, at);
  if (grid->options.count) sample(kind_of(true, is_write(access)), p.offset, size, at);
  return cta.shared + p.offset;
}

// --- asynchronous copies
// -------------------------------------------------------------------------------------------------------------
void async_copy(SharedAddress to, const void* from, const Allocation* allocation, std::uint32_t size, std::uint32_t source_size,
                Loc at) {
  Lane& self = lane();
  if (source_size > size)
    fail(FaultKind::out_of_bounds, fmt::format("cp.async of {} bytes with a source size of {}", size, source_size), at);
  Cta& cta = shared_target(to, size, size, at);
  Allocation* a = writable(allocation);
  Copy c{&cta, to.offset, size, source_size, nullptr, a, self.committed, false, at};
  if (source_size > 0) {
    const std::uint64_t offset = check_global(from, source_size, a, Access::read, at);
    if (offset % size != 0)
      fail(FaultKind::misaligned, fmt::format("source of cp.async: offset {} of {} is no multiple of {}", offset, a->name, size),
           at);
    // compute-sanitizer counts all bytes as read, whatever the source size.
    if (offset + size > a->size)
      fail(FaultKind::out_of_bounds,
           fmt::format("cp.async of {} bytes at offset {} of {}, which has {}", size, offset, a->name, a->size), at);
    c.source = a->data + offset;
    if (grid->options.count) sample(PlaceKind::async_copy, reinterpret_cast<std::uintptr_t>(c.source), source_size, at);
  }
  touch_shared(cta, to.offset, size, Access::write, at);
  std::fill_n(cta.shadow.state.begin() + to.offset, size, ByteState::in_flight);
  std::byte* target = cta.shared + to.offset;
  std::memset(target, 0xff, size);
  const Copies when = grid->options.copies;
  if (when == Copies::early || (when == Copies::mixed && grid->random(2) == 0)) {
    std::memset(target, 0, size);
    if (source_size > 0) std::memcpy(target, c.source, source_size);
    c.landed = true;
  }
  self.copies.push_back(c);
}

void async_commit(Loc) { ++lane().committed; }

void async_wait(int groups_left, Loc at) {
  Lane& self = lane();
  std::vector<Copy>& copies = self.copies;
  std::size_t done = 0;
  for (; done < copies.size(); ++done) {
    const Copy& c = copies[done];
    if (groups_left >= 0 && c.group + static_cast<std::uint64_t>(groups_left) >= self.committed) break;
    // The source is read and the target written up to this moment.
    if (c.source != nullptr) check_global(c.source, c.source_size, c.allocation, Access::read, c.at);
    std::fill_n(c.cta->shadow.state.begin() + c.offset, c.size, ByteState::written);
    check_races(c.cta->shadow, c.offset, c.size, Access::write, {nullptr, c.cta, c.offset, c.size}, c.at);
    if (c.landed) continue;
    std::byte* target = c.cta->shared + c.offset;
    std::memset(target, 0, c.size);
    if (c.source != nullptr) std::memcpy(target, c.source, c.source_size);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
  (void)at;
}

// --- host side of global memory --------------------------------------------------------------------------------------------------
void Allocation::Free::operator()(std::byte* p) const { std::free(p); }

Memory::Memory() = default;
Memory::~Memory() = default;

Allocation* Memory::allocate(const std::string& name, std::size_t bytes, const void* values, bool constant) {
  auto a = std::make_unique<Allocation>();
  a->name = name;
  a->size = bytes;
  a->constant = constant;
  a->storage.reset(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 256) / 256 * 256)));
  if (!a->storage) throw std::bad_alloc();
  a->data = a->storage.get();
  if (values != nullptr)
    std::memcpy(a->data, values, bytes);
  else
    std::memset(a->data, 0xff, bytes);
  a->shadow.reset(bytes, values != nullptr ? ByteState::written : ByteState::never_written);
  allocations_.push_back(std::move(a));
  return allocations_.back().get();
}

void* Memory::data(Allocation* a) { return a->data; }

bool Memory::written(const Allocation* a, const void* p, std::size_t bytes) {
  return all_are(a->shadow.state.data() + (static_cast<const std::byte*>(p) - a->data), bytes, ByteState::written);
}

void Memory::set_dependent(const Allocation* a, bool on) { writable(a)->dependent = on; }

void Memory::poison(const Allocation* a) {
  std::memset(a->data, 0xff, a->size);
  writable(a)->shadow.reset(a->size, ByteState::never_written);
}

}  // namespace swordfish::emu
