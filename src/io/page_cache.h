// What of a file is in the page cache, and taking out again what a read has put there.
#pragma once

#include <cstdint>
#include <vector>

namespace swordfish::io {

struct ByteRange {
  std::uint64_t offset = 0, size = 0;
  std::uint64_t end() const { return offset + size; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The pages of [offset, offset+size) of an open file that are not in the page cache, as runs in order. Reads nothing and maps no
// more than 64 MiB at a time. Where the system does not say (a file of another user), a few single bytes are asked for without
// waiting; then the answer is all or nothing.
std::vector<ByteRange> missing_from_cache(int fd, std::uint64_t offset, std::uint64_t size);
// Drops those pages, if nobody else uses them.
void drop_from_cache(int fd, const std::vector<ByteRange>& pages);

}  // namespace swordfish::io
