// Effects that show only where time and memory are simulated together.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/size.h"
#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;

Program Uses(std::uint64_t bytes) { return {.phases = {{.memory = bytes}}}; }

class JointTest : public testing::TestWithParam<TimeBy> {
 protected:
  static GpuSpec Gpu40() { return {.memory = 40 * kGiB, .time_by = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(By, JointTest, testing::Values(TimeBy::kTokens, TimeBy::kSteering),
                         [](const auto& by) { return by.param == TimeBy::kTokens ? "Tokens" : "Steering"; });

TEST_P(JointTest, ALimitHoldsBesideProgramsThatTakeTurnsForMemory) {
  OneGpu gpu(Gpu40());
  gpu.Add(1, {}, Uses(30 * kGiB));
  gpu.Add(2, {}, Uses(30 * kGiB));
  gpu.Add(3, {.limit_pct = 30}, Uses(2 * kGiB));
  gpu.Measure(20 * kSecond, 300 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(3), 30, 1) << "moves of others neither take its time nor give it more";
  EXPECT_EQ(gpu.Of(3).waited_memory, 0);
  EXPECT_NEAR(gpu.ExecutedPct(1), gpu.ExecutedPct(2), 1.5);
  // 70 % of the time in which one of them has its memory there. Moves take a tenth, though the third one never moves.
  EXPECT_NEAR(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 70 * 0.9, 2);
  EXPECT_EQ(gpu.OfGpu().moving, 0) << "there is always one whose memory is there";
}

// The planner counts in units: less than one of an idle program, which another one waits for, would stay for ever.
TEST_P(JointTest, RoomIsMadeToTheLastUnit) {
  OneGpu gpu(Gpu40());
  gpu.Add(1, {}, {.phases = {{.memory = 10 * kGiB + kMiB, .burst = kMs, .gap = Span::Exactly(3600 * kSecond)}}});
  gpu.Run(kSecond);
  const Phase phase = {.burst = 10 * kMs, .bursts = 100, .gap = Span::Exactly(10 * kMs)};
  Program grows{.phases = {phase, phase}, .repeats = 1};
  grows.phases[0].memory = 40 * kGiB - kMiB;
  grows.phases[1].memory = 40 * kGiB;
  gpu.Add(2, {}, grows);
  gpu.Run(60 * kSecond);
  EXPECT_EQ(gpu.BurstsOf(2).done(), 200u);
  gpu.ExpectLawful();
}

TEST_P(JointTest, ALimitedProgramThatIsSwappedDoesNotMakeUpForItsMoves) {
  OneGpu gpu(Gpu40());
  gpu.Add(1, {.limit_pct = 30}, Uses(30 * kGiB));
  gpu.Add(2, {}, Uses(30 * kGiB));
  gpu.StartMeasuring(kSecond);
  gpu.Run(300 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(1), 0.45 * 30, 1.5) << "its limit, in its turns";
  EXPECT_LE(std::ranges::max(gpu.Of(1).windows), 30 + 7) << "a second may hold what was saved before";
  EXPECT_NEAR(gpu.ExecutedPct(2), 45, 1.5);
}

TEST_P(JointTest, ATurnLastsNineTimesAsLongAsItsMove) {
  for (const double rate : {20e9, 40e9, 80e9}) {
    GpuSpec spec = Gpu40();
    spec.moves.out_bytes_per_second = spec.moves.in_bytes_per_second = rate;
    OneGpu gpu(spec);
    gpu.Add(1, {}, Uses(30 * kGiB));
    gpu.Add(2, {}, Uses(30 * kGiB));
    gpu.Measure(100 * kSecond, 500 * kSecond);
    gpu.ExpectLawful();
    const GpuFigures figures = gpu.OfGpu();
    const double move = static_cast<double>(20 * kGiB) / rate * kSecond;
    EXPECT_NEAR(static_cast<double>(figures.longest_move) / move, 1.05, 0.06) << "out and in at once";
    EXPECT_NEAR(static_cast<double>(figures.longest_turn) / static_cast<double>(figures.longest_move), 9, 0.1);
    EXPECT_NEAR(figures.MovingPct(), 10, 0.5) << rate;
    EXPECT_NEAR(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 90, 0.6) << rate;
  }
}

// With moves so slow that turns would be longer than turn_max, moves take more of the time instead.
TEST_P(JointTest, TurnsEndAfterTheMostThatIsPermittedWhateverMovesCost) {
  GpuSpec spec = Gpu40();
  spec.moves.in_bytes_per_second = 4e9;
  spec.residency.turn_max = 10 * kSecond;
  OneGpu gpu(spec);
  gpu.Add(1, {}, Uses(30 * kGiB));
  gpu.Add(2, {}, Uses(30 * kGiB));
  gpu.Measure(100 * kSecond, 1000 * kSecond);
  gpu.ExpectLawful();
  const double move = static_cast<double>(20 * kGiB) / 4e9;
  EXPECT_EQ(gpu.OfGpu().longest_turn, 10 * kSecond);
  EXPECT_NEAR(gpu.OfGpu().MovingPct(), 100 * move / (move + 10), 1.5);
}

TEST_P(JointTest, FreedMemoryEndsTheTurns) {
  OneGpu gpu(Gpu40());
  // The first frees most of its memory after 20 s of work, which take 44 s in turns.
  gpu.Add(1, {}, {.phases = {{.memory = 30 * kGiB, .burst = 20 * kSecond, .bursts = 1}, {.memory = 5 * kGiB}}});
  gpu.Add(2, {}, Uses(30 * kGiB));
  gpu.StartMeasuring(kSecond);
  gpu.Run(40 * kSecond);
  EXPECT_GT(std::ranges::count(gpu.Of(2).windows, 0), 10) << "seconds without any time: turns";
  gpu.Run(20 * kSecond);  // it has freed it, and the policy has seen that all fits
  gpu.StartMeasuring(kSecond);
  gpu.Run(100 * kSecond);
  gpu.ExpectLawful();
  EXPECT_EQ(gpu.OfGpu().bytes_in + gpu.OfGpu().bytes_out, 0u);
  for (const OneGpu::Id id : {1, 2}) {
    EXPECT_NEAR(gpu.ExecutedPct(id), 50, 1.5);
    EXPECT_NEAR(std::ranges::min(gpu.Of(id).windows), 50, 5) << "each second";
  }
}

TEST_P(JointTest, AProgramThatEndsLeavesItsMemoryToTheOther) {
  OneGpu gpu(Gpu40());
  gpu.Add(1, {}, {.phases = {{.memory = 30 * kGiB, .burst = 10 * kSecond, .bursts = 1}}, .repeats = 1});
  gpu.Add(2, {}, Uses(30 * kGiB));
  gpu.Run(60 * kSecond);
  EXPECT_LT(gpu.BurstsOf(1).finished_at, 30 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(20 * kSecond);
  gpu.ExpectLawful();
  EXPECT_EQ(gpu.Of(2).waited_memory, 0);
  EXPECT_NEAR(gpu.ExecutedPct(2), 100, 0.1);
}

TEST_P(JointTest, ContextsTakeMemoryThatCannotBeMoved) {
  for (const std::uint64_t context : {std::uint64_t{0}, 512 * kMiB}) {
    GpuSpec spec = Gpu40();
    spec.moves.context = context;
    OneGpu gpu(spec);
    gpu.Add(1, {}, Uses(20 * kGiB));
    gpu.Add(2, {}, Uses(20 * kGiB));
    gpu.Measure(20 * kSecond, 100 * kSecond);
    gpu.ExpectLawful();
    EXPECT_EQ(gpu.OfGpu().bytes_in > 0, context > 0) << "one GiB too little";
  }
}

TEST_P(JointTest, AProgramWhoseMemoryIsPromisedTakesNoTurns) {
  OneGpu gpu(Gpu40());
  Program promised = Uses(10 * kGiB);
  promised.terms.request = 10 * kGiB;
  gpu.Add(1, {}, promised);
  gpu.Add(2, {}, Uses(25 * kGiB));
  gpu.Add(3, {}, Uses(25 * kGiB));
  gpu.Measure(20 * kSecond, 200 * kSecond);
  gpu.ExpectLawful();
  EXPECT_EQ(gpu.Of(1).waited_memory, 0);
  EXPECT_EQ(gpu.Of(1).bytes_out, 0u);
  EXPECT_GT(gpu.Of(2).bytes_in, 0u);
  EXPECT_NEAR(gpu.ExecutedPct(2), gpu.ExecutedPct(3), 2);
}

TEST_P(JointTest, AnAllocationThatFitsNowhereIsRefused) {
  OneGpu gpu(Gpu40());
  Program promised = Uses(30 * kGiB);
  promised.terms.request = 30 * kGiB;
  gpu.Add(1, {}, promised);
  Program pinned = Uses(20 * kGiB);
  pinned.terms.swap = 0;
  gpu.Add(2, {}, pinned);
  gpu.StartMeasuring();
  gpu.Run(10 * kSecond);
  gpu.ExpectLawful();
  EXPECT_EQ(gpu.Of(1).refused, 0);
  EXPECT_EQ(gpu.Of(2).refused, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 50, 1) << "it goes on with what it has";
}

// As many programs as host memory holds, at random times: contexts of half a GiB and up to 30 GiB each on 140, a
// tenth of them with a promise. Each gets what it asks for, and does its work.
TEST(SteeredJointTest, OfManyProgramsThatComeAndGoNobodyIsRefused) {
  GpuSpec spec = {.memory = 140 * kGiB};
  spec.moves.context = 512 * kMiB;
  spec.residency.turn_max = 2 * kSecond;
  OneGpu gpu(spec, /*seed=*/7);
  constexpr OneGpu::Id kPrograms = 86;
  for (OneGpu::Id id = 1; id <= kPrograms; ++id) {
    Program program = Uses((1 + id * 7 % 30) * kGiB);
    program.phases.front().burst = kSecond;
    program.phases.front().bursts = 1 + id % 3;
    program.phases.front().gap = Span::Between(0, 2 * kSecond);
    program.repeats = 1;
    program.start = Span::Between(0, 60 * kSecond);
    if (id % 10 == 0) program.terms.request = 5 * kGiB;
    if (id % 10 == 5) program.terms.limit = 8 * kGiB;
    gpu.Add(id, {.priority = 7 + id % 3}, program);
  }
  gpu.StartMeasuring();
  gpu.Run(1000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_GT(gpu.OfGpu().bytes_out, 100 * kGiB) << "they did not fit together";
  for (OneGpu::Id id = 1; id <= kPrograms; ++id) {
    EXPECT_EQ(gpu.Of(id).refused, 0) << id;
    EXPECT_EQ(gpu.BurstsOf(id).done(), 1 + id % 3) << id;
  }
}

// A request of 100 ms every second or so, with 25 GiB, beside two batch jobs that take turns already.
TEST(SteeredJointTest, AHigherClassWaitsForItsOwnMemoryAndNoLongerThanThat) {
  OneGpu gpu({.memory = 40 * kGiB});
  gpu.Add(1, {.priority = 10}, Uses(30 * kGiB));
  gpu.Add(2, {.priority = 10}, Uses(30 * kGiB));
  Program server = Uses(25 * kGiB);
  server.phases.front().burst = 100 * kMs;
  server.phases.front().gap = Span::About(kSecond);
  gpu.Add(3, {.priority = 2}, server);
  gpu.Measure(20 * kSecond, 600 * kSecond);
  gpu.ExpectLawful();
  const BurstFigures& bursts = gpu.BurstsOf(3);
  EXPECT_GT(bursts.done(), 300u);
  const Nanos move = 540 * kMs;  // 25 GiB at 50 GB/s, while what is in their place leaves
  EXPECT_LE(bursts.Quantile(0.5), 100 * kMs + move + 60 * kMs);
  EXPECT_LE(bursts.Quantile(1), 100 * kMs + 2 * move + 100 * kMs) << "the mover ends what it was ordered: the way out";
  EXPECT_GT(gpu.Of(3).bytes_in, 0u);
  EXPECT_GT(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 20);
  EXPECT_NEAR(gpu.ExecutedPct(1), gpu.ExecutedPct(2), 4);
}

TEST(TwoGpusTest, WhatHappensOnOneDoesNotMatterOnTheOther) {
  const GpuSpec spec = {.memory = 40 * kGiB};
  const auto shares = [&](bool busy_neighbour) {
    Simulator gpus({spec, spec});
    EXPECT_TRUE(gpus.Add(1, {.weight = 300}, Uses(10 * kGiB), {1}));
    EXPECT_TRUE(gpus.Add(2, {.limit_pct = 20}, Uses(10 * kGiB), {1}));
    for (sched::VgpuId id = 3; busy_neighbour && id < 6; ++id) EXPECT_TRUE(gpus.Add(id, {}, Uses(30 * kGiB), {0}));
    gpus.StartMeasuring();
    gpus.Run(30 * kSecond);
    EXPECT_TRUE(gpus.violations().empty());
    EXPECT_EQ(gpus.OfGpu(0).bytes_in > 0, busy_neighbour);
    return std::pair(gpus.Of(1).executed, gpus.Of(2).executed);
  };
  const auto alone = shares(false);
  EXPECT_NEAR(Percent(alone.second, 30 * kSecond), 20, 0.7);
  EXPECT_EQ(alone, shares(true));
}

TEST(TwoGpusTest, AJobOnBothGoesOnAsFastAsOnItsBusierGpu) {
  const GpuSpec steered = {};
  Simulator gpus({steered, steered});
  EXPECT_TRUE(gpus.Add(1, {}, {}, {0, 1}));
  EXPECT_TRUE(gpus.Add(2, {}, {}, {1}));
  gpus.Run(kSecond);
  gpus.StartMeasuring();
  gpus.Run(10 * kSecond);
  EXPECT_TRUE(gpus.violations().empty());
  EXPECT_NEAR(gpus.Of(1, 0).ExecutedPct(), 100, 0.1) << "it spins where it need not wait";
  EXPECT_NEAR(gpus.Of(1, 1).ExecutedPct(), 50, 1);
  EXPECT_EQ(gpus.Of(1, 0).progressed, gpus.Of(1, 1).progressed);
  EXPECT_NEAR(Percent(gpus.Of(1, 0).progressed, 10 * kSecond), 50, 1);
}

TEST(TwoGpusTest, TurnsOfJobsOnBothStayInStep) {
  const GpuSpec spec = {.memory = 40 * kGiB, .time_by = TimeBy::kNobody};
  const auto progress = [&](bool with_a_third) {
    Simulator gpus({spec, spec});
    EXPECT_TRUE(gpus.Add(1, {}, Uses(30 * kGiB), {0, 1}));
    EXPECT_TRUE(gpus.Add(2, {}, Uses(30 * kGiB), {1, 0}));
    EXPECT_TRUE(!with_a_third || gpus.Add(3, {}, Uses(5 * kGiB), {1}));
    gpus.Run(50 * kSecond);
    gpus.StartMeasuring();
    gpus.Run(500 * kSecond);
    EXPECT_TRUE(gpus.violations().empty()) << gpus.violations().front();
    EXPECT_NEAR(Percent(gpus.Of(1).progressed, 500 * kSecond), Percent(gpus.Of(2).progressed, 500 * kSecond), 5);
    return Percent(gpus.Of(1).progressed + gpus.Of(2).progressed, 500 * kSecond);
  };
  EXPECT_NEAR(progress(false), 90, 2);
  EXPECT_GT(progress(true), 80) << "also beside a small program on one of them";
}

// Each has its memory on one GPU first: alone, each GPU would give the turn to another one.
TEST(TwoGpusTest, JobsThatBeganOnDifferentGpusDoNotWaitForEachOther) {
  const GpuSpec spec = {.memory = 140 * kGiB, .time_by = TimeBy::kNobody};
  Simulator gpus({spec, spec});
  const Program begins_at_once = Uses(100 * kGiB);
  EXPECT_TRUE(
      gpus.Add(3, {}, {.phases = {{.memory = 100 * kGiB, .burst = 3 * kSecond, .bursts = 1}}, .repeats = 1}, {0}));
  EXPECT_TRUE(gpus.Add(1, {}, begins_at_once, {1, 0}));
  gpus.Run(kSecond);
  EXPECT_TRUE(gpus.Add(2, {}, begins_at_once, {0, 1}));
  gpus.Run(100 * kSecond);
  gpus.StartMeasuring();
  gpus.Run(600 * kSecond);
  EXPECT_TRUE(gpus.violations().empty()) << gpus.violations().front();
  EXPECT_GT(Percent(gpus.Of(1).progressed + gpus.Of(2).progressed, 600 * kSecond), 80);
  EXPECT_NEAR(Percent(gpus.Of(1).progressed, 600 * kSecond), Percent(gpus.Of(2).progressed, 600 * kSecond), 5);
}

}  // namespace
}  // namespace tessera::plan
