#pragma once

#include "base/clock.h"

namespace tessera::mover {

// Who may call the driver. Its calls that make, map and hand on memory take one lock for all processes, and processes
// that wait for it in turn wake one another up for each call: with three of them a batch took three times as long as
// with one after the other (docs/hardware-log.md). So one program at a time is asked to do something, and the mover
// does its own part meanwhile only where nobody was asked.
//
// A program that does not answer soon, because it is stopped, say, holds up nobody else.
class Baton {
 public:
  bool Free(Nanos now) const { return holder_ == nullptr || now >= until_; }
  // When it is free at the latest; kNever if it is.
  Nanos FreeAt() const { return holder_ == nullptr ? kNever : until_; }
  void Take(const void* holder, Nanos now) {
    holder_ = holder;
    until_ = now + kPatience;
  }
  void Return(const void* holder) {
    if (holder_ == holder) holder_ = nullptr;
  }

 private:
  static constexpr Nanos kPatience = 20 * kMillisecond;  // a batch's worth of calls takes 1 to 3 ms
  const void* holder_ = nullptr;
  Nanos until_ = 0;
};

}  // namespace tessera::mover
