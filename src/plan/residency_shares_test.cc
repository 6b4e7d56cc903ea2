// Programs' parts of a GPU whose memory they use in turns.
#include <gtest/gtest.h>

#include "base/size.h"
#include "plan/testing/one_gpu.h"

namespace tessera::plan {
namespace {

// These tests count who may run, not who executes: all that run do so at full speed.
const GpuSpec kGpu = {.memory = 40 * kGiB, .time_by = TimeBy::kNobody};

Program Uses(std::uint64_t bytes, Nanos burst = kNever, Nanos gap = 0) {
  return {.phases = {{.memory = bytes, .burst = burst, .gap = Span::Exactly(gap)}}};
}
const Program kBusy30 = Uses(30 * kGiB);

TEST(ResidencyShares, NothingMovesOnceWhatFitsIsLoaded) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, Uses(20 * kGiB));
  gpu.Add(2, {}, Uses(20 * kGiB, kSecond, kSecond));
  gpu.Measure(10 * kSecond, 100 * kSecond);
  gpu.ExpectLawful();
  EXPECT_EQ(gpu.OfGpu().bytes_in, 0u);
  EXPECT_EQ(gpu.ExecutedPct(1), 100);
}

TEST(ResidencyShares, TwoThatDoNotFitHalveTheTimeAndMoveForATenthOfIt) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, kBusy30);
  gpu.Add(2, {}, kBusy30);
  gpu.Measure(20 * kSecond, 1000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(1), 45, 1);
  EXPECT_NEAR(gpu.ExecutedPct(2), 45, 1);
  EXPECT_LE(gpu.OfGpu().MovingPct(), 10.1);
  // Only what does not fit beside the other moves.
  EXPECT_LE(static_cast<double>(gpu.OfGpu().longest_move), 1.1 * 20 * kGiB / 50e9 * kSecond);
}

TEST(ResidencyShares, TimeIsInProportionToWeight) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, kBusy30);
  gpu.Add(2, {.weight = 200}, kBusy30);
  gpu.Add(3, {.weight = 600}, kBusy30);
  gpu.Measure(100 * kSecond, 3000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(2) / gpu.ExecutedPct(1), 2, 0.1);
  EXPECT_NEAR(gpu.ExecutedPct(3) / gpu.ExecutedPct(1), 6, 0.3);
}

TEST(ResidencyShares, AHigherClassWaitsForItsOwnMemoryOnly) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, kBusy30);
  gpu.Add(2, {}, kBusy30);
  gpu.Add(3, {.priority = 2}, Uses(25 * kGiB, kSecond, 5 * kSecond));
  gpu.Measure(20 * kSecond, 2000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_LE(gpu.Of(3).longest_wait, 700 * kMillisecond) << "25 GiB at 50 GB/s, and those that leave first";
  EXPECT_GE(gpu.ExecutedPct(1), 25);
  EXPECT_NEAR(gpu.ExecutedPct(1), gpu.ExecutedPct(2), 3);
}

TEST(ResidencyShares, ShortGapsCauseNoMoves) {
  OneGpu gpu(kGpu);
  for (OneGpu::Id id : {1, 2}) {
    gpu.Add(id, {}, Uses(30 * kGiB, 50 * kMillisecond, 50 * kMillisecond));
  }
  gpu.Measure(20 * kSecond, 1000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(1), 22.5, 1) << "half of its half";
  EXPECT_NEAR(gpu.ExecutedPct(2), 22.5, 1);
}

TEST(ResidencyShares, OneThatRunsAlongLeavesTheOthersTheirHalves) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, kBusy30);
  gpu.Add(2, {}, kBusy30);
  gpu.Add(3, {}, Uses(5 * kGiB));
  gpu.Measure(20 * kSecond, 1000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_GE(gpu.ExecutedPct(3), 99);
  EXPECT_NEAR(gpu.ExecutedPct(1), gpu.ExecutedPct(2), 2);
}

// Turns follow from the moves and weights of those that take turns. One that runs along moves nothing.
TEST(ResidencyShares, OneThatRunsAlongMakesTurnsNoShorter) {
  for (const std::uint32_t weight : {20, 100}) {
    OneGpu gpu(kGpu);
    gpu.Add(1, {}, kBusy30);
    gpu.Add(2, {}, kBusy30);
    gpu.Add(3, {.weight = weight}, Uses(5 * kGiB));
    gpu.Measure(20 * kSecond, 1000 * kSecond);
    gpu.ExpectLawful();
    EXPECT_NEAR(gpu.ExecutedPct(1) + gpu.ExecutedPct(2), 90, 1) << "moves take a tenth, beside a weight of " << weight;
  }
}

