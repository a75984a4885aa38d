// From ranges to pieces: what StagedReader reads at once.
#pragma once

#include <cstdint>
#include <vector>

#include "io/staging.h"

namespace swordfish::io {

inline constexpr std::uint64_t kPage = 4096;  // what O_DIRECT asks of memory, offsets and sizes

struct PiecePlan {
  struct Piece {
    std::size_t file = 0;
    std::uint64_t begin = 0, end = 0;  // whole pages, as read
    std::uint64_t needed = 0;          // bytes of them that units need
    unsigned users = 0;                // units with bytes in it
  };
  struct Span {  // needed bytes of one piece
    std::uint64_t begin = 0, end = 0;
    std::uint32_t piece = 0;
  };
  std::vector<Piece> pieces;                        // in the order of reading
  std::vector<std::vector<std::uint32_t>> of_unit;  // pieces of each unit
  std::vector<std::vector<Span>> spans;             // of each file, in order, disjoint
  std::uint64_t needed_bytes = 0;
};

// Bytes that two units need belong to the first. Ranges lie inside their files (offset + size does not overflow).
PiecePlan plan_pieces(std::size_t files, const std::vector<StagedUnit>& units, std::uint64_t piece_bytes,
                      std::uint64_t batch_bytes);

}  // namespace swordfish::io
