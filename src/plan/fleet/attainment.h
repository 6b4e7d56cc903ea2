#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

// A figure and where it lies with 95 % confidence.
struct Estimate {
  double value = 0, low = 0, high = 0;
};

// What a tenant got in a simulation.
struct Attainment {
  bool placed = false;
  double gpu_pct = 0;            // of its GPU's time
  std::uint64_t bursts = 0;      // that ended
  Nanos p50 = 0, p99 = 0;        // of their latencies; 0 if none ended
  Estimate speed;                // of its speed alone; of a record: of the work that was seen. 0: it asked for no speed
  Estimate in_time;              // part of its bursts within its latency goal; 1 without one
  double waited_memory_pct = 0;  // of the time, for its memory
  std::uint64_t bytes_moved = 0;  // in and out
  bool kept = true;               // its goal was kept, or it has none

  // "kept", "missed: …", "not placed": for people.
  std::string verdict;
  std::string why;  // why not even a GPU of its own keeps the goal that was missed; empty: one may, or it was kept
};

// The mean of these figures, each of an equally long part of the time, and its interval by Student's t.
Estimate EstimateMean(const std::vector<double>& parts);
// The part of `count` that are `good`, and its interval by Wilson's score.
Estimate EstimatePart(std::uint64_t good, std::uint64_t count);

}  // namespace tessera::plan
