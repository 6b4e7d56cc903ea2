#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace tessera::sched {

// Grace of a process: how long it must be without work before it counts as idle and lower classes are let go. It is the
// time that would have cost the least over the gaps seen lately.
//
// A gap that is shorter than the grace costs the others its length, as none of them runs in it. A longer one costs them
// the grace, and one cycle of thaw and freeze, which the process feels as well when it comes back. So an LLM server
// that synchronises for 3 ms after every token gets a grace above 3 ms, and one with pauses of seconds only gets the
// least. Gaps below the grace in force are never reported. They are assumed to go on as often as they came when they
// were seen; that assumption fades, and then a shorter grace is tried again.
//
// A histogram of fixed size; not thread-safe; times never go backwards.
class Grace {
 public:
  // `cycle_cost`: the time that one cycle takes from the others; most >= least > 0.
  Grace(Nanos least, Nanos most, Nanos cycle_cost);

  // A gap in the work, from the end of some to the begin of the next, has ended now. `in_force`: the grace that the
  // process had since the last call of this.
  void Learn(Nanos gap, Nanos in_force, Nanos now);

  // In [least, most]; changes in Learn only.
  Nanos value() const { return edges_.at(best_); }

 private:
  // The gaps up to an edge and above the one before it; the last bucket has those above all edges. Old gaps count less.
  struct Bucket {
    double count = 0;
    double time = 0;  // their sum
    double seen = 0;  // for so long such gaps would have been reported
  };
  static constexpr std::size_t kEdges = 24;

  std::size_t Best() const;

  const double cycle_cost_;
  std::array<Nanos, kEdges> edges_{};
  std::array<Bucket, kEdges + 1> buckets_{};
  std::size_t best_ = 0;
  Nanos learnt_ = 0;
};

}  // namespace tessera::sched
