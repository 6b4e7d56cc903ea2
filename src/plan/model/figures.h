// Results of a simulation. All figures are of the time since Simulator::StartMeasuring.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace tessera::plan {

double Percent(Nanos part, Nanos whole);

// Of a program on one GPU.
struct PartFigures {
  Nanos measured = 0;       // the time that all others are parts of
  Nanos executed = 0;       // its work ran; of time that the GPU divides among several, its part
  Nanos progressed = 0;     // of that, the work went on: less than `executed` if it waited for its other GPUs
  Nanos had_work = 0;       // executed or waited
  Nanos waited_time = 0;    // it had work and its memory, and another ran
  Nanos waited_memory = 0;  // it had work, and its memory was not there
  Nanos longest_wait = 0;   // without a break, for either
  Nanos longest_memory_wait = 0;
  Nanos billed = 0;       // as the scheduler counts
  double window_pct = 0;  // of that, in the scheduler's window that ends now
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::int64_t refused = 0;     // allocations: out of memory
  std::vector<double> windows;  // percent executed of each whole window, in order

  double ExecutedPct() const { return Percent(executed, measured); }
  double BilledPct() const { return Percent(billed, measured); }
  double HadWorkPct() const { return Percent(had_work, measured); }
};

// Of a program's bursts, on all its GPUs.
struct BurstFigures {
  Nanos measured = 0;
  Nanos in_burst = 0;            // a burst was under way, pauses included
  std::vector<Nanos> latencies;  // from arrival to end, of those that ended
  Nanos finished_at = kNever;    // the program's last phase ended

  std::size_t done() const { return latencies.size(); }
  // The latency that this part of the bursts, in [0, 1], did not exceed; 0 if none ended.
  Nanos Quantile(double part) const;
  double InBurstPct() const { return Percent(in_burst, measured); }
};

// Of a GPU.
struct GpuFigures {
  Nanos measured = 0;
  Nanos executed = 0;   // some work ran
  Nanos switching = 0;  // lost between two programs
  Nanos audited = 0;    // a program had the GPU to itself, so that its speed alone was measured
  Nanos moving = 0;     // lost to memory: all that had work waited for theirs
  std::int64_t switches = 0;
  std::int64_t decisions = 0;   // tokens: grants and revokes; steering: orders
  std::int64_t graces = 0;      // of the orders, changes of a grace
  std::int64_t calls = 0;       // to the driver
  std::int64_t most_calls = 0;  // in any second
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  Nanos longest_turn = 0;  // by the residency policy
  Nanos longest_move = 0;  // from a decision until the program could run

  double ExecutedPct() const { return Percent(executed, measured); }
  double MovingPct() const { return Percent(moving, measured); }
  double PerSecond(std::int64_t count) const;
};

}  // namespace tessera::plan
