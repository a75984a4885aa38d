// The read thread, and the threads that wait for it.
#include "io/staging.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "io/descriptor.h"
#include "io/page_cache.h"
#include "io/staging_area.h"
#include "io/staging_plan.h"

namespace swordfish::io {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr unsigned kMostRetries = 100;  // of EINTR and EAGAIN, one after the other
// For which nothing may come back to a full ring before those who wait help themselves: the pieces in it may belong to a thread
// that is copying, or has lost its core.
constexpr auto kPatience = std::chrono::milliseconds(50);

// planned ─┬─> reading ──────┬─> ready ──> done
//          │                 └─> failed
//          ├─> cached, in_file ─────────> done
//          └────────────────────────────> done
enum class At : std::uint8_t {
  planned,
  reading,  // on its way into the ring
  ready,    // in the ring
  cached,   // whoever needs it reads it from the file, in the page cache
  in_file,  // the same, although it may have to come from disk: the ring was full
  done,     // used up, or dropped
  failed,
};

struct Piece {
  At at = At::planned;
  bool buffered = false;  // O_DIRECT did not work for it
  unsigned users = 0, readers = 0, retries = 0;
  std::uint64_t left = 0;  // needed bytes not copied yet
  std::uint64_t got = 0;   // bytes in the ring
  std::optional<StagingArea::Slot> slot;
  std::vector<ByteRange> to_drop;  // pages that a buffered read brings into the cache
  Status status;
};

}  // namespace

struct StagedReader::State {
  std::vector<std::shared_ptr<const File>> files;
  std::vector<Descriptor> direct;  // of each file, where O_DIRECT is wanted and to be had
  std::vector<std::vector<ByteRange>> skipped;
  StagingOptions options;
  PiecePlan plan;
  std::optional<StagingArea> area;
  std::unique_ptr<ReadEngine> engine;

  mutable std::mutex mutex;
  std::condition_variable moved;  // a piece came, or the ring is full: for those who wait for a piece
  std::condition_variable room;   // memory came back, or a piece is no longer planned: for the read thread
  std::vector<Piece> pieces;
  bool stop = false, used_direct = false, used_buffered = false;
  bool full = false;                                    // the read thread waits for room
  std::optional<Clock::time_point> nothing_back_since;  // from when it first did; until something comes back
  StagingStats stats;
  std::thread thread;

  ~State() {
    cancel();
    if (thread.joinable()) thread.join();
    engine.reset();  // before the memory that it reads into
  }

  void cancel() {
    const std::lock_guard lock(mutex);
    stop = true;
    moved.notify_all();
    room.notify_all();
  }

  std::string where(std::size_t file, std::uint64_t offset) const {
    const std::string what = options.describe ? options.describe(file, offset) : std::string();
    return what.empty() ? files[file]->path() : fmt::format("{}: {}", files[file]->path(), what);
  }
  std::uint64_t expected(std::uint32_t p) const {  // bytes that the file has for it
    const PiecePlan::Piece& planned = plan.pieces[p];
    return std::min(planned.end, files[planned.file]->size()) - planned.begin;
  }
  std::uint64_t first_needed(std::uint32_t p) const {
    const auto& spans = plan.spans[plan.pieces[p].file];
    const auto found = std::find_if(spans.begin(), spans.end(), [&](const auto& span) { return span.piece == p; });
    return found == spans.end() ? plan.pieces[p].begin : found->begin;
  }

  // --- the read thread: `mutex` is free ------------------------------------------------------------------------------------------

  unsigned in_flight = 0;
  Clock::time_point busy_since;

  void run() {
    const Status status = read_all();
    if (status.ok()) return;
    const std::lock_guard lock(mutex);  // the engine is lost: so is everything that has not come
    for (Piece& piece : pieces) {
      if (piece.at != At::planned && piece.at != At::reading) continue;
      piece.at = At::failed;
      piece.status = status;
    }
    moved.notify_all();
  }

  Status read_all() {
    for (std::uint32_t p = 0; p < pieces.size(); ++p) {
      if (in_flight == options.depth) SF_TRY(collect());
      pieces[p].to_drop = missing_from_cache(files[plan.pieces[p].file]->fd(), plan.pieces[p].begin, expected(p));
      if (pieces[p].to_drop.empty() && options.from_cache) {
        leave_in_cache(p);
        continue;
      }
      while (!take_room(p)) SF_TRY(collect());
      if (pieces[p].slot) submit(p);
    }
    while (in_flight > 0) SF_TRY(collect());
    return {};
  }

  void leave_in_cache(std::uint32_t p) {
    const std::lock_guard lock(mutex);
    if (pieces[p].at != At::planned) return;
    pieces[p].at = At::cached;
    moved.notify_all();
  }

