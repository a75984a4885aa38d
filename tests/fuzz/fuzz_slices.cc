// The slice planner: runs of bytes against a mask of every byte, ranks that hold everything once, and pieces that hold every needed
// byte once.
//
// The input is a stream of bytes: each decision (number of dimensions, their sizes, ranges, units) takes the next; at its end, 0.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz.h"
#include "io/staging_plan.h"
#include "load/ranks.h"
#include "load/slices.h"

using namespace swordfish;

namespace {

class Stream {
 public:
  explicit Stream(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t below(std::uint64_t limit) {
    std::uint64_t value = 0;
    for (std::uint64_t reach = 1; reach < limit; reach <<= 8) value = value << 8 | next();
    return limit == 0 ? 0 : value % limit;
  }

 private:
  std::uint64_t next() { return at_ < bytes_.size() ? static_cast<unsigned char>(bytes_[at_++]) : 0; }
  std::string_view bytes_;
  std::size_t at_ = 0;
};

void check_runs(Stream& in) {
  std::vector<std::int64_t> shape(1 + in.below(4));
  std::uint64_t count = 1;
  for (std::int64_t& dim : shape) {
    dim = static_cast<std::int64_t>(in.below(9));  // 0 too
    count *= static_cast<std::uint64_t>(dim);
  }
  const std::uint64_t element = in.below(4), bytes = in.below(8) == 0 ? in.below(5000) : count * element;
  std::vector<AxisRange> ranges;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (in.below(2) == 0) continue;
    const auto begin = static_cast<std::int64_t>(in.below(static_cast<std::uint64_t>(shape[d]) + 1));
    ranges.push_back({d, begin, begin + static_cast<std::int64_t>(in.below(static_cast<std::uint64_t>(shape[d] - begin) + 1))});
  }
  const std::uint64_t min_run = in.below(2) * in.below(200);
  const std::vector<io::ByteRange> runs = slice_runs(shape, bytes, ranges, min_run);
  std::uint64_t end = 0;
  for (const io::ByteRange& run : runs) {
    fuzz::check(run.size > 0 && run.offset >= end && run.end() <= bytes, "runs lie in order inside the tensor");
    end = run.end();
  }
  if (count == 0 || bytes != count * element) return;
  for (std::uint64_t i = 0; i < bytes; ++i) {
    std::uint64_t rest = i / element;
    bool inside = true;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto index = static_cast<std::int64_t>(rest % static_cast<std::uint64_t>(shape[d]));
      rest /= static_cast<std::uint64_t>(shape[d]);
      for (const AxisRange& r : ranges) inside = inside && (r.axis != d || (index >= r.begin && index < r.end));
    }
    const bool found =
        std::any_of(runs.begin(), runs.end(), [&](const io::ByteRange& run) { return i >= run.offset && i < run.end(); });
    fuzz::check(found || !inside, "every byte of the slice is in a run");
    fuzz::check(min_run > 0 || inside || !found, "no other byte is");
  }
}

void check_ranks(Stream& in) {
  static const char* const kNames[] = {"model.layers.0.mlp.down_proj",
                                       "model.layers.0.self_attn.q_proj",
                                       "blk.1.ffn_down_exps",
                                       "model.layers.3.mlp.experts.7.w2",
                                       "router",
                                       "model.layers.0.self_attn.qkv_proj"};
  LayerInfo info;
  info.name = kNames[in.below(6)];
  info.k_first = in.below(2) != 0;
  info.n = 1 + static_cast<std::int64_t>(in.below(70'000));
  info.k = 1 + static_cast<std::int64_t>(in.below(70'000));
  info.group_size = in.below(4) == 0 ? info.k : 1 + static_cast<std::int64_t>(in.below(300));
  if (in.below(3) == 0) {
    const auto heads = static_cast<std::int64_t>(in.below(20)), size = 1 + static_cast<std::int64_t>(in.below(200));
    const std::int64_t n = size * std::max<std::int64_t>(heads, 1);
    info.projections.assign(2 + in.below(2), {"part", n, heads});
    info.n = static_cast<std::int64_t>(info.projections.size()) * n;
  }
  const int ranks = 1 + static_cast<int>(in.below(9));
  std::int64_t n = 0, k = 0;
  bool whole = true;
  for (int r = 0; r < ranks; ++r) {
    const Result<LayerCut> cut = cut_layer(info, {r, ranks, false});
    if (!cut.ok()) {
      fuzz::check(!cut.status().message().empty(), "a refusal says why");
      whole = false;
      continue;
    }
    std::int64_t end = 0, rows = 0;
    for (const auto& [n0, count] : cut->rows) {
      fuzz::check(n0 >= end && count > 0, "rows lie in order");
      end = n0 + count;
      rows += count;
    }
    fuzz::check(rows == cut->n && end <= info.n && cut->k > 0 && cut->k0 >= 0 && cut->k0 + cut->k <= info.k,
                "a cut lies inside its layer");
    fuzz::check(cut->n == info.n || cut->k == info.k, "a cut is of rows or of columns");
    n += cut->n;
    k += cut->k;
  }
  if (!whole) return;
  fuzz::check(n == info.n || n == info.n * ranks, "rows are held once, or by all");
  fuzz::check(k == info.k || k == info.k * ranks, "columns are held once, or by all");
}

void check_pieces(Stream& in) {
  std::vector<io::StagedUnit> units(in.below(6));
  for (io::StagedUnit& unit : units)
    for (std::uint64_t i = in.below(5); i > 0; --i) unit.ranges.push_back({in.below(2), in.below(60'000), in.below(30'000)});
  const io::PiecePlan plan = io::plan_pieces(2, units, 4096 * (1 + in.below(4)), in.below(50'000));
  std::uint64_t needed = 0, spans = 0;
  for (const auto& piece : plan.pieces) {
    fuzz::check(piece.begin % 4096 == 0 && piece.end % 4096 == 0 && piece.begin < piece.end && piece.users > 0,
                "pieces are whole pages that somebody needs");
    needed += piece.needed;
  }
  for (std::size_t f = 0; f < 2; ++f) {
    std::uint64_t at = 0;
    for (const auto& span : plan.spans[f]) {
      fuzz::check(span.begin >= at && span.end > span.begin, "spans do not overlap");
      fuzz::check(plan.pieces[span.piece].begin <= span.begin && span.end <= plan.pieces[span.piece].end,
                  "a span lies in its piece");
      at = span.end;
      spans += span.end - span.begin;
    }
  }
  fuzz::check(needed == spans && needed == plan.needed_bytes, "every needed byte is in one piece");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Stream in(fuzz::text(data, size));
  switch (in.below(3)) {
    case 0: check_runs(in); break;
    case 1: check_ranks(in); break;
    default: check_pieces(in); break;
  }
  return 0;
}
