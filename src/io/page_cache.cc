// cachestat where the system has it, mincore on a window of the file, or preadv2 with RWF_NOWAIT.
#include "io/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace swordfish::io {
namespace {

const auto kSystemPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uint64_t kWindow = std::uint64_t{64} << 20;

// mincore tells the truth about a file only to its owner, root, and those who may write it; to others everything is resident.
bool mincore_speaks(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return false;
  const uid_t user = ::geteuid();
  return user == 0 || info.st_uid == user;
}

// How many of these pages are in the page cache, by a system call that neither maps nor looks at single pages (Linux 6.5; later
// ones answer only to those whom mincore answers). nullopt: not to be known so.
std::optional<std::uint64_t> count_cached(int fd, std::uint64_t offset, std::uint64_t size) {
#ifdef SYS_cachestat
  constexpr long kCachestat = SYS_cachestat;
#else
  constexpr long kCachestat = 451;  // on every architecture
#endif
  struct {
    std::uint64_t offset, size;
  } range{offset, size};
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } found{};
  if (::syscall(kCachestat, fd, &range, &found, 0) != 0) return std::nullopt;
  return found.cached;
}

// Whether a byte of the page is there.
bool probe(int fd, std::uint64_t offset) {
  char byte = 0;
  const iovec to{&byte, 1};
  return ::preadv2(fd, &to, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

void add_page(std::vector<ByteRange>& runs, std::uint64_t page) {
  if (!runs.empty() && runs.back().end() == page) {
    runs.back().size += kSystemPage;
  } else {
    runs.push_back({page, kSystemPage});
  }
}

}  // namespace

std::vector<ByteRange> missing_from_cache(int fd, std::uint64_t offset, std::uint64_t size) {
  std::vector<ByteRange> runs;
  if (size == 0) return runs;
  const std::uint64_t begin = offset / kSystemPage * kSystemPage,
                      end = (offset + size + kSystemPage - 1) / kSystemPage * kSystemPage;
  if (!mincore_speaks(fd)) {
    const std::uint64_t last = offset + size - 1;
    for (const std::uint64_t at : {offset, offset + size / 3, offset + size / 3 * 2, last}) {
      if (!probe(fd, std::min(at, last))) return {{begin, end - begin}};
    }
    return runs;
  }
  if (const auto cached = count_cached(fd, begin, end - begin)) {
    if (*cached == 0) return {{begin, end - begin}};
    if (*cached == (end - begin) / kSystemPage) return runs;
  }
  std::vector<unsigned char> pages;
  for (std::uint64_t at = begin; at < end; at += kWindow) {
    const std::uint64_t length = std::min(kWindow, end - at);
    void* window = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(at));
    bool known = window != MAP_FAILED;
    pages.resize(length / kSystemPage);
    if (known) {
      known = ::mincore(window, length, pages.data()) == 0;
      ::munmap(window, length);
    }
    for (std::uint64_t i = 0; i < pages.size(); ++i)
      if (!known || (pages[i] & 1) == 0) add_page(runs, at + i * kSystemPage);
  }
  return runs;
}

void drop_from_cache(int fd, const std::vector<ByteRange>& pages) {
  for (const ByteRange& run : pages) {
    // A failure leaves more in the cache than there was; nothing else is wrong.
    (void)::posix_fadvise(fd, static_cast<off_t>(run.offset), static_cast<off_t>(run.size), POSIX_FADV_DONTNEED);
  }
}

}  // namespace swordfish::io
