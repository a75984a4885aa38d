// StagedReader: every byte right in any order of calls, in a small ring, with each engine; injected faults; the page cache as
// found.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "io/descriptor.h"
#include "io/page_cache.h"
#include "io/staging.h"
#include "io/staging_plan.h"
#include "temp_folder.h"

namespace swordfish::io {
namespace {

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

struct Disk {
  TempFolder folder;
  std::vector<std::string> bytes;
  std::vector<std::shared_ptr<const File>> files;

  void add(std::size_t size, std::uint64_t seed) {
    bytes.push_back(random_bytes(size, seed));
    const std::string path = folder.write(fmt::format("f{}", files.size()), bytes.back());
    const int fd = ::open(path.c_str(), O_RDONLY);
    ::fsync(fd);  // clean pages can be dropped
    ::close(fd);
    files.push_back(*File::open(path));
  }
  void make_cold() {
    for (const auto& file : files) ::posix_fadvise(Descriptor(file->path()).fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
  std::uint64_t resident(std::size_t file) const {
    std::uint64_t missing = 0;
    const Descriptor descriptor(files[file]->path());
    for (const ByteRange& run : missing_from_cache(descriptor.fd(), 0, files[file]->size())) missing += run.size;
    const std::uint64_t whole = (files[file]->size() + 4095) / 4096 * 4096;
    return whole - missing;
  }
};

std::vector<StagedUnit> random_units(const Disk& disk, std::mt19937_64& random, std::size_t count, std::uint64_t most) {
  std::vector<StagedUnit> units(count);
  for (StagedUnit& unit : units) {
    for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
      const std::size_t f = random() % disk.files.size();
      const std::uint64_t offset = random() % disk.bytes[f].size();
      unit.ranges.push_back({f, offset, std::min<std::uint64_t>(random() % most, disk.bytes[f].size() - offset)});
    }
  }
  return units;
}

Status read_range(StagedReader& reader, const Disk& disk, const StagedRange& r) {
  std::vector<char> out(r.size, 'x');
  const Status status = reader.read(r.file, r.offset, r.size, out.data());
  if (status.ok()) {
    EXPECT_EQ(std::memcmp(out.data(), disk.bytes[r.file].data() + r.offset, r.size), 0) << r.offset << " " << r.size;
  }
  return status;
}

struct Engine {
  bool direct, uring, warm;
};
class EveryEngine : public testing::TestWithParam<Engine> {};
INSTANTIATE_TEST_SUITE_P(Staging, EveryEngine,
                         testing::Values(Engine{true, true, false}, Engine{true, false, false}, Engine{false, true, false},
                                         Engine{false, false, false}, Engine{true, true, true}));

TEST_P(EveryEngine, ServesEveryByteToSeveralThreads) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Disk disk;
  disk.add(3'000'017, seed + 1);
  disk.add(777, seed + 2);
  disk.add(1 << 20, seed + 3);
  if (!GetParam().warm) disk.make_cold();
  const std::vector<StagedUnit> units = random_units(disk, random, 60, 300'000);
  StagingOptions options;
  options.direct = GetParam().direct;
  options.uring = GetParam().uring;
  options.ring_bytes = 256 << 10;  // much less than the units together
  options.piece_bytes = 16 << 10;
  options.depth = 4;
  auto started = StagedReader::start(disk.files, units, {}, options);
  ASSERT_TRUE(started.ok()) << started.status().message();
  StagedReader& reader = **started;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 mine(seed + 10 + static_cast<std::uint64_t>(t));
      while (true) {
        const std::size_t u = next.fetch_add(1);
        if (u >= units.size()) break;
        std::vector<StagedRange> ranges = units[u].ranges;
        std::shuffle(ranges.begin(), ranges.end(), mine);
        if (mine() % 8 == 0) ranges.pop_back();                                    // something is left
        if (mine() % 8 == 0 && !ranges.empty()) ranges.push_back(ranges.front());  // something is read again
        for (const StagedRange& r : ranges) {
          const Status status = read_range(reader, disk, r);
          EXPECT_TRUE(status.ok()) << status.message();
        }
        reader.end_unit(u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StagingStats stats = reader.stats();
  EXPECT_GT(stats.needed_bytes, 0u);
  if (GetParam().warm) {
    EXPECT_EQ(stats.disk_bytes, 0u) << "what is cached is read there";
  }
}

TEST(Staging, AUnitLargerThanTheRingReadBackwards) {
  Disk disk;
  disk.add(4 << 20, 5);
  disk.make_cold();
  std::vector<StagedUnit> units(1);
  for (std::uint64_t at = 0; at < disk.bytes[0].size(); at += 1 << 18) units[0].ranges.push_back({0, at, 1 << 18});
  StagingOptions options;
  options.ring_bytes = 128 << 10;
  options.piece_bytes = 16 << 10;
  auto reader = StagedReader::start(disk.files, units, {}, options);
  ASSERT_TRUE(reader.ok());
  for (auto r = units[0].ranges.rbegin(); r != units[0].ranges.rend(); ++r) ASSERT_TRUE(read_range(**reader, disk, *r).ok());
  (*reader)->end_unit(0);
  const StagingStats stats = (*reader)->stats();
  EXPECT_EQ(stats.unplanned_bytes, 0u);
  if (stats.cache_bytes > 0) GTEST_SKIP() << "the temporary folder's file system keeps its files in memory";
  EXPECT_GT(stats.past_ring_bytes, 0u) << "what is asked for first lies behind a full ring";
  EXPECT_EQ(stats.past_ring_bytes + stats.disk_bytes, disk.bytes[0].size()) << "nothing is read twice";
  EXPECT_EQ(disk.resident(0), 0u) << "what was read past the ring stays in the page cache";
}

TEST(Staging, SkippedRangesAreZerosAndUnplannedOnesAreRead) {
  Disk disk;
  disk.add(100'000, 6);
  disk.make_cold();
  const bool was_cold = disk.resident(0) == 0;
  const std::vector<StagedUnit> units{{{{0, 10'000, 20'000}}}};
  auto reader = StagedReader::start(disk.files, units, {{0, 30'000, 5'000}, {0, 8'000, 2'000}}, {});
  ASSERT_TRUE(reader.ok());
  std::vector<char> out(40'000, 'x');
  ASSERT_TRUE((*reader)->read(0, 5'000, 40'000, out.data()).ok());
  (*reader)->end_unit(0);
  std::string expected = disk.bytes[0].substr(5'000, 40'000);
  std::fill_n(expected.begin() + 3'000, 2'000, '\0');
  std::fill_n(expected.begin() + 25'000, 5'000, '\0');
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0);
  EXPECT_EQ((*reader)->stats().unplanned_bytes, 3'000u + 10'000u);
  if (was_cold) {
    EXPECT_EQ(disk.resident(0), 0u);
  }
}

TEST(Staging, LeavesThePageCacheAsFound) {
  for (const bool direct : {true, false}) {
    Disk disk;
    disk.add(4 << 20, 7);
    disk.make_cold();
    if (disk.resident(0) != 0) GTEST_SKIP() << "the temporary folder's file system keeps its files in memory";
    char byte = 0;
    const Descriptor descriptor(disk.files[0]->path());
    ASSERT_EQ(::posix_fadvise(descriptor.fd(), 0, 0, POSIX_FADV_RANDOM), 0);
    ASSERT_EQ(::pread(descriptor.fd(), &byte, 1, 1 << 20), 1);
    const std::uint64_t before = disk.resident(0);
    ASSERT_GT(before, 0u);
    std::vector<StagedUnit> units(8);
    for (std::uint64_t u = 0; u < 8; ++u) units[u].ranges = {{0, u << 19, 1 << 19}};
    StagingOptions options;
    options.direct = direct;
    options.uring = direct;
    auto reader = StagedReader::start(disk.files, units, {}, options);
    ASSERT_TRUE(reader.ok());
    for (std::size_t u = 0; u < 8; ++u) {
      ASSERT_TRUE(read_range(**reader, disk, units[u].ranges[0]).ok());
      (*reader)->end_unit(u);
    }
    EXPECT_EQ((*reader)->stats().disk_bytes, disk.bytes[0].size());
    reader->reset();
    EXPECT_EQ(disk.resident(0), before) << "direct " << direct;
  }
}

// An engine between the reader and the real one, which spoils results.
class Faulty final : public ReadEngine {
 public:
  using Spoil = std::function<std::int64_t(const ReadRequest&, std::int64_t result)>;
  Faulty(std::unique_ptr<ReadEngine> base, Spoil spoil) : base_(std::move(base)), spoil_(std::move(spoil)) {}
  std::string_view name() const override { return "faulty"; }
  Status submit(const ReadRequest& request) override {
    requests_.resize(std::max<std::size_t>(requests_.size(), request.tag + 1));
    requests_[request.tag] = request;
    return base_->submit(request);
  }
  Status wait(std::vector<ReadCompletion>& done) override {
    const Status status = base_->wait(done);
    for (ReadCompletion& c : done) c.result = spoil_(requests_[c.tag], c.result);
    return status;
  }

 private:
  std::unique_ptr<ReadEngine> base_;
  Spoil spoil_;
  std::vector<ReadRequest> requests_;
};

Status read_with_faults(const Faulty::Spoil& spoil, bool direct = true) {
  Disk disk;
  disk.add(1 << 20, 8);
  disk.make_cold();
  if (disk.resident(0) != 0) return Status(Code::unavailable, "memory file system");
  std::vector<StagedUnit> units(4);
  for (std::uint64_t u = 0; u < 4; ++u) units[u].ranges = {{0, (u << 18) + 100, (1 << 18) - 200}};
  StagingOptions options;
  options.direct = direct;
  options.piece_bytes = 64 << 10;
  options.describe = [](std::size_t, std::uint64_t offset) { return fmt::format("tensor 't{}'", offset >> 18); };
  options.wrap_engine = [&](std::unique_ptr<ReadEngine> base) { return std::make_unique<Faulty>(std::move(base), spoil); };
  auto reader = StagedReader::start(disk.files, units, {}, options);
  if (!reader.ok()) return reader.status();
  for (std::size_t u = 0; u < 4; ++u) {
    const Status status = read_range(**reader, disk, units[u].ranges[0]);
    (*reader)->end_unit(u);
    if (!status.ok()) return status;
  }
  return {};
}
#define SKIP_IN_MEMORY(status) \
  if ((status).code() == Code::unavailable) GTEST_SKIP() << "the temporary folder's file system keeps its files in memory"

TEST(StagingFaults, AnErrorNamesFileTensorAndOffset) {
  const Status status = read_with_faults(
      [](const ReadRequest& r, std::int64_t result) { return r.offset >= 300'000 && r.offset < 400'000 ? -EIO : result; });
  SKIP_IN_MEMORY(status);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_NE(status.message().find("f0: tensor 't1'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("Input/output error"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("offset 3"), std::string::npos) << status.message();
}

TEST(StagingFaults, InterruptedAndShortReadsGoOn) {
  for (const bool direct : {true, false}) {
    std::mt19937_64 random(9);
    int spoiled = 0;
    const Status status = read_with_faults(
        [&](const ReadRequest&, std::int64_t result) -> std::int64_t {
          if (result <= 1) return result;
          switch (random() % 4) {
            case 0: ++spoiled; return -EINTR;
            case 1: ++spoiled; return -EAGAIN;
            case 2: ++spoiled; return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(result));
            default: return result;
          }
        },
        direct);
    SKIP_IN_MEMORY(status);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_GT(spoiled, 0);
  }
}

TEST(StagingFaults, EndlessInterruptionIsAnError) {
  const Status status = read_with_faults([](const ReadRequest&, std::int64_t) { return -EINTR; });
  SKIP_IN_MEMORY(status);
  EXPECT_EQ(status.code(), Code::io);
}

TEST(StagingFaults, WhereDirectReadsAreRefusedTheFileIsReadAsAnyOther) {
  int refused = 0;
  const Status status = read_with_faults([&](const ReadRequest& r, std::int64_t result) -> std::int64_t {
    if ((::fcntl(r.fd, F_GETFL) & O_DIRECT) == 0) return result;
    ++refused;
    return -EINVAL;
  });
  SKIP_IN_MEMORY(status);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(refused, 0);
}

// Truncates a file before the first read of it is started.
class Truncating final : public ReadEngine {
 public:
  Truncating(std::unique_ptr<ReadEngine> base, std::string path) : base_(std::move(base)), path_(std::move(path)) {}
  std::string_view name() const override { return "truncating"; }
  Status submit(const ReadRequest& request) override {
    EXPECT_EQ(::truncate(path_.c_str(), 300'000), 0);
    return base_->submit(request);
  }
  Status wait(std::vector<ReadCompletion>& done) override { return base_->wait(done); }

 private:
  std::unique_ptr<ReadEngine> base_;
  std::string path_;
};

TEST(StagingFaults, AFileThatShrinksWhileItIsRead) {
  for (const bool direct : {true, false}) {
    Disk disk;
    disk.add(1 << 20, 10);
    disk.make_cold();
    const std::vector<StagedUnit> units{{{{0, 0, 1 << 20}}}};
    StagingOptions options;
    options.direct = direct;
    options.from_cache = false;
    options.wrap_engine = [&](std::unique_ptr<ReadEngine> base) {
      return std::make_unique<Truncating>(std::move(base), disk.files[0]->path());
    };
    auto reader = StagedReader::start(disk.files, units, {}, options);
    ASSERT_TRUE(reader.ok());
    std::vector<char> out(1 << 20);
    const Status status = (*reader)->read(0, 0, out.size(), out.data());
    (*reader)->end_unit(0);
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_NE(status.message().find("truncated"), std::string::npos) << status.message();
  }
}

TEST(StagingFaults, AFileWhoseNameMeansAnotherByNowIsReadAsItWasOpened) {
  Disk disk;
  disk.add(10'000, 12);
  disk.make_cold();
  ASSERT_EQ(::rename(disk.folder.write("other", random_bytes(10'000, 13)).c_str(), disk.files[0]->path().c_str()), 0);
  const std::vector<StagedUnit> units{{{{0, 100, 9'000}}}};
  StagingOptions options;
  options.from_cache = false;
  auto reader = StagedReader::start(disk.files, units, {}, options);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(read_range(**reader, disk, units[0].ranges[0]).ok());
}

TEST(Staging, CancelWakesEverybody) {
  Disk disk;
  disk.add(1 << 20, 11);
  disk.make_cold();
  const std::vector<StagedUnit> units{{{{0, 0, 1 << 20}}}};
  std::atomic<bool> hold{true};
  StagingOptions options;
  options.from_cache = false;
  options.wrap_engine = [&](std::unique_ptr<ReadEngine> base) {
    return std::make_unique<Faulty>(std::move(base), [&](const ReadRequest&, std::int64_t result) {
      while (hold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return result;
    });
  };
  auto reader = StagedReader::start(disk.files, units, {}, options);
  ASSERT_TRUE(reader.ok());
  Status status;
  std::thread waiting([&] {
    std::vector<char> out(1 << 20);
    status = (*reader)->read(0, 0, out.size(), out.data());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  (*reader)->cancel();
  waiting.join();
  EXPECT_EQ(status.code(), Code::cancelled);
  hold = false;
}

// Every byte that a unit needs is in exactly one piece, pieces are whole pages, and none is larger than asked.
TEST(StagingPlan, PiecesHoldEveryNeededByteOnce) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 10; ++round) {
    std::vector<StagedUnit> units(1 + random() % 20);
    std::vector<std::vector<bool>> needed(2, std::vector<bool>(200'000, false));
    for (StagedUnit& unit : units) {
      for (std::size_t i = 0; i < random() % 5; ++i) {
        const StagedRange r{random() % 2, random() % 150'000, random() % 50'000};
        unit.ranges.push_back(r);
        for (std::uint64_t b = 0; b < r.size; ++b) needed[r.file][r.offset + b] = true;
      }
    }
    const PiecePlan plan = plan_pieces(2, units, 16'384, 40'000);
    std::uint64_t sum = 0, in_pieces = 0;
    for (std::size_t f = 0; f < 2; ++f) {
      std::uint64_t at = 0;
      for (const PiecePlan::Span& span : plan.spans[f]) {
        ASSERT_GE(span.begin, at) << "spans overlap";
        const PiecePlan::Piece& piece = plan.pieces[span.piece];
        ASSERT_EQ(piece.file, f);
        ASSERT_GE(span.begin, piece.begin);
        ASSERT_LE(span.end, piece.end);
        for (std::uint64_t b = span.begin; b < span.end; ++b) ASSERT_TRUE(needed[f][b]);
        sum += span.end - span.begin;
        at = span.end;
      }
      sum -= static_cast<std::uint64_t>(std::count(needed[f].begin(), needed[f].end(), true));
    }
    EXPECT_EQ(sum, 0u);
    for (const PiecePlan::Piece& piece : plan.pieces) {
      ASSERT_EQ(piece.begin % 4096, 0u);
      ASSERT_EQ(piece.end % 4096, 0u);
      ASSERT_LE(piece.end - piece.begin, 16'384u);
      ASSERT_GT(piece.users, 0u);
      in_pieces += piece.needed;
    }
    EXPECT_EQ(in_pieces, plan.needed_bytes);
  }
}

// As in files that keep the scales of all layers behind their codes: unit 0 can be packed when a part of the batch has come.
TEST(StagingPlan, FewBytesFromElsewhereComeBeforeMany) {
  std::vector<StagedUnit> units;
  for (std::uint64_t u = 0; u < 4; ++u) units.push_back({{{0, u * 65'536, 65'536}, {0, 1'000'000 + u * 8'192, 8'192}}});
  const PiecePlan plan = plan_pieces(1, units, 65'536, 1'000'000);
  ASSERT_EQ(plan.pieces.size(), 5u);
  EXPECT_EQ(plan.pieces[0].begin, 1'000'000u / 4096 * 4096);
  EXPECT_EQ(plan.of_unit[0], (std::vector<std::uint32_t>{0, 1}));
  for (std::size_t p = 1; p < 5; ++p) EXPECT_EQ(plan.pieces[p].begin, (p - 1) * 65'536);
}

}  // namespace
}  // namespace swordfish::io
