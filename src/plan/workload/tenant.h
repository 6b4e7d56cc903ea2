// The workload of a plan: programs, what each wants of a GPU, and when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plan/workload/speed_curve.h"
#include "sched/goals/goal.h"

namespace tessera::plan {

// When a tenant's bursts arrive.
struct Arrivals {
  enum class Kind {
    kClosed,   // the next one arrives when the last one has ended
    kPoisson,  // independent of each other and of what runs, `per_second` on average
    kEven,     // the same, all gaps alike
    kTimes,    // at `times`
  };
  Kind kind = Kind::kClosed;
  double per_second = 0;     // above 0 for kPoisson and kEven
  std::vector<Nanos> times;  // since the workload's begin, ascending
  // GPU time of each of `times`, alone on all SMs, above 0. Empty: all have Tenant::service, which is their mean else.
  std::vector<Nanos> services;
};

// What a tenant was seen to use from one moment until that of its next sample.
struct UseSample {
  Nanos at = 0;              // since the workload's begin, ascending
  float duty = 0;            // part of the time in which its work ran, [0, 1]. Says nothing of SMs
  std::uint64_t memory = 0;  // bytes that it had allocated
};

// A program in a vGPU of its own: how it works, or how it was seen to work.
struct Tenant {
  std::string name;          // unique in its workload
  std::string group;         // of tenants that trust each other: only these may share a space. Empty: it trusts nobody
  std::uint64_t memory = 0;  // bytes that it allocates when it begins, or the most of its samples
  std::uint64_t memory_request = 0;  // bytes that are promised to it; the rest may be in host memory. At most `memory`
  std::uint32_t gpus = 1;            // it runs on so many at once
  double request_pct = 0;            // of a GPU's time, as sched::Shares has them
  double limit_pct = 100;
  std::uint32_t weight = 100;
  std::uint32_t priority = 8;
  std::optional<sched::Goal> goal;

  // How it works. Its speed alone on all SMs is 1 / service bursts a second.
  Nanos service = 0;        // GPU time of a burst, alone on all SMs; 0: only the samples say what it does
  double bursts_alone = 0;  // a second, alone in a closed loop; 0: as many as `service` permits. Less where the host is
                            // what holds it up
  Arrivals arrivals;
  SpeedCurve speed;  // by the part of the SMs that it may use
  // Its speed while others of its space run, against that alone on as many SMs, (0, 1]; 0: as GpuModel::space_speed.
  double beside = 0;
  double bandwidth = 0;  // part of the GPU's memory bandwidth that it uses at full speed, [0, 1]

  // How it was seen to work; empty where `service` says how it works. A tenant begins with its first sample, and ends
  // an interval after its last.
  std::vector<UseSample> samples;
  std::string ran_on;  // GPU on which it was seen last, as the record names it; empty: not known
};

struct Workload {
  std::string title;  // of reports: the file's name, or what the file says
  Nanos length =
      0;  // from the begin to the end of what was seen; 0: it is not a record, and any length can be simulated
  Nanos interval = 0;  // between two samples; 0: there are no samples
  std::vector<Tenant> tenants;
  // What was assumed or noticed where it was read, for its user: a sentence each, no full stop.
  std::vector<std::string> notes;
};

}  // namespace tessera::plan
