// Room for tests: so many bytes, and a word with whoever waits for some.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "pager/heap.h"

namespace tessera::pager {

// Thread-safe.
class FakeRoom : public Room {
 public:
  explicit FakeRoom(std::uint64_t bytes = UINT64_MAX / 4) : free_(bytes) {}

  bool Take(std::uint64_t bytes) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    if (waits_) changed_.wait(lock, [&] { return free_ >= bytes || !waits_; });
    --waiting_;
    if (free_ < bytes) return false;
    free_ -= bytes;
    taken_ += bytes;
    return true;
  }

  void Give(std::uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    free_ += bytes;
    taken_ -= bytes;
    changed_.notify_all();
  }

  void Holds(const HeapFigures& figures) override {
    std::lock_guard lock(mutex_);
    figures_ = figures;
  }

  bool Released() const override { return released_; }
  void SetReleased(bool released) { released_ = released; }

  // What came in (went out, if negative) by the mover: it takes room that others gave.
  void Moved(std::int64_t bytes) {
    std::lock_guard lock(mutex_);
    taken_ += static_cast<std::uint64_t>(bytes);
  }

  // From now on whoever takes what is not there waits for it; or no longer.
  void SetWaits(bool waits) {
    std::lock_guard lock(mutex_);
    waits_ = waits;
    changed_.notify_all();
  }
  void UntilSomebodyWaits() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void Add(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    free_ += bytes;
    changed_.notify_all();
  }

  std::uint64_t Taken() const {
    std::lock_guard lock(mutex_);
    return taken_;
  }
  // As it was told last.
  HeapFigures Told() const {
    std::lock_guard lock(mutex_);
    return figures_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t free_, taken_ = 0;
  HeapFigures figures_;
  bool waits_ = false, released_ = false;
  int waiting_ = 0;
};

}  // namespace tessera::pager
