// What programs get of a GPU whose memory they take turns to use, in virtual time.
#include <gtest/gtest.h>

#include "base/size.h"
#include "sched/residency_simulator.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kCapacity = 40 * kGiB;
const std::vector<Phase> kBusy30 = {{.bytes = 30 * kGiB}};

void ExpectLawful(const ResidencySimulator& gpu) { EXPECT_TRUE(gpu.violations().empty()) << gpu.violations().front(); }

TEST(ResidencyShares, NothingMovesOnceWhatFitsIsLoaded) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, {{.bytes = 20 * kGiB}});
  gpu.Add(2, {{.bytes = 20 * kGiB, .work = kSecond, .rest = kSecond}});
  gpu.Run(10 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(100 * kSecond);
  ExpectLawful(gpu);
  EXPECT_EQ(gpu.BytesLoaded(), 0u);
  EXPECT_EQ(gpu.RanPct(1), 100);
}

TEST(ResidencyShares, TwoThatDoNotFitHalveTheTimeAndMoveForATenthOfIt) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, kBusy30);
  gpu.Add(2, kBusy30);
  gpu.Run(20 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(1000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_NEAR(gpu.RanPct(1), 45, 1);
  EXPECT_NEAR(gpu.RanPct(2), 45, 1);
  EXPECT_LE(gpu.StalledPct(), 10.1);
  // Only what does not fit beside the other moves.
  EXPECT_LE(static_cast<double>(gpu.LongestMove()), 1.1 * 20 * kGiB / 50e9 * kSecond);
}

TEST(ResidencyShares, TimeIsInProportionToWeight) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, kBusy30, 100);
  gpu.Add(2, kBusy30, 200);
  gpu.Add(3, kBusy30, 600);
  gpu.Run(100 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(3000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_NEAR(gpu.RanPct(2) / gpu.RanPct(1), 2, 0.1);
  EXPECT_NEAR(gpu.RanPct(3) / gpu.RanPct(1), 6, 0.3);
}

TEST(ResidencyShares, AHigherClassWaitsForItsOwnMemoryOnly) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, kBusy30, 100, 8);
  gpu.Add(2, kBusy30, 100, 8);
  gpu.Add(3, {{.bytes = 25 * kGiB, .work = kSecond, .rest = 5 * kSecond}}, 100, 2);
  gpu.Run(2000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_LE(gpu.LongestWait(3), 700 * kMillisecond) << "25 GiB at 50 GB/s, and those that leave first";
  EXPECT_GE(gpu.RanPct(1), 25);
  EXPECT_NEAR(gpu.RanPct(1), gpu.RanPct(2), 3);
}

TEST(ResidencyShares, ShortGapsCauseNoMoves) {
  ResidencySimulator gpu(kCapacity);
  for (VgpuId id : {1, 2}) {
    gpu.Add(id, {{.bytes = 30 * kGiB, .work = 50 * kMillisecond, .rest = 50 * kMillisecond}});
  }
  gpu.Run(20 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(1000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_NEAR(gpu.RanPct(1), 22.5, 1) << "half of its half";
  EXPECT_NEAR(gpu.RanPct(2), 22.5, 1);
}

TEST(ResidencyShares, OneThatRunsAlongLeavesTheOthersTheirHalves) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, kBusy30);
  gpu.Add(2, kBusy30);
  gpu.Add(3, {{.bytes = 5 * kGiB}});
  gpu.Run(20 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(1000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_GE(gpu.RanPct(3), 99);
  EXPECT_NEAR(gpu.RanPct(1), gpu.RanPct(2), 2);
  EXPECT_GE(gpu.RanPct(1), 44);
}

TEST(ResidencyShares, OneLargerThanTheGpuGetsItsTurns) {
  ResidencySimulator gpu(kCapacity);
  gpu.Add(1, {{.bytes = 60 * kGiB}});
  gpu.Add(2, kBusy30);
  gpu.Run(20 * kSecond);
  gpu.StartMeasuring();
  gpu.Run(1000 * kSecond);
  ExpectLawful(gpu);
  EXPECT_NEAR(gpu.RanPct(1), 45, 2);
  EXPECT_NEAR(gpu.RanPct(2), 45, 2);
}

}  // namespace
}  // namespace tessera::sched
