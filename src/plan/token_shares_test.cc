// Programs' parts of a GPU by tokens in the long run.
#include <gtest/gtest.h>

#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;
const GpuSpec kGpu = {.time_by = TimeBy::kTokens};

struct Tenant {
  sched::Shares shares;
  Program program;
};

// A simulation of a minute, after two seconds to settle.
class Minute : public OneGpu {
 public:
  Minute(std::initializer_list<Tenant> tenants) : Minute(std::vector<Tenant>(tenants)) {}
  explicit Minute(const std::vector<Tenant>& tenants) : OneGpu(kGpu) {
    for (const Tenant& tenant : tenants) Add(tenants_++, tenant.shares, tenant.program);
    Measure(2 * kSecond, 60 * kSecond);
    ExpectLawful();
  }
  double SumPct() const {
    double sum = 0;
    for (Id id = 0; id < tenants_; ++id) sum += ExecutedPct(id);
    return sum;
  }
  Nanos LongestWait(Id id) const { return Of(id).longest_wait; }

 private:
  Id tenants_ = 0;
};

// A busy program that leaves so much in flight when its gate closes, at most.
Program Queues(Nanos in_flight) { return {.in_flight = in_flight}; }

// Bursts, with gaps of half to one and a half times `gap`.
Program Light(Nanos burst, Nanos gap) { return Bursts(burst, Span::Between(gap / 2, gap / 2 + gap)); }

TEST(TokenShares, ABusyProgramAloneGetsItsLimit) {
  for (double limit : {5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 95.0}) {
    for (Nanos overrun : {Nanos{0}, 100 * kMicrosecond, 2 * kMs, 20 * kMs}) {
      const Minute gpu{{{.limit_pct = limit}, Queues(overrun)}};
      EXPECT_NEAR(gpu.ExecutedPct(0), limit, 0.2) << limit << " % with an overrun of " << overrun << " ns";
      EXPECT_LT(gpu.PerSecond(&GpuFigures::decisions), 60);
    }
  }
}

TEST(TokenShares, TinyLimitsKeepTheirShareInWholeSlices) {
  const Minute gpu{{{.limit_pct = 1}, {}}};
  EXPECT_NEAR(gpu.BilledPct(0), 1, 0.02);
  EXPECT_NEAR(gpu.PerSecond(&GpuFigures::decisions), 10, 1) << "a slice of 2 ms every 200 ms";
}

TEST(TokenShares, KernelsAsLongAsTheWindowUnderASmallLimit) {
  const Minute gpu{{{.limit_pct = 10}, Queues(100 * kMs)}, {{}, {}}};
  // Overruns of more than the drain timeout run beside the other's token, and each pays half of that.
  EXPECT_NEAR(gpu.BilledPct(0), 10, 0.5);
  const Minute alone{{{.limit_pct = 10}, Queues(100 * kMs)}};
  EXPECT_NEAR(alone.BilledPct(0), 10, 0.5);
}

TEST(TokenShares, RequestsOfThreeBusyPrograms) {
  for (Nanos overrun : {Nanos{0}, 100 * kMicrosecond, 2 * kMs, 20 * kMs}) {
    const Program busy = Queues(overrun);
    const Minute gpu{{{.request_pct = 50}, busy}, {{.request_pct = 30}, busy}, {{.request_pct = 20}, busy}};
    EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
    EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
    EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1);
    EXPECT_GE(gpu.SumPct(), 97);
    EXPECT_LE(gpu.PerSecond(&GpuFigures::switches), 31) << "one token each per window";
  }
}

TEST(TokenShares, OverrunsOfOneProgramDoNotCostTheOthers) {
  const Minute gpu({{{.request_pct = 50}, {}}, {{.request_pct = 30}, {}}, {{.request_pct = 20}, Queues(20 * kMs)}});
  EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
  EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1);
}

TEST(TokenShares, RequestsThatAreLimitsAsWell) {
  const Minute gpu{{{50, 50}, {}}, {{30, 30}, {}}, {{.limit_pct = 100}, {}}};
  EXPECT_NEAR(gpu.ExecutedPct(0), 50, 1);
  EXPECT_NEAR(gpu.ExecutedPct(1), 30, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 20, 1.5);
}

TEST(TokenShares, WeightsWithoutRequests) {
  for (Nanos overrun : {Nanos{0}, 2 * kMs, 20 * kMs}) {
    for (std::uint32_t weight : {1u, 2u, 7u, 100u}) {
      const Program busy = Queues(overrun);
      const Minute gpu{{{.weight = weight}, busy}, {{.weight = 1}, busy}};
      EXPECT_NEAR(gpu.BilledPct(0), 100.0 * weight / (weight + 1), 0.3) << weight << ":1, overrun " << overrun;
      EXPECT_NEAR(gpu.BilledPct(0) + gpu.BilledPct(1), 100, 0.01);
    }
  }
}

