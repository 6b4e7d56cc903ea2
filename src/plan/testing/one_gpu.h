#pragma once

#include <gtest/gtest.h>

#include "plan/simulator.h"

namespace tessera::plan {

// A simulation of one GPU, with short names for what tests ask of it.
class OneGpu : public Simulator {
 public:
  using Id = sched::VgpuId;

  explicit OneGpu(const GpuSpec& spec, std::uint64_t seed = 1) : Simulator({spec}, seed) {}

  void Add(Id id, const sched::Shares& shares, Program program = {}, const std::optional<sched::Goal>& goal = {}) {
    const auto added = Simulator::Add(id, shares, std::move(program), {0}, goal);
    EXPECT_TRUE(added) << added.error().message;
  }
  void Update(Id id, const sched::Shares& shares) { EXPECT_TRUE(Simulator::Update(id, shares)); }
  // Runs for `settle`, then for `duration`, which is measured.
  void Measure(Nanos settle, Nanos duration) {
    Run(settle);
    StartMeasuring();
    Run(duration);
  }

  double ExecutedPct(Id id) const { return Of(id).ExecutedPct(); }
  double BilledPct(Id id) const { return Of(id).BilledPct(); }
  double PerSecond(std::int64_t GpuFigures::* count) const { return OfGpu().PerSecond(OfGpu().*count); }

  void ExpectLawful() const {
    for (const std::string& violation : violations()) ADD_FAILURE() << violation;
  }
};

// A program that works in bursts.
inline Program Bursts(Nanos burst, Span gap) { return {.phases = {{.burst = burst, .gap = gap}}}; }

}  // namespace tessera::plan
