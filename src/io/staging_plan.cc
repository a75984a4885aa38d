// Batches of units, their ranges merged where they share pages, cut into pieces.
#include "io/staging_plan.h"

#include <algorithm>
#include <map>

namespace swordfish::io {
namespace {

struct Need {
  StagedRange range;
  std::size_t unit = 0;
};

// The bytes of each file that earlier units have.
class Claimed {
 public:
  // Calls take(offset, size) for what of the range is still free, and claims it.
  template <class F>
  void claim(const StagedRange& r, F&& take) {
    std::uint64_t at = r.offset;
    const std::uint64_t end = r.offset + r.size;
    auto next = taken_.upper_bound(at);  // first run that begins after `at`
    if (next != taken_.begin()) at = std::max(at, std::prev(next)->second);
    while (at < end) {
      const std::uint64_t until = next == taken_.end() ? end : std::min(end, next->first);
      if (until > at) take(at, until - at);
      if (next == taken_.end() || next->first >= end) break;
      at = std::max(at, next->second);
      ++next;
    }
    add(r.offset, end);
  }

 private:
  void add(std::uint64_t begin, std::uint64_t end) {
    auto run = taken_.upper_bound(begin);
    if (run != taken_.begin() && std::prev(run)->second >= begin) --run;
    while (run != taken_.end() && run->first <= end) {
      begin = std::min(begin, run->first);
      end = std::max(end, run->second);
      run = taken_.erase(run);
    }
    taken_.emplace(begin, end);
  }
  std::map<std::uint64_t, std::uint64_t> taken_;  // disjoint runs, begin to end
};

void add_to_piece(PiecePlan& plan, std::uint32_t number, std::uint64_t from, std::uint64_t to, std::size_t unit) {
  PiecePlan::Piece& piece = plan.pieces[number];
  piece.needed += to - from;
  std::vector<PiecePlan::Span>& spans = plan.spans[piece.file];
  if (!spans.empty() && spans.back().piece == number && spans.back().end == from) {
    spans.back().end = to;
  } else {
    spans.push_back({from, to, number});
  }
  std::vector<std::uint32_t>& mine = plan.of_unit[unit];
  if (std::find(mine.begin(), mine.end(), number) == mine.end()) {
    mine.push_back(number);
    ++piece.users;
  }
}

// Runs of neighbours in a file, in order of offsets, those of fewer bytes first. Files keep scales far from their codes: were they
// read last, all units of a batch would wait for its end and then be packed at once.
void put_in_order(std::vector<Need>& needs) {
  std::sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return a.range.file != b.range.file ? a.range.file < b.range.file : a.range.offset < b.range.offset;
  });
  struct Run {
    std::vector<Need> needs;
    std::uint64_t bytes = 0;
  };
  std::vector<Run> runs;
  for (const Need& need : needs) {
    const StagedRange* const last = runs.empty() ? nullptr : &runs.back().needs.back().range;
    if (last == nullptr || last->file != need.range.file || last->offset + last->size + kPage < need.range.offset)
      runs.emplace_back();
    runs.back().needs.push_back(need);
    runs.back().bytes += need.range.size;
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.bytes < b.bytes; });
  needs.clear();
  for (const Run& run : runs) needs.insert(needs.end(), run.needs.begin(), run.needs.end());
}

// `needs` of one batch, disjoint.
void plan_batch(std::vector<Need>& needs, std::uint64_t piece_bytes, PiecePlan& plan) {
  put_in_order(needs);
  const std::size_t first_piece = plan.pieces.size();
  for (const Need& need : needs) {
    const StagedRange& r = need.range;
    const std::uint64_t end = r.offset + r.size;
    plan.needed_bytes += r.size;
    for (std::uint64_t at = r.offset; at < end;) {
      PiecePlan::Piece* last = plan.pieces.size() > first_piece ? &plan.pieces.back() : nullptr;
      const std::uint64_t page = at / kPage * kPage;
      // Goes on in the last piece if its pages touch it and it has room.
      if (last == nullptr || last->file != r.file || page < last->begin || page > last->end || at >= last->begin + piece_bytes) {
        plan.pieces.push_back({r.file, page, page, 0, 0});
        last = &plan.pieces.back();
      }
      const std::uint64_t until = std::min(end, last->begin + piece_bytes);
      last->end = std::max(last->end, (until + kPage - 1) / kPage * kPage);
      add_to_piece(plan, static_cast<std::uint32_t>(plan.pieces.size() - 1), at, until, need.unit);
      at = until;
    }
  }
  needs.clear();
}

}  // namespace

PiecePlan plan_pieces(std::size_t files, const std::vector<StagedUnit>& units, std::uint64_t piece_bytes,
                      std::uint64_t batch_bytes) {
  PiecePlan plan;
  plan.of_unit.resize(units.size());
  plan.spans.resize(files);
  std::vector<Claimed> claimed(files);
  std::vector<Need> batch;
  std::uint64_t bytes = 0;
  piece_bytes = std::max(kPage, piece_bytes / kPage * kPage);
  for (std::size_t u = 0; u < units.size(); ++u) {
    // A unit that does not fit has a batch of its own: before the others of a batch it could fill the ring and block them.
    std::uint64_t unit_bytes = 0;
    for (const StagedRange& r : units[u].ranges) unit_bytes += r.size;
    if (bytes + unit_bytes > batch_bytes) {
      plan_batch(batch, piece_bytes, plan);
      bytes = 0;
    }
    for (const StagedRange& r : units[u].ranges) {
      if (r.size == 0) continue;
      claimed[r.file].claim(r, [&](std::uint64_t offset, std::uint64_t size) {
        batch.push_back({{r.file, offset, size}, u});
        bytes += size;
      });
    }
  }
  plan_batch(batch, piece_bytes, plan);
  for (auto& list : plan.spans) std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return plan;
}

}  // namespace swordfish::io
