// Cost of the lower classes to a higher one that gives way, and the time that it leaves them.
#include <gtest/gtest.h>

#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

constexpr Nanos kMs = kMillisecond;
constexpr Nanos kUs = kMicrosecond;

class GivingWayShares : public testing::Test {
 protected:
  static constexpr OneGpu::Id kHigh = 0;
  static constexpr OneGpu::Id kLow = 1;

  // A kernel of 0.5 ms every 3.5 ms.
  static Program Interactive() { return Bursts(kMs / 2, Span::Between(2500 * kUs, 3500 * kUs)); }
  // Keeps the GPU busy by kernels of this length.
  static Program Batch(Nanos kernel) { return {.phases = {{.burst = 100 * kernel, .step = kernel}}}; }

  static void Check(const OneGpu& gpu) {
    gpu.ExpectLawful();
    EXPECT_LE(gpu.OfGpu().most_calls, 100);
  }
  static double Us(const OneGpu& gpu, double quantile) {
    return static_cast<double>(gpu.BurstsOf(kHigh).Quantile(quantile)) / kUs;
  }
  static std::vector<sched::Shares> Pair(Nanos patience) {
    return {{.priority = 2, .patience = patience}, {.priority = 10}};
  }
  static OneGpu Run(const std::vector<sched::Shares>& shares, const std::vector<Program>& programs) {
    OneGpu gpu({});
    for (OneGpu::Id id = 0; id < shares.size(); ++id) gpu.Add(id, shares[id], programs[id]);
    gpu.Measure(2 * kSecond, 30 * kSecond);
    Check(gpu);
    return gpu;
  }
};

TEST_F(GivingWayShares, AStrictClassThatPausesForAMomentOnlyLeavesNothing) {
  const auto gpu = Run(Pair(0), {Interactive(), Batch(kMs)});
  EXPECT_LE(Us(gpu, 0.99), 510);
  EXPECT_LT(gpu.ExecutedPct(kLow), 1);
}

// A kernel of 0.5 ms beside a lower class: the longest that it takes, and the part of the GPU that the class gets.
struct Patience {
  Nanos us;
  double p99_us;
  double batch_pct;
};

class ShortKernel : public GivingWayShares, public testing::WithParamInterface<Patience> {};

TEST_P(ShortKernel, WaitsForASliceAndASwitch) {
  const auto& [us, p99, batch] = GetParam();
  for (const Nanos kernel : {kMs, 20 * kMs}) {
    const auto gpu = Run(Pair(us * kUs), {Interactive(), Batch(kernel)});
    EXPECT_LE(Us(gpu, 0.99), p99);
    EXPECT_GE(gpu.ExecutedPct(kLow), batch);
    EXPECT_EQ(gpu.PerSecond(&GpuFigures::calls), 0) << "the gaps need no calls";
  }
}

// Alone it takes 500 us. A switch takes 140 us.
INSTANTIATE_TEST_SUITE_P(Patiences, ShortKernel,
                         testing::Values(Patience{50, 700, 78}, Patience{100, 750, 78}, Patience{200, 850, 78.5},
                                         Patience{500, 1150, 79}, Patience{1000, 1650, 80}));

TEST_F(GivingWayShares, LowerProgramsTakeTurns) {
  const auto gpu =
      Run({{.priority = 2, .patience = 100 * kUs}, {}, {.weight = 300}}, {Interactive(), Batch(kMs), Batch(20 * kMs)});
  EXPECT_LE(Us(gpu, 0.99), 750) << "as beside one";
  EXPECT_GE(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 78);
  EXPECT_NEAR(gpu.ExecutedPct(2) / gpu.ExecutedPct(1), 3, 0.1);
  EXPECT_LE(gpu.PerSecond(&GpuFigures::calls), 10);
}

TEST_F(GivingWayShares, LowerProgramsThatPauseCauseFewCalls) {
  const Program pauses = Bursts(10 * kMs, Span::Between(kMs, 20 * kMs));
  const auto gpu = Run({{.priority = 2, .patience = 100 * kUs}, {}, {}, {.priority = 12}},
                       {Interactive(), pauses, pauses, Batch(kMs)});
  EXPECT_LE(Us(gpu, 0.99), 980) << "two run while a freeze is on its way";
  EXPECT_GE(gpu.ExecutedPct(1) + gpu.ExecutedPct(2) + gpu.ExecutedPct(3), 60);
}

// After a second without work, the lower ones have long slices again. The first kernel is not to wait for one.
TEST_F(GivingWayShares, AKernelNowAndThenFreezesTheLowerOnes) {
  const auto gpu = Run({{.priority = 2, .patience = 100 * kUs}, {}, {}},
                       {Bursts(kMs / 2, Span::Between(1500 * kMs, 2500 * kMs)), Batch(kMs), Batch(kMs)});
  EXPECT_LE(Us(gpu, 1), 1500);
  EXPECT_GE(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 96);
}

TEST_F(GivingWayShares, ABusyHigherClassIsHardlyCut) {
  const auto gpu = Run(Pair(100 * kUs), {Program{}, Batch(kMs)});
  EXPECT_GE(gpu.ExecutedPct(kHigh), 99.5);
  EXPECT_GT(gpu.ExecutedPct(kLow), 0);
}

// Requests of 31 tokens of 3 ms, with pauses of 3 ms: a strict class leaves them unused.
TEST_F(GivingWayShares, ABatchJobWorksInThePausesOfAnLlmServer) {
  const Program server = {.phases = {{.burst = 93 * kMs,
                                      .gap = Span::About(static_cast<Nanos>(186 * kMs / 0.85)),
                                      .open = true,
                                      .step = 3 * kMs,
                                      .pause = Span::Between(1500 * kUs, 4500 * kUs)}}};
  const auto strict = Run(Pair(0), {server, Batch(20 * kMs)});
  const auto soft = Run(Pair(100 * kUs), {server, Batch(20 * kMs)});
  const auto speed = [](const OneGpu& gpu) { return gpu.ExecutedPct(kHigh) / gpu.Of(kHigh).HadWorkPct(); };
  const auto used = [](const OneGpu& gpu) { return gpu.ExecutedPct(kLow) / (100 - gpu.ExecutedPct(kHigh)); };
  EXPECT_GE(speed(strict), 0.99);
  EXPECT_GE(speed(soft), 0.93) << "each token of 3 ms waits for half a slice and a switch";
  EXPECT_LE(used(strict), 0.5);
  EXPECT_GE(used(soft), 0.9);
}

}  // namespace
}  // namespace tessera::plan
