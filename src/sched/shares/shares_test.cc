// What programs get of a GPU in the long run, in virtual time.
#include <gtest/gtest.h>

#include "sched/simulator.h"

namespace tessera::sched {
namespace {

constexpr Nanos kMs = kMillisecond;
constexpr Machine kGpu = {.hand_over = 300 * kMicrosecond, .idle_grace = 200 * kMicrosecond, .lateness = kMs / 10};

// A simulation of a minute, after two seconds to settle.
class Scenario : public Simulator {
 public:
  struct Tenant {
    Shares shares;
    Workload workload;
  };
  Scenario(std::initializer_list<Tenant> tenants) : Scenario(std::vector<Tenant>(tenants)) {}
  explicit Scenario(const std::vector<Tenant>& tenants) : Simulator(kGpu) {
    for (const Tenant& tenant : tenants) Add(tenants_++, tenant.shares, tenant.workload);
    Run(2 * kSecond);
    StartMeasuring();
    Run(60 * kSecond);
  }
  ~Scenario() {
    for (const std::string& violation : violations()) ADD_FAILURE() << violation;
  }
  double SumPct() const {
    double sum = 0;
    for (VgpuId id = 0; id < tenants_; ++id) sum += ExecutedPct(id);
    return sum;
  }

 private:
  VgpuId tenants_ = 0;
};

TEST(Shares, ABusyProgramAloneGetsItsLimit) {
  for (double limit : {5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 95.0}) {
    for (Nanos overrun : {Nanos{0}, 100 * kMicrosecond, 2 * kMs, 20 * kMs}) {
      const Scenario gpu{{{.limit_pct = limit}, {.overrun = overrun}}};
      EXPECT_NEAR(gpu.ExecutedPct(0), limit, 0.2) << limit << " % with an overrun of " << overrun << " ns";
      EXPECT_LT(gpu.DecisionsPerSecond(), 60);
    }
  }
}

TEST(Shares, TinyLimitsKeepTheirShareInWholeSlices) {
  const Scenario gpu{{{.limit_pct = 1}, {}}};
  EXPECT_NEAR(gpu.BilledPct(0), 1, 0.02);
  EXPECT_NEAR(gpu.DecisionsPerSecond(), 10, 1) << "a slice of 2 ms every 200 ms";
}

TEST(Shares, KernelsAsLongAsTheWindowUnderASmallLimit) {
  const Scenario gpu{{{.limit_pct = 10}, {.overrun = 100 * kMs}}, {{}, {}}};
  // Overruns of more than the drain timeout run beside the other's token, and each pays half of that.
  EXPECT_NEAR(gpu.BilledPct(0), 10, 0.5);
  const Scenario alone{{{.limit_pct = 10}, {.overrun = 100 * kMs}}};
  EXPECT_NEAR(alone.BilledPct(0), 10, 0.5);
}

TEST(Shares, RequestsOfThreeBusyPrograms) {
  for (Nanos overrun : {Nanos{0}, 100 * kMicrosecond, 2 * kMs, 20 * kMs}) {
    const Workload busy = {.overrun = overrun};
    const Scenario gpu{{{.request_pct = 50}, busy}, {{.request_pct = 30}, busy}, {{.request_pct = 20}, busy}};
    EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
    EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
    EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1);
    EXPECT_GE(gpu.SumPct(), 97);
    EXPECT_LE(gpu.SwitchesPerSecond(), 31) << "one token each per window";
  }
}

TEST(Shares, OverrunsOfOneProgramDoNotCostTheOthers) {
  const Scenario gpu(
      {{{.request_pct = 50}, {}}, {{.request_pct = 30}, {}}, {{.request_pct = 20}, {.overrun = 20 * kMs}}});
  EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
  EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1);
}

TEST(Shares, RequestsThatAreLimitsAsWell) {
  const Scenario gpu{{{50, 50}, {}}, {{30, 30}, {}}, {{.limit_pct = 100}, {}}};
  EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
  EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1.5);
}

TEST(Shares, WeightsWithoutRequests) {
  for (Nanos overrun : {Nanos{0}, 2 * kMs, 20 * kMs}) {
    for (std::uint32_t weight : {1u, 2u, 7u, 100u}) {
      const Workload busy = {.overrun = overrun};
      const Scenario gpu{{{.weight = weight}, busy}, {{.weight = 1}, busy}};
      EXPECT_NEAR(gpu.BilledPct(0), 100.0 * weight / (weight + 1), 0.3) << weight << ":1, overrun " << overrun;
      EXPECT_NEAR(gpu.BilledPct(0) + gpu.BilledPct(1), 100, 0.01);
    }
  }
}