  // Gives the piece a slot, unless it is not wanted any more. Without room it waits for some, or, if there are reads in flight,
  // returns false.
  bool take_room(std::uint32_t p) {
    std::unique_lock lock(mutex);
    while (!stop && pieces[p].at == At::planned) {
      pieces[p].slot = area->take(plan.pieces[p].end - plan.pieces[p].begin);
      if (pieces[p].slot) {
        pieces[p].at = At::reading;
        break;
      }
      if (in_flight > 0) return false;
      const Clock::time_point start = Clock::now();
      full = true;
      if (!nothing_back_since) nothing_back_since = start;
      moved.notify_all();
      room.wait(lock);
      full = false;
      stats.full_seconds += seconds_since(start);
    }
    return true;
  }

  void submit(std::uint32_t p) {
    const PiecePlan::Piece& planned = plan.pieces[p];
    Piece& piece = pieces[p];
    piece.buffered = piece.buffered || !direct[planned.file];
    if (!piece.buffered) piece.got = piece.got / kPage * kPage;
    const Status status =
        engine->submit({piece.buffered ? files[planned.file]->fd() : direct[planned.file].fd(), planned.begin + piece.got,
                        static_cast<std::size_t>(planned.end - planned.begin - piece.got), piece.slot->data + piece.got, p});
    if (!status.ok()) return settle(p, status);
    if (in_flight++ == 0) busy_since = Clock::now();
  }

  // Waits for at least one read.
  Status collect() {
    std::vector<ReadCompletion> done;
    SF_TRY(engine->wait(done));
    in_flight -= static_cast<unsigned>(done.size());
    if (in_flight == 0) {
      const std::lock_guard lock(mutex);
      stats.disk_seconds += seconds_since(busy_since);
    }
    for (const ReadCompletion& completion : done) complete(completion);
    return {};
  }

  void complete(const ReadCompletion& done) {
    const auto p = static_cast<std::uint32_t>(done.tag);
    const PiecePlan::Piece& planned = plan.pieces[p];
    Piece& piece = pieces[p];
    const std::uint64_t at = planned.begin + piece.got;
    const auto tensor = [&] { return where(planned.file, std::max(at, first_needed(p))); };
    if (done.result < 0) {
      const int error = static_cast<int>(-done.result);
      if ((error == EINTR || error == EAGAIN) && ++piece.retries <= kMostRetries) return submit(p);
      if (!piece.buffered && (error == EINVAL || error == EOPNOTSUPP)) return submit_buffered(p);
      return settle(p, io_error("{}: cannot read {} bytes at offset {}: {}", tensor(), planned.end - at, at, errno_text(error)));
    }
    piece.got = std::min(piece.got + static_cast<std::uint64_t>(done.result), planned.end - planned.begin);
    if (piece.got >= expected(p)) return settle(p, {});
    if (done.result == 0)
      return settle(p, io_error("{}: truncated: the file ends at offset {}, but had {} bytes when it was opened", tensor(), at,
                                files[planned.file]->size()));
    piece.retries = 0;
    if (!piece.buffered && static_cast<std::uint64_t>(done.result) < kPage) return submit_buffered(p);  // not a page further
    submit(p);
  }

  void submit_buffered(std::uint32_t p) {
    pieces[p].buffered = true;
    submit(p);
  }

  // The piece is in the ring, or will never be.
  void settle(std::uint32_t p, const Status& status) {
    Piece& piece = pieces[p];
    if (piece.buffered) drop_from_cache(files[plan.pieces[p].file]->fd(), piece.to_drop);
    const std::lock_guard lock(mutex);
    (piece.buffered ? used_buffered : used_direct) = true;
    stats.disk_bytes += expected(p);
    if (status.ok()) {
      piece.at = At::ready;
      give_back_if_done(p);
    } else {
      piece.at = At::failed;
      piece.status = status;
      give_back(p);
    }
    moved.notify_all();
  }

  // --- `mutex` is held -----------------------------------------------------------------------------------------------------------

  void give_back(std::uint32_t p) {
    area->give_back(*pieces[p].slot);
    pieces[p].slot.reset();
    nothing_back_since.reset();
    room.notify_one();
  }
  void give_back_if_done(std::uint32_t p) {
    Piece& piece = pieces[p];
    if (piece.at != At::ready || piece.readers > 0 || (piece.left > 0 && piece.users > 0)) return;
    piece.at = At::done;
    give_back(p);
  }

