// Counting: groups the accesses of a launch into requests of whole warps and adds up wavefronts, sectors and bytes.
//
// A request is what one instruction of one warp asks at once: here, the n-th time that each lane comes by a place in the source.
// Shared memory has 32 banks of 4 bytes; a wavefront serves each bank one word. Accesses of 8 bytes go in two phases of 16 lanes,
// of 16 bytes in four of 8 lanes; each row set of ldmatrix and stmatrix (8 rows of 16 bytes) is a phase.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "emulator/machine.h"

namespace swordfish::emu {
namespace {

std::uint64_t key_of(const Loc& at, PlaceKind kind) {
  return (reinterpret_cast<std::uintptr_t>(at.file_name()) << 24) ^ (std::uint64_t{at.line()} << 12) ^
         (std::uint64_t{at.column()} << 3) ^ static_cast<std::uint64_t>(kind);
}

const char* name(PlaceKind kind) {
  switch (kind) {
    case PlaceKind::shared_load: return "shared load";
    case PlaceKind::shared_store: return "shared store";
    case PlaceKind::global_load: return "global load";
    case PlaceKind::global_store: return "global store";
    case PlaceKind::async_copy: return "async copy";
  }
  return "";
}

void add(Traffic& to, const Traffic& t) {
  to.requests += t.requests;
  to.bytes += t.bytes;
  to.shared_wavefronts += t.shared_wavefronts;
  to.shared_ideal += t.shared_ideal;
  to.sectors += t.sectors;
}

// The accesses of one request to shared memory.
void count_shared(const Sample* begin, const Sample* end, Traffic& t) {
  std::map<int, std::set<std::uint64_t>> words;  // by phase
  for (const Sample* s = begin; s != end; ++s) {
    const int lanes_a_phase = s->size <= 4 ? 32 : 128 / s->size;
    const int phase = s->phase != 0xff ? s->phase : s->lane / lanes_a_phase;
    for (std::uint64_t w = s->address / 4; w * 4 < s->address + s->size; ++w) words[phase].insert(w);
  }
  for (const auto& [phase, set] : words) {
    std::array<std::uint64_t, 32> banks{};
    for (std::uint64_t w : set) ++banks[w % 32];
    t.shared_wavefronts += *std::max_element(banks.begin(), banks.end());
    t.shared_ideal += (set.size() + 31) / 32;
  }
}

}  // namespace

void sample(PlaceKind kind, std::uint64_t address, std::size_t size, const Loc& at, std::uint8_t phase) {
  Lane& self = lane();
  const std::uint64_t key = key_of(at, kind);
  const auto [it, fresh] = grid->place_index.try_emplace(key, static_cast<std::uint32_t>(grid->places.size()));
  if (fresh) grid->places.push_back({at, kind});
  const std::uint32_t execution = self.executions[key]++;
  grid->samples.push_back({it->second, self.warp->id, execution, static_cast<std::uint16_t>(size),
                           static_cast<std::uint8_t>(self.index), phase, address});
}

void count_traffic(Grid& g) {
  auto& samples = g.samples;
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
    if (a.place != b.place) return a.place < b.place;
    if (a.warp != b.warp) return a.warp < b.warp;
    return a.execution < b.execution;
  });
  Counters& counters = g.outcome.counters;
  for (std::size_t i = 0; i < samples.size();) {
    std::size_t end = i;
    while (end < samples.size() && samples[end].place == samples[i].place && samples[end].warp == samples[i].warp &&
           samples[end].execution == samples[i].execution)
      ++end;
    const Place& place = g.places[samples[i].place];
    Traffic t;
    t.requests = 1;
    std::set<std::uint64_t> sectors;
    for (std::size_t s = i; s < end; ++s) {
      t.bytes += samples[s].size;
      for (std::uint64_t a = samples[s].address / 32; a <= (samples[s].address + samples[s].size - 1) / 32; ++a) sectors.insert(a);
    }
    const bool shared = place.kind == PlaceKind::shared_load || place.kind == PlaceKind::shared_store;
    if (shared)
      count_shared(&samples[i], samples.data() + end, t);
    else
      t.sectors = sectors.size();
    add(g.outcome.lines[fmt::format("{}:{}:{} {}", place.at.file_name(), place.at.line(), place.at.column(), name(place.kind))], t);
    switch (place.kind) {
      case PlaceKind::shared_load: add(counters.shared_loads, t); break;
      case PlaceKind::shared_store: add(counters.shared_stores, t); break;
      case PlaceKind::global_load: add(counters.global_loads, t); break;
      case PlaceKind::global_store: add(counters.global_stores, t); break;
      case PlaceKind::async_copy: add(counters.async_copies, t); break;
    }
    i = end;
  }
  for (const Allocation* a : g.touched) {
    for (std::uint8_t s : a->sectors) {
      counters.distinct_sectors_read += s & 1;
      counters.distinct_sectors_written += s >> 1 & 1;
    }
  }
}

}  // namespace swordfish::emu
