#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace tessera::sched {

// When a program that does not fit has some of its memory exchanged: what is used, and out, for what is not. It stands
// still meanwhile, so that an exchange is bounded, and exchanges take a tenth of its time at most, whatever the program
// says is hot. Pure arithmetic; one object per program.
class Exchange {
 public:
  // Of one exchange, each way: about 0.3 s at 55 GB/s.
  static constexpr std::uint64_t kMostBytes = 8ull << 30;
  // After each one, in multiples of what it took.
  static constexpr int kRest = 9;
  // And at least so long: the program looks that often what is hot, and what it said before is old news.
  static constexpr Nanos kShortestRest = 500 * kMillisecond;

  // How much to exchange now; `hot` is what the program would have exchanged.
  std::uint64_t Bytes(std::uint64_t hot, Nanos now) const { return now < next_ ? 0 : std::min(hot, kMostBytes); }

  // One has ended at `now`, for which memory was moved for `took`.
  void Done(Nanos took, Nanos now) { next_ = now + std::max(kShortestRest, kRest * took); }

 private:
  Nanos next_ = 0;
};

}  // namespace tessera::sched
