#include "plan/simulator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/size.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;
const GpuSpec kFree = {.time_by = TimeBy::kNobody};

TEST(Simulator, TheSameInputGivesTheSameFigures) {
  const auto run = [](std::uint64_t seed) {
    Simulator gpu({{}}, seed);
    EXPECT_TRUE(gpu.Add(1, {}, {.phases = {{.burst = 3 * kMs, .gap = Span::About(10 * kMs)}}}));
    EXPECT_TRUE(gpu.Add(2, {.limit_pct = 40}, {}));
    gpu.Run(10 * kSecond);
    return std::pair(gpu.BurstsOf(1).latencies, gpu.Of(2).executed);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Simulator, AProgramDrawsTheSameTimesWhoeverIsBesideIt) {
  const auto arrivals = [](bool beside) {
    Simulator gpu({kFree});
    EXPECT_TRUE(gpu.Add(1, {}, {.phases = {{.burst = kMs, .gap = Span::About(10 * kMs)}}}));
    EXPECT_TRUE(!beside || gpu.Add(2, {}, {.phases = {{.burst = kMs, .gap = Span::About(3 * kMs)}}}));
    gpu.Run(kSecond);
    return gpu.BurstsOf(1).done();
  };
  EXPECT_GT(arrivals(false), 50u);
  EXPECT_EQ(arrivals(false), arrivals(true));
}

TEST(Simulator, PhasesFollowEachOther) {
  Simulator gpu({kFree});
  const Phase first = {.burst = 10 * kMs, .bursts = 3, .gap = Span::Exactly(5 * kMs)};
  const Phase second = {.burst = 20 * kMs, .bursts = 1, .gap = Span::Exactly(kMs)};
  ASSERT_TRUE(gpu.Add(1, {}, {.phases = {first, second}, .repeats = 2, .start = Span::Exactly(100 * kMs)}));
  gpu.Run(kSecond);
  const BurstFigures& bursts = gpu.BurstsOf(1);
  EXPECT_EQ(bursts.latencies,
            (std::vector<Nanos>{10 * kMs, 10 * kMs, 10 * kMs, 20 * kMs, 10 * kMs, 10 * kMs, 10 * kMs, 20 * kMs}));
  EXPECT_EQ(bursts.finished_at, (100 + 2 * (3 * 15 + 21) - 1) * kMs);
  EXPECT_EQ(gpu.Of(1).executed, 100 * kMs);
}

TEST(Simulator, BurstsThatArriveTooFastQueue) {
  Simulator gpu({kFree});
  ASSERT_TRUE(gpu.Add(
      1, {},
      {.phases = {{.burst = 10 * kMs, .bursts = 4, .gap = Span::Exactly(4 * kMs), .open = true}}, .repeats = 1}));
  gpu.Run(kSecond);
  EXPECT_EQ(gpu.BurstsOf(1).latencies, (std::vector<Nanos>{10 * kMs, 16 * kMs, 22 * kMs, 28 * kMs}));
}

TEST(Simulator, AStepIsFollowedByAPause) {
  Simulator gpu({kFree});
  ASSERT_TRUE(gpu.Add(
      1, {},
      {.phases = {{.burst = 10 * kMs, .bursts = 1, .step = 4 * kMs, .pause = Span::Exactly(kMs)}}, .repeats = 1}));
  gpu.Run(kSecond);
  EXPECT_EQ(gpu.BurstsOf(1).latencies, (std::vector<Nanos>{12 * kMs})) << "4, 4 and 2 ms of work";
  EXPECT_EQ(gpu.Of(1).had_work, 10 * kMs);
  EXPECT_EQ(gpu.BurstsOf(1).in_burst, 12 * kMs);
}

TEST(Simulator, WaitsAndSharesAddUp) {
  for (const TimeBy by : {TimeBy::kTokens, TimeBy::kSteering}) {
    Simulator gpu({{.time_by = by}});
    ASSERT_TRUE(gpu.Add(1, {}, {}));
    ASSERT_TRUE(gpu.Add(2, {.weight = 300}, {}));
    gpu.StartMeasuring(kSecond);
    gpu.Run(10 * kSecond);
    Nanos executed = 0;
    for (const sched::VgpuId id : {1, 2}) {
      const PartFigures figures = gpu.Of(id);
      EXPECT_EQ(figures.executed + figures.waited_time, 10 * kSecond);
      EXPECT_EQ(figures.progressed, figures.executed);
      EXPECT_EQ(figures.windows.size(), 10u);
      EXPECT_NEAR(std::accumulate(figures.windows.begin(), figures.windows.end(), 0.0) / 10, figures.ExecutedPct(),
                  1e-6);
      EXPECT_GT(figures.longest_wait, 5 * kMs);
      executed += figures.executed;
    }
    const GpuFigures all = gpu.OfGpu();
    EXPECT_EQ(all.executed, executed);
    EXPECT_EQ(all.executed + all.switching, 10 * kSecond) << "nothing else is lost";
    EXPECT_NEAR(static_cast<double>(all.switching),
                static_cast<double>(all.switches) * (by == TimeBy::kTokens ? 300e3 : 140e3), 300e3);
  }
}

TEST(Simulator, WhatIsWrongIsRefusedAndChangesNothing) {
  Simulator gpus(std::vector<GpuSpec>(2));
  EXPECT_EQ(gpus.Add(1, {}, {}, {2}).error().code, ENODEV);
  EXPECT_EQ(gpus.Add(1, {}, {}, {}).error().code, EINVAL);
  EXPECT_EQ(gpus.Add(1, {.limit_pct = 0}, {}).error().code, ERANGE);
  EXPECT_EQ(gpus.Update(1, {}).error().code, ENOENT);
  ASSERT_TRUE(gpus.Add(1, {.request_pct = 60}, {}, {1}));
  EXPECT_EQ(gpus.Add(1, {}, {}).error().code, EEXIST);
  EXPECT_EQ(gpus.Add(2, {.request_pct = 60}, {}, {0, 1}).error().code, ENOSPC);
  EXPECT_TRUE(gpus.Add(2, {.request_pct = 60}, {}, {0})) << "it was taken off the first again";
  ASSERT_TRUE(gpus.Add(3, {.request_pct = 10}, {}, {0, 1}));
  EXPECT_EQ(gpus.Update(3, {.request_pct = 41}).error().code, ENOSPC);
  EXPECT_TRUE(gpus.Update(3, {.request_pct = 40}));
}

TEST(Simulator, AProgramThatIsRemovedLeavesTheGpuToTheOthers) {
  for (const TimeBy by : {TimeBy::kTokens, TimeBy::kSteering}) {
    Simulator gpu({{.memory = 100 * kGiB, .time_by = by}});
    ASSERT_TRUE(gpu.Add(1, {.priority = 1}, {.phases = {{.memory = 80 * kGiB}}}));
    ASSERT_TRUE(gpu.Add(2, {}, {.phases = {{.memory = 80 * kGiB}}}));
    gpu.Run(1234 * kMs);
    gpu.Remove(1);
    gpu.Remove(1);
    gpu.StartMeasuring();
    gpu.Run(kSecond);
    EXPECT_TRUE(gpu.violations().empty());
    EXPECT_NEAR(gpu.Of(2).ExecutedPct(), 100, 0.2);
  }
}

TEST(Simulator, TimeThatStandsStillIsSeen) {
  Simulator gpu({kFree});
  ASSERT_TRUE(gpu.Add(1, {}, {.phases = {{.burst = 0}}}));
  gpu.Run(kSecond);
  ASSERT_EQ(gpu.violations().size(), 1u);
  EXPECT_EQ(gpu.violations().front(), "time stands still at 0 ns");
}

TEST(BurstFigures, Quantiles) {
  EXPECT_EQ(BurstFigures{}.Quantile(0.5), 0);
  const BurstFigures figures = {.latencies = {50, 10, 40, 20, 30}};
  EXPECT_EQ(figures.Quantile(0), 10);
  EXPECT_EQ(figures.Quantile(0.2), 10);
  EXPECT_EQ(figures.Quantile(0.5), 30);
  EXPECT_EQ(figures.Quantile(0.99), 50);
  EXPECT_EQ(figures.Quantile(1), 50);
}

}  // namespace
}  // namespace tessera::plan
