#pragma once

#include <utility>

#include "base/clock.h"

namespace tessera::server {

// A sum of the times in which somebody waited.
class WaitTime {
 public:
  // Whether it waits from `now` on. Times do not go backwards.
  void Note(bool waits, Nanos now) {
    if (waits == waits_) return;
    if (waits_) before_ += now - since_;
    waits_ = waits;
    since_ = now;
  }
  Nanos At(Nanos now) const { return before_ + (waits_ ? now - since_ : 0); }

 private:
  Nanos before_ = 0;
  Nanos since_ = 0;
  bool waits_ = false;
};

}  // namespace tessera::server
