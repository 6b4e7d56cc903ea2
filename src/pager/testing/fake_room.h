// Room for tests: a number of bytes, and threads that wait for more.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "pager/heap/heap.h"

namespace tessera::pager {

// Thread-safe.
class FakeRoom : public Room {
 public:
  explicit FakeRoom(std::uint64_t bytes = UINT64_MAX / 4) : free_(bytes) {}

  bool Take(std::uint64_t bytes) override {
    const MutexLock lock(mutex_);
    ++waiting_;
    changed_.NotifyAll();
    while (waits_ && free_ < bytes) changed_.Wait(mutex_);
    --waiting_;
    if (free_ < bytes) return false;
    free_ -= bytes;
    taken_ += bytes;
    return true;
  }

  void Give(std::uint64_t bytes) override {
    const MutexLock lock(mutex_);
    free_ += bytes;
    taken_ -= bytes;
    changed_.NotifyAll();
  }

  void Holds(const HeapFigures& figures) override {
    const MutexLock lock(mutex_);
    figures_ = figures;
  }

  bool Released() const override { return released_; }
  void SetReleased(bool released) { released_ = released; }

  // Bytes that the mover brought in (or out, if negative): it takes room that others gave.
  void Moved(std::int64_t bytes) {
    const MutexLock lock(mutex_);
    taken_ += static_cast<std::uint64_t>(bytes);
  }

  // Whether a thread that takes more than is left waits for it from now on.
  void SetWaits(bool waits) {
    const MutexLock lock(mutex_);
    waits_ = waits;
    changed_.NotifyAll();
  }
  void UntilSomebodyWaits() {
    const MutexLock lock(mutex_);
    while (waiting_ == 0) changed_.Wait(mutex_);
  }
  void Add(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    free_ += bytes;
    changed_.NotifyAll();
  }

  std::uint64_t Taken() const {
    const MutexLock lock(mutex_);
    return taken_;
  }
  // As it was told last.
  HeapFigures Told() const {
    const MutexLock lock(mutex_);
    return figures_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::uint64_t free_ TESSERA_GUARDED_BY(mutex_), taken_ TESSERA_GUARDED_BY(mutex_) = 0;
  HeapFigures figures_ TESSERA_GUARDED_BY(mutex_);
  bool waits_ TESSERA_GUARDED_BY(mutex_) = false;
  int waiting_ TESSERA_GUARDED_BY(mutex_) = 0;
  bool released_ = false;  // for one thread
};

}  // namespace tessera::pager