TEST(TokenShares, WeightsShareWhatRequestsLeave) {
  const Program busy = Queues(2 * kMs);
  const Minute gpu{{{.request_pct = 50}, busy}, {{.request_pct = 20}, busy}, {{}, busy}, {{.weight = 300}, busy}};
  EXPECT_NEAR(gpu.BilledPct(0), 50 + 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(1), 20 + 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(2), 5, 0.5);
  EXPECT_NEAR(gpu.BilledPct(3), 15, 0.5);
  EXPECT_GE(gpu.SumPct(), 97);
}

TEST(TokenShares, WhatALimitedProgramLeavesGoesToTheOthers) {
  const Program busy = Queues(2 * kMs);
  const Minute two{{{.limit_pct = 30}, busy}, {{}, busy}};
  EXPECT_NEAR(two.BilledPct(0), 30, 0.5);
  EXPECT_NEAR(two.BilledPct(1), 70, 0.5);
  const Minute three{{{.limit_pct = 30}, busy}, {{.weight = 50}, busy}, {{.weight = 50}, busy}};
  EXPECT_NEAR(three.BilledPct(0), 30, 0.5);
  EXPECT_NEAR(three.BilledPct(1), 35, 0.5);
}

TEST(TokenShares, WhatAnIdleVgpuWasPromisedIsNotLost) {
  const Minute gpu{{{.request_pct = 80}, Light(kMs, 1000 * kMs)}, {{.request_pct = 10}, {}}, {{}, {}}};
  EXPECT_NEAR(gpu.ExecutedPct(1), 55, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 45, 1);
}

TEST(TokenShares, ALightVgpuWithARequestWaitsForNoMoreThanOneToken) {
  const Program light = Light(kMs, 30 * kMs);
  const Minute beside_surplus{{{.request_pct = 10}, light}, {{}, {}}, {{}, {}}, {{}, {}}};
  EXPECT_LE(beside_surplus.LongestWait(0), 4.5 * kMs) << "cuts a token of the surplus";
  const Minute beside_guaranteed({{{.request_pct = 10}, light}, {{.request_pct = 60}, {}}, {{.request_pct = 30}, {}}});
  EXPECT_LE(beside_guaranteed.LongestWait(0), 51 * kMs);
}

TEST(TokenShares, NobodyStarves) {
  std::vector<Tenant> tenants = {{{.request_pct = 60}, {}}, {{.request_pct = 35}, {}}, {{.weight = 10000}, {}}};
  for (int i = 0; i < 5; ++i) tenants.push_back({{.weight = 100}, {}});
  const Minute gpu(tenants);
  for (sched::VgpuId id = 3; id < 8; ++id) {
    EXPECT_NEAR(gpu.BilledPct(id), 5.0 * 100 / 10700, 0.1);
    EXPECT_LT(gpu.LongestWait(id), 15 * kSecond);
  }
}

TEST(TokenShares, ThreeHundredVgpusShareFairly) {
  const Minute gpu(std::vector<Tenant>(300));
  for (sched::VgpuId id = 0; id < 300; ++id) EXPECT_NEAR(gpu.BilledPct(id), 100.0 / 300, 0.02);
  EXPECT_LT(gpu.PerSecond(&GpuFigures::switches), 251);
}

TEST(TokenShares, AnHourAloneIsForgotten) {
  OneGpu gpu(kGpu);
  gpu.Add(0, {.request_pct = 20});
  gpu.Add(1, {.request_pct = 20}, {.start = Span::Exactly(3600 * kSecond)});
  gpu.Run(3600 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(kSecond);
  EXPECT_NEAR(gpu.BilledPct(0), 50, 3);
  EXPECT_LE(gpu.Of(0).longest_wait, 60 * kMs);
  gpu.ExpectLawful();
}

TEST(TokenShares, ALiftedLimitBringsNoArrears) {
  OneGpu gpu(kGpu);
  gpu.Add(0, {.limit_pct = 10});
  gpu.Add(1, {});
  gpu.Run(60 * kSecond);
  gpu.Update(0, {});
  gpu.StartMeasuring();
  gpu.Run(kSecond);
  EXPECT_NEAR(gpu.BilledPct(0), 50, 6);
  gpu.ExpectLawful();
}

TEST(TokenShares, ResizedWhileItRuns) {
  OneGpu gpu(kGpu);
  gpu.Add(0, {.request_pct = 20, .limit_pct = 20}, Queues(2 * kMs));
  gpu.Add(1, {.request_pct = 50, .limit_pct = 50}, Queues(2 * kMs));
  gpu.Run(10 * kSecond);
  for (double pct : {40.0, 10.0, 50.0}) {
    gpu.Update(0, {.request_pct = pct, .limit_pct = pct});
    gpu.StartMeasuring();
    gpu.Run(10 * kSecond);
    EXPECT_NEAR(gpu.BilledPct(0), pct, 1);
    EXPECT_NEAR(gpu.BilledPct(1), 50, 1);
  }
  gpu.ExpectLawful();
}

}  // namespace
}  // namespace tessera::plan
