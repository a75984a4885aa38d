// StagingRing: hands out a piece of memory in a circle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

namespace swordfish::io {

class StagingRing {
 public:
  explicit StagingRing(std::span<std::byte> memory) : begin_(memory.data()), size_(memory.size()) {}

  // `size` contiguous bytes, or nullopt while there is no room. The ticket gives them back.
  struct Slot {
    std::uint64_t ticket = 0;
    std::byte* data = nullptr;
  };
  std::optional<Slot> take(std::size_t size) {
    std::uint64_t at = write_;
    if (at % size_ + size > size_) at += size_ - at % size_;  // a slot does not go round the end
    const std::uint64_t oldest = slots_.empty() ? at : slots_.front().begin;
    if (size > size_ || at + size - oldest > size_) return std::nullopt;
    slots_.push_back({at, false});
    write_ = at + size;
    return Slot{first_ + slots_.size() - 1, begin_ + at % size_};
  }
  // Slots may come back in any order; memory is used again in the order in which it was taken.
  void give_back(std::uint64_t ticket) {
    slots_[ticket - first_].free = true;
    while (!slots_.empty() && slots_.front().free) {
      slots_.pop_front();
      ++first_;
    }
  }

 private:
  struct Taken {
    std::uint64_t begin = 0;
    bool free = false;
  };
  std::byte* begin_;
  std::size_t size_;
  std::uint64_t write_ = 0;  // counts all bytes ever taken
  std::uint64_t first_ = 0;  // ticket of the oldest slot
  std::deque<Taken> slots_;
};

}  // namespace swordfish::io