  // Waits until the piece is `ready`, `cached`, `in_file` or `done`.
  Result<At> await(std::unique_lock<std::mutex>& lock, std::uint32_t p) {
    Piece& piece = pieces[p];
    const auto moving = [&] { return piece.at == At::planned || piece.at == At::reading; };
    if (moving()) {
      const Clock::time_point start = Clock::now();
      while (!stop && moving()) {
        if (!full || piece.at != At::planned || !nothing_back_since) {
          moved.wait(lock);
        } else if (Clock::now() < *nothing_back_since + kPatience) {
          moved.wait_until(lock, *nothing_back_since + kPatience);
        } else {  // it will not come before others make room, and they may be waiting as we are
          piece.at = At::in_file;
          room.notify_one();
        }
      }
      stats.wait_seconds += seconds_since(start);
    }
    if (stop) return Status(Code::cancelled, "loading was cancelled");
    if (piece.at == At::failed) return piece.status;
    return piece.at;
  }

  // --- readers: `mutex` is free --------------------------------------------------------------------------------------------------

  // From the file itself: bytes that no unit has, or whose piece is not in the ring (`at`).
  Status read_from_file(std::size_t file, std::uint64_t offset, std::size_t size, std::byte* out, std::optional<At> at) {
    std::vector<ByteRange> missing;
    if (at != At::cached) missing = missing_from_cache(files[file]->fd(), offset, size);
    const Clock::time_point start = Clock::now();
    const Status status = files[file]->read(offset, size, out);
    drop_from_cache(files[file]->fd(), missing);
    const std::lock_guard lock(mutex);
    stats.copy_seconds += seconds_since(start);
    const bool planned = at == At::cached || at == At::in_file;
    (!planned ? stats.unplanned_bytes : missing.empty() ? stats.cache_bytes : stats.past_ring_bytes) += size;
    if (status.ok()) return {};
    return {status.code(), fmt::format("{} ({})", status.message(), options.describe ? options.describe(file, offset) : "")};
  }

  // A range of one piece.
  Status read_span(const PiecePlan::Span& span, std::size_t file, std::uint64_t offset, std::size_t size, std::byte* out) {
    Piece& piece = pieces[span.piece];
    {
      std::unique_lock lock(mutex);
      SF_ASSIGN(const At at, await(lock, span.piece));
      if (at != At::ready) {
        lock.unlock();
        return read_from_file(file, offset, size, out, at);
      }
      ++piece.readers;
    }
    const Clock::time_point start = Clock::now();
    std::memcpy(out, piece.slot->data + (offset - plan.pieces[span.piece].begin), size);
    const double copied = seconds_since(start);
    const std::lock_guard lock(mutex);
    stats.copy_seconds += copied;
    --piece.readers;
    piece.left -= std::min<std::uint64_t>(piece.left, size);
    give_back_if_done(span.piece);
    return {};
  }

  // Bytes that no unit has: zeros where they are skipped, else from the file.
  Status read_gap(std::size_t file, std::uint64_t offset, std::size_t size, std::byte* out) {
    const std::vector<ByteRange>& runs = skipped[file];
    auto run =
        std::upper_bound(runs.begin(), runs.end(), offset, [](std::uint64_t at, const ByteRange& r) { return at < r.offset; });
    if (run != runs.begin() && std::prev(run)->end() > offset) --run;
    while (size > 0) {
      const bool inside = run != runs.end() && run->offset <= offset;
      const std::uint64_t until = inside ? run->end() : run != runs.end() ? run->offset : offset + size;
      const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(size, until - offset));
      if (inside) {
        std::memset(out, 0, part);
        ++run;
      } else {
        SF_TRY(read_from_file(file, offset, part, out, std::nullopt));
      }
      offset += part, size -= part, out += part;
    }
    return {};
  }

  Status read(std::size_t file, std::uint64_t offset, std::size_t size, std::byte* out) {
    const auto& spans = plan.spans[file];
    auto span = std::upper_bound(spans.begin(), spans.end(), offset, [](std::uint64_t at, const auto& s) { return at < s.begin; });
    if (span != spans.begin() && std::prev(span)->end > offset) --span;
    while (size > 0) {
      const bool inside = span != spans.end() && span->begin <= offset;
      const std::uint64_t until = inside ? span->end : span != spans.end() ? span->begin : offset + size;
      const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(size, until - offset));
      if (inside) {
        SF_TRY(read_span(*span, file, offset, part, out));
        ++span;
      } else {
        SF_TRY(read_gap(file, offset, part, out));
      }
      offset += part, size -= part, out += part;
    }
    return {};
  }

  // Waits for a piece and drops it; one that is not in the ring is read as any program would, into memory that stays in the cache.
  Status discard(std::uint32_t p) {
    At how = At::done;
    {
      std::unique_lock lock(mutex);
      SF_ASSIGN(const At at, await(lock, p));
      Piece& piece = pieces[p];
      piece.left = 0;
      give_back_if_done(p);
      piece.at = At::done;
      if (at != At::cached && at != At::in_file) return {};
      how = at;
    }
    constexpr std::uint64_t kChunk = std::uint64_t{256} << 10;
    static thread_local Buffer scratch{static_cast<std::size_t>(kChunk)};
    const PiecePlan::Piece& piece = plan.pieces[p];
    const std::uint64_t end = piece.begin + expected(p);
    for (std::uint64_t at = piece.begin; at < end; at += kChunk)
      SF_TRY(read_from_file(piece.file, at, static_cast<std::size_t>(std::min(kChunk, end - at)), scratch.data(), how));
    return {};
  }
};