TEST(ResidencyShares, OneLargerThanTheGpuGetsItsTurns) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, Uses(60 * kGiB));
  gpu.Add(2, {}, kBusy30);
  gpu.Measure(20 * kSecond, 1000 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(gpu.ExecutedPct(1), 45, 2);
  EXPECT_NEAR(gpu.ExecutedPct(2), 45, 2);
}

Phase Does(Nanos begins, std::uint64_t memory, std::uint32_t bursts, Nanos burst) {
  return {.memory = memory, .burst = burst, .bursts = bursts, .open = true, .begins = begins};
}

TEST(ResidencyShares, AProgramFreesWhatItHasOnTheGpu) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {},
          {.phases = {Does(0, 30 * kGiB, 0, 0), Does(2 * kSecond, 25 * kGiB, 0, 0),
                      Does(3 * kSecond, 25 * kGiB, 1, kMillisecond), Does(9 * kSecond, 0, 0, 0)}});
  gpu.Add(2, {}, {.phases = {Does(kSecond, 25 * kGiB, 0, 0), Does(9 * kSecond, 0, 0, 0)}});
  gpu.Run(8 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(static_cast<double>(gpu.Of(1).bytes_in), 15. * kGiB, kGiB / 10)
      << "15 GiB went out for the other one, and are still there when it has freed 5";
}

// Meanwhile another one goes out for a third.
TEST(ResidencyShares, AProgramKeepsTheRoomOfWhatItFreesForAMoment) {
  const auto goes_out = [](Nanos comes) {
    OneGpu gpu(kGpu);
    gpu.Add(2, {}, {.phases = {Does(0, 20 * kGiB, 0, 0), Does(9 * kSecond, 0, 0, 0)}});
    gpu.Add(1, {},
            {.phases = {Does(kSecond, 20 * kGiB, 1, kMillisecond), Does(2 * kSecond, 10 * kGiB, 0, 0),
                        Does(9 * kSecond, 0, 0, 0)}});
    gpu.Add(3, {}, {.phases = {Does(0, 0, 0, 0), Does(comes, 8 * kGiB, 0, 0), Does(9 * kSecond, 0, 0, 0)}});
    gpu.Run(8 * kSecond);
    gpu.ExpectLawful();
    return gpu.OfGpu().bytes_out > 0;
  };
  EXPECT_TRUE(goes_out(2050 * kMillisecond));
  EXPECT_FALSE(goes_out(2150 * kMillisecond));
}

TEST(ResidencyShares, AProgramThatWasIdleForLongWaitsForItsMemory) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {},
          {.phases = {Does(0, 30 * kGiB, 0, 0), Does(15 * kSecond, 30 * kGiB, 1, kMillisecond),
                      Does(30 * kSecond, 0, 0, 0)}});
  gpu.Add(
      2, {},
      {.phases = {Does(kSecond, 15 * kGiB, 0, 0), Does(11 * kSecond, 25 * kGiB, 0, 0), Does(30 * kSecond, 0, 0, 0)}});
  gpu.Run(20 * kSecond);
  gpu.ExpectLawful();
  ASSERT_EQ(gpu.BurstsOf(1).done(), 1u);
  EXPECT_GT(static_cast<double>(gpu.BurstsOf(1).latencies[0]), 15. * kGiB / 50e9 * kSecond) << "15 GiB come in";
}

TEST(ResidencyShares, AProgramTakesMemoryWhenItsEarlierBurstsHaveEnded) {
  OneGpu gpu(kGpu);
  gpu.Add(1, {}, {.phases = {Does(0, 30 * kGiB, 0, 0), Does(9 * kSecond, 0, 0, 0)}});
  gpu.Add(2, {},
          {.phases = {Does(kMillisecond, 5 * kGiB, 1, kSecond), Does(500 * kMillisecond, 20 * kGiB, 0, 0),
                      Does(9 * kSecond, 0, 0, 0)}});
  gpu.Run(950 * kMillisecond);
  EXPECT_EQ(gpu.Of(1).bytes_out, 0u);
  gpu.Run(7 * kSecond);
  gpu.ExpectLawful();
  EXPECT_NEAR(static_cast<double>(gpu.Of(1).bytes_out), 10. * kGiB, kGiB / 10);
}

}  // namespace
}  // namespace tessera::plan
