// prefetch_ahead(): the software prefetch of row-major code sources.
#pragma once

#include <cstddef>

namespace swordfish {

// Asks for `bytes` bytes from `next` on. Row-major code sources ask, while they read a row, for its next 64 columns: the packer
// comes back to a row after 255 others, more streams than a hardware prefetcher follows (figures in MEASURED.md, packing).
inline void prefetch_ahead(const std::byte* next, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes + 64; line += 64) __builtin_prefetch(next + line);
}

}  // namespace swordfish