TEST(Shares, WeightsShareWhatRequestsLeave) {
  const Workload busy = {.overrun = 2 * kMs};
  const Scenario gpu{{{.request_pct = 50}, busy}, {{.request_pct = 20}, busy}, {{}, busy}, {{.weight = 300}, busy}};
  EXPECT_NEAR(gpu.BilledPct(0), 50 + 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(1), 20 + 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(2), 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(3), 15, 0.5);
  EXPECT_GE(gpu.SumPct(), 97);
}

TEST(Shares, WhatALimitedProgramLeavesGoesToTheOthers) {
  const Workload busy = {.overrun = 2 * kMs};
  const Scenario two{{{.limit_pct = 30}, busy}, {{}, busy}};
  EXPECT_NEAR(two.BilledPct(0), 30, 0.5);
  EXPECT_NEAR(two.BilledPct(1), 70, 0.5);
  const Scenario three{{{.limit_pct = 30}, busy}, {{.weight = 50}, busy}, {{.weight = 50}, busy}};
  EXPECT_NEAR(three.BilledPct(0), 30, 0.5);
  EXPECT_NEAR(three.BilledPct(1), 35, 0.5);
}

TEST(Shares, WhatAnIdleVgpuWasPromisedIsNotLost) {
  const Scenario gpu{{{.request_pct = 80}, {.burst = kMs, .think = 1000 * kMs}}, {{.request_pct = 10}, {}}, {{}, {}}};
  EXPECT_NEAR(gpu.ExecutedPct(1), 55, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 45, 1);
}

TEST(Shares, ALightVgpuWithARequestWaitsForNoMoreThanOneToken) {
  const Workload light = {.burst = kMs, .think = 30 * kMs};
  const Scenario beside_surplus{{{.request_pct = 10}, light}, {{}, {}}, {{}, {}}, {{}, {}}};
  EXPECT_LE(beside_surplus.LongestWait(0), 4.5 * kMs) << "cuts a token of the surplus";
  const Scenario beside_guaranteed(
      {{{.request_pct = 10}, light}, {{.request_pct = 60}, {}}, {{.request_pct = 30}, {}}});
  EXPECT_LE(beside_guaranteed.LongestWait(0), 51 * kMs);
}

TEST(Shares, NobodyStarves) {
  std::vector<Scenario::Tenant> tenants = {
      {{.request_pct = 60}, {}}, {{.request_pct = 35}, {}}, {{.weight = 10000}, {}}};
  for (int i = 0; i < 5; ++i) tenants.push_back({{.weight = 100}, {}});
  const Scenario gpu(tenants);
  for (VgpuId id = 3; id < 8; ++id) {
    EXPECT_NEAR(gpu.BilledPct(id), 5.0 * 100 / 10700, 0.1);
    EXPECT_LT(gpu.LongestWait(id), 15 * kSecond);
  }
}

TEST(Shares, ThreeHundredVgpusShareFairly) {
  const Scenario gpu(std::vector<Scenario::Tenant>(300));
  for (VgpuId id = 0; id < 300; ++id) EXPECT_NEAR(gpu.BilledPct(id), 100.0 / 300, 0.02);
  EXPECT_LT(gpu.SwitchesPerSecond(), 251);
}

TEST(Shares, AnHourAloneIsForgotten) {
  Simulator gpu(kGpu);
  gpu.Add(0, {.request_pct = 20});
  gpu.Add(1, {.request_pct = 20}, {.start = 3600 * kSecond});
  gpu.Run(3600 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(kSecond);
  EXPECT_NEAR(gpu.BilledPct(0), 50, 3);
  EXPECT_LE(gpu.LongestWait(0), 60 * kMs);
  EXPECT_EQ(gpu.violations().size(), 0u);
}

TEST(Shares, ALiftedLimitBringsNoArrears) {
  Simulator gpu(kGpu);
  gpu.Add(0, {.limit_pct = 10});
  gpu.Add(1, {});
  gpu.Run(60 * kSecond);
  gpu.Update(0, {});
  gpu.StartMeasuring();
  gpu.Run(kSecond);
  EXPECT_NEAR(gpu.BilledPct(0), 50, 6);
  EXPECT_EQ(gpu.violations().size(), 0u);
}

TEST(Shares, ResizedWhileItRuns) {
  Simulator gpu(kGpu);
  gpu.Add(0, {.request_pct = 20, .limit_pct = 20}, {.overrun = 2 * kMs});
  gpu.Add(1, {.request_pct = 50, .limit_pct = 50}, {.overrun = 2 * kMs});
  gpu.Run(10 * kSecond);
  for (double pct : {40.0, 10.0, 50.0}) {
    gpu.Update(0, {.request_pct = pct, .limit_pct = pct});
    gpu.StartMeasuring();
    gpu.Run(10 * kSecond);
    EXPECT_NEAR(gpu.BilledPct(0), pct, 1);
    EXPECT_NEAR(gpu.BilledPct(1), 50, 1);
  }
  EXPECT_EQ(gpu.violations().size(), 0u);
}

}  // namespace
}  // namespace tessera::sched
