// StagingArea: the staging ring's memory. Hands out the lowest part that is free and large enough.
//
// Not a circle: what has just been copied out is read into again while it is still in the processor's caches, a slot that comes
// back late keeps no other from being used, and what a load does not need is never touched: the first touch of memory is the
// slowest, most of all in a virtual machine whose host has to find it (MEASURED.md, "Loading").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "io/staging_plan.h"
#include "swordfish/buffer.h"

namespace swordfish::io {

class StagingArea {
 public:
  // `size` is a multiple of kPage; the memory begins with a page.
  explicit StagingArea(std::size_t size) : memory_(size + kPage) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % kPage;
    free_[memory_.data() + (kPage - past) % kPage] = size;
  }

  struct Slot {
    std::byte* data = nullptr;
    std::size_t size = 0;
  };
  // `size` contiguous bytes, one at least, or nullopt while there is no room.
  std::optional<Slot> take(std::size_t size) {
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& run) { return run.second >= size; });
    if (found == free_.end()) return std::nullopt;
    const auto [data, left] = *found;
    free_.erase(found);
    if (left > size) free_[data + size] = left - size;
    return Slot{data, size};
  }
  void give_back(const Slot& slot) {
    auto run = free_.emplace(slot.data, slot.size).first;
    const auto after = std::next(run);
    if (after != free_.end() && run->first + run->second == after->first) {
      run->second += after->second;
      free_.erase(after);
    }
    if (run == free_.begin()) return;
    const auto before = std::prev(run);
    if (before->first + before->second != run->first) return;
    before->second += run->second;
    free_.erase(run);
  }

 private:
  Buffer memory_;
  std::map<std::byte*, std::size_t> free_;  // runs that touch no other
};

}  // namespace swordfish::io
