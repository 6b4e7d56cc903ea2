#pragma once

#include <deque>

#include "base/clock.h"

namespace tessera::sched {

// Log of when one vGPU ran in the last `length` nanoseconds: spans, each with a constant density. Times never go
// backwards. The log is bounded: runs that begin within 1/64 of the window count as one span.
class UsageWindow {
 public:
  explicit UsageWindow(Nanos length) : length_(length) {}

  // `busy` of the nanoseconds in [from, to) were used, 0 <= busy <= to - from. `from` is not before the last `to`.
  void Add(Nanos from, Nanos to, double busy);

  // Nanoseconds used in the window that ends at `now`.
  double Used(Nanos now) const;

  // How long a run from `now` on may last until some window holds more than `ceiling`, 0 <= ceiling < length. Use
  // that slides out of the window meanwhile makes room.
  double Room(Nanos now, double ceiling) const;

  // The earliest start, not before `now`, of a run of length `run` for which there is room; 0 <= run <= ceiling.
  Nanos RoomAt(Nanos now, double run, double ceiling) const;

 private:
  struct Span {
    Nanos from, to;
    double busy;
    double Density() const { return busy / static_cast<double>(to - from); }
  };

  Nanos length_;
  std::deque<Span> spans_;
};

}  // namespace tessera::sched