StagedReader::StagedReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedReader::~StagedReader() = default;

Result<std::unique_ptr<StagedReader>> StagedReader::start(std::vector<std::shared_ptr<const File>> files,
                                                          const std::vector<StagedUnit>& units,
                                                          const std::vector<StagedRange>& skipped, StagingOptions options) {
  for (const StagedUnit& unit : units) {
    for (const StagedRange& r : unit.ranges) {
      if (r.offset > files.at(r.file)->size() || r.size > files[r.file]->size() - r.offset)
        return io_error("{}: truncated: {} bytes at offset {} are needed, but the file has {}", files.at(r.file)->path(), r.size,
                        r.offset, files[r.file]->size());
    }
  }
  auto state = std::make_unique<State>();
  options.ring_bytes = std::max<std::uint64_t>(options.ring_bytes, 16 * kPage);
  options.piece_bytes = std::min(options.piece_bytes, options.ring_bytes / 8);
  options.depth = std::max(options.depth, 1u);
  state->plan = plan_pieces(files.size(), units, options.piece_bytes, options.ring_bytes / 8);
  std::uint64_t most = 0;  // that the ring can be filled with
  for (const PiecePlan::Piece& piece : state->plan.pieces) most += piece.end - piece.begin;
  state->area.emplace(std::clamp(most, kPage, options.ring_bytes / kPage * kPage));
  state->pieces.resize(state->plan.pieces.size());
  for (std::size_t p = 0; p < state->pieces.size(); ++p) {
    state->pieces[p].users = state->plan.pieces[p].users;
    state->pieces[p].left = state->plan.pieces[p].needed;
  }
  state->skipped.resize(files.size());
  for (const StagedRange& r : skipped)
    if (r.size > 0) state->skipped[r.file].push_back({r.offset, r.size});
  for (auto& runs : state->skipped)
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  state->files = std::move(files);
  for (const auto& file : state->files) {
    // Exactly what is asked for: what the system reads ahead would stay in the cache. A failure only means that it does.
    (void)::posix_fadvise(file->fd(), 0, 0, POSIX_FADV_RANDOM);
    // The very same file, whatever its name means by now; without /proc it is read through the page cache.
    state->direct.push_back(options.direct ? Descriptor(fmt::format("/proc/self/fd/{}", file->fd()), O_DIRECT) : Descriptor());
  }
  if (options.uring) {
    Result<std::unique_ptr<ReadEngine>> engine = make_uring_engine(options.depth);
    if (engine.ok()) state->engine = std::move(engine).value();
  }
  if (!state->engine) state->engine = make_pread_engine(options.depth);
  if (options.wrap_engine) state->engine = options.wrap_engine(std::move(state->engine));
  state->options = std::move(options);
  state->stats.needed_bytes = state->plan.needed_bytes;
  State* running = state.get();
  state->thread = std::thread([running] { running->run(); });
  return std::unique_ptr<StagedReader>(new StagedReader(std::move(state)));
}

Status StagedReader::read(std::size_t file, std::uint64_t offset, std::size_t size, void* out) const {
  return state_->read(file, offset, size, static_cast<std::byte*>(out));
}

void StagedReader::end_unit(std::size_t unit) {
  const std::lock_guard lock(state_->mutex);
  for (const std::uint32_t p : state_->plan.of_unit[unit]) {
    Piece& piece = state_->pieces[p];
    if (--piece.users > 0) continue;
    if (piece.at == At::planned) {
      piece.at = At::done;
      state_->room.notify_one();
    }
    state_->give_back_if_done(p);
  }
}

Status StagedReader::discard_unit(std::size_t unit) {
  Status status;
  for (const std::uint32_t p : state_->plan.of_unit[unit]) {
    status = state_->discard(p);
    if (!status.ok()) break;
  }
  end_unit(unit);
  return status;
}

void StagedReader::cancel() { state_->cancel(); }

StagingStats StagedReader::stats() const {
  const std::lock_guard lock(state_->mutex);
  StagingStats stats = state_->stats;
  if (state_->used_direct || state_->used_buffered) {
    stats.engine = std::string(state_->engine->name());
    if (state_->used_direct) stats.engine += " + O_DIRECT";
  } else {
    stats.engine = "page cache";
  }
  return stats;
}

}  // namespace swordfish::io
