// Clocks: which accesses of which threads are known to come before what a thread does now.
//
// Every warp counts its own time; an access carries its warp's time at that moment. Time moves on whenever a lane publishes what it
// did (a barrier, a release), so that accesses after it are not taken for published. A Clock says, for each warp w of the grid, the
// time up to which all accesses of all its lanes come before ("warp"), and for single threads how much further ("threads"): a lone
// lane that releases publishes only itself, not its siblings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace swordfish::emu {

using Time = std::uint32_t;

struct Clock {
  struct Thread {
    std::uint32_t id;  // 32 * warp + lane
    Time time;
  };
  std::vector<Time> warp;
  std::vector<Thread> threads;
  bool dependency = false;  // after griddepcontrol.wait
  int users = 0;            // lanes and objects that point here

  bool covers(std::uint32_t w, std::uint32_t lane, Time t) const {
    if (warp[w] >= t) return true;
    const std::uint32_t id = 32 * w + lane;
    return std::any_of(threads.begin(), threads.end(), [&](const Thread& e) { return e.id == id && e.time >= t; });
  }
  bool covers_mask(std::uint32_t w, std::uint32_t lanes, Time t) const {
    if (warp[w] >= t) return true;
    for (; lanes; lanes &= lanes - 1)
      if (!covers(w, static_cast<std::uint32_t>(__builtin_ctz(lanes)), t)) return false;
    return true;
  }
  void add_thread(std::uint32_t id, Time t) {
    for (Thread& e : threads) {
      if (e.id != id) continue;
      e.time = std::max(e.time, t);
      return;
    }
    threads.push_back({id, t});
  }
  void join(const Clock& other) {
    const std::size_t n = warp.size();
    const Time* from = other.warp.data();
    Time* to = warp.data();
    for (std::size_t i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
    for (const Thread& e : other.threads) add_thread(e.id, e.time);
    dependency |= other.dependency;
    drop_covered();
  }
  void drop_covered() {
    std::erase_if(threads, [this](const Thread& e) { return warp[e.id / 32] >= e.time; });
  }
};

// A shared Clock; the copy is made when one of several users changes it.
class ClockRef {
 public:
  ClockRef() = default;
  explicit ClockRef(std::size_t warps) : clock_(new Clock) {
    clock_->warp.assign(warps, 0);
    clock_->users = 1;
  }
  ClockRef(const ClockRef& o) : clock_(o.clock_) {
    if (clock_) ++clock_->users;
  }
  ClockRef(ClockRef&& o) noexcept : clock_(std::exchange(o.clock_, nullptr)) {}
  ClockRef& operator=(ClockRef o) noexcept {
    std::swap(clock_, o.clock_);
    return *this;
  }
  ~ClockRef() {
    if (clock_ && --clock_->users == 0) delete clock_;
  }
  explicit operator bool() const { return clock_ != nullptr; }
  const Clock& operator*() const { return *clock_; }
  const Clock* operator->() const { return clock_; }
  const Clock* get() const { return clock_; }
  // The clock to change in place, if no more than `mine` users (all of them the caller's) see it; else a copy for the caller.
  Clock& edit(int mine = 1) {
    if (clock_->users > mine) {
      Clock* copy = new Clock(*clock_);
      copy->users = 1;
      --clock_->users;
      clock_ = copy;
    }
    return *clock_;
  }
  void join(const ClockRef& o) {
    if (!o || o.clock_ == clock_) return;
    if (!clock_) {
      *this = o;
      return;
    }
    edit().join(*o);
  }

 private:
  Clock* clock_ = nullptr;
};

}  // namespace swordfish::emu
