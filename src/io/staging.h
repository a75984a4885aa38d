// StagedReader: reads a list of byte ranges ahead of the threads that need them, through a bounded ring, and serves them from it.
//
//   units in the order in which they will be taken
//        │ consecutive units make a batch; its ranges are merged to runs, small ones first, and cut into pieces of at most 4 MiB
//        ▼
//   pieces ── the read thread keeps `depth` of them in flight (io_uring and O_DIRECT, or pread) ──> ring ──> read() copies out
//
// A piece holds whole pages and goes back to the ring when all bytes that units need of it have been copied, or its units have
// ended. A piece whose pages are all in the page cache is not staged: whoever needs it reads it there. read() waits for a piece
// that is on its way; one that is still to come while the ring stays full it reads itself. So any order of calls is right, and the
// order of the units is fast. A range that no unit has is read from its file, and counted.
//
// The page cache is left as found: pages that a read without O_DIRECT has put there are dropped again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_source.h"
#include "io/file.h"
#include "io/read_engine.h"
#include "swordfish/status.h"

namespace swordfish::io {

struct StagedRange {
  std::size_t file = 0;
  std::uint64_t offset = 0, size = 0;
};
struct StagedUnit {
  std::vector<StagedRange> ranges;
};

struct StagingOptions {
  std::uint64_t ring_bytes = std::uint64_t{256} << 20;
  std::uint64_t piece_bytes = std::uint64_t{4} << 20;
  unsigned depth = 32;
  bool direct = true;      // O_DIRECT where the file system has it
  bool uring = true;       // io_uring where the system has it
  bool from_cache = true;  // what is in the page cache is read there
  // "tensor 'x'" for the byte of a file, in messages.
  std::function<std::string(std::size_t file, std::uint64_t offset)> describe;
  // Put between the reader and its engine by tests.
  std::function<std::unique_ptr<ReadEngine>(std::unique_ptr<ReadEngine>)> wrap_engine;
};

struct StagingStats {
  std::string engine;                 // "io_uring + O_DIRECT", "pread", ... of what was read from disk
  std::uint64_t needed_bytes = 0;     // sum of all ranges
  std::uint64_t disk_bytes = 0;       // read into the ring, whole pages
  std::uint64_t cache_bytes = 0;      // found in the page cache
  std::uint64_t past_ring_bytes = 0;  // read from disk by whoever needed them, because the ring was full
  std::uint64_t unplanned_bytes = 0;  // read although no unit has them, or again
  double disk_seconds = 0;            // with a read in flight
  double full_seconds = 0;            // with none, because the ring was full
  double wait_seconds = 0;            // of threads in read(), summed
  double copy_seconds = 0;            // out of the ring or the page cache, summed
};

class StagedReader final : public ByteSource {
 public:
  // `skipped`: ranges that may be asked for together with needed ones but are not to be read; they are served as zeros.
  static Result<std::unique_ptr<StagedReader>> start(std::vector<std::shared_ptr<const File>> files,
                                                     const std::vector<StagedUnit>& units, const std::vector<StagedRange>& skipped,
                                                     StagingOptions options);
  ~StagedReader() override;  // cancels
  StagedReader(const StagedReader&) = delete;
  StagedReader& operator=(const StagedReader&) = delete;

  Status read(std::size_t file, std::uint64_t offset, std::size_t size, void* out) const override;
  // The unit's ranges have been read; those that were not are dropped.
  void end_unit(std::size_t unit);
  // Reads the unit's ranges and drops them, in place of reads and end_unit().
  Status discard_unit(std::size_t unit);
  // Makes every waiting and later read() fail with Code::cancelled; the reads in flight are waited for.
  void cancel();
  StagingStats stats() const;

 private:
  struct State;
  explicit StagedReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace swordfish::io
