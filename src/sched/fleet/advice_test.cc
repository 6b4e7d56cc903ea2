#include "sched/fleet/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/size.h"
#include "sched/fleet/advice_words.h"

namespace tessera::sched {
namespace {

using testing::HasSubstr;

MeteredGpu AdvisedGpu(const char* name, const char* type = "H200") {
  return {.node = "", .gpu = name, .type = type, .memory = 80 * kGiB};
}

// A vGPU that does the same all the time.
MeteredVgpu SteadyVgpu(const char* name, std::size_t gpu, double duty, std::uint64_t memory,
                       std::size_t samples = 100) {
  return {.name = name,
          .gpu = gpu,
          .memory_request = memory,
          .memory_limit = memory,
          .samples = std::vector<UsedSample>(samples, {.there = true, .duty = duty, .memory = memory})};
}

// Works only in samples `begin` to `end`, of a hundred.
MeteredVgpu VgpuAt(const char* name, std::size_t gpu, std::size_t begin, std::size_t end, double duty) {
  MeteredVgpu vgpu = SteadyVgpu(name, gpu, 0, kGiB);
  for (std::size_t at = begin; at < end; ++at) vgpu.samples[at].duty = duty;
  return vgpu;
}

TEST(AdviceWords, PercentagesHaveADecimalBelowTen) {
  EXPECT_EQ(PctWords(6), "6 %");
  EXPECT_EQ(PctWords(0.54), "0.5 %");
  EXPECT_EQ(PctWords(9.96), "10 %");
  EXPECT_EQ(PctWords(37.5), "38 %");
}

TEST(AdviceSizes, ARequestFarAboveWhatIsUsedIsTooLarge) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {SteadyVgpu("a", 0, 0.06, kGiB)}};
  fleet.vgpus[0].request_pct = 40;
  fleet.vgpus[0].samples[7].duty = 1;  // one of a hundred does not count
  const auto advice = AdviseSizes(fleet, {});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, Advice::Kind::kRequestTooLarge);
  EXPECT_EQ(advice[0].vgpus, std::vector<std::size_t>{0});
  EXPECT_EQ(advice[0].request_pct, 10);
  EXPECT_EQ(advice[0].reason,
            "a is guaranteed 40 % of the GPU's time, and used 6 % or less in 99 of 100 samples: 10 % suffices");
  EXPECT_FALSE(advice[0].memory_request);

  fleet.vgpus[0].samples[8].duty = 0.3;  // two do
  EXPECT_TRUE(AdviseSizes(fleet, {}).empty()) << "40 % is what 30 % and the margin come to";
  fleet.vgpus[0].samples[8].duty = 0;
  fleet.vgpus[0].goal = true;
  EXPECT_TRUE(AdviseSizes(fleet, {}).empty()) << "it may need its request for its latency";
}

TEST(AdviceSizes, NothingIsSaidOfFewSamples) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {SteadyVgpu("a", 0, 0, 0, 9)}};
  fleet.vgpus[0].request_pct = 90;
  EXPECT_TRUE(Advise(fleet).empty());
  fleet.vgpus[0].samples.resize(20);  // it was not there
  EXPECT_TRUE(Advise(fleet).empty());
  fleet.vgpus[0].samples.resize(9);
  fleet.vgpus[0].samples.push_back({.there = true});
  EXPECT_EQ(Advise(fleet).size(), 1u);
}

TEST(AdviceSizes, MemoryIsPromisedThatIsNotUsed) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {SteadyVgpu("a", 0, 0.5, 10 * kGiB)}};
  fleet.vgpus[0].memory_request = 40 * kGiB;
  const auto advice = AdviseSizes(fleet, {});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, Advice::Kind::kMemoryTooLarge);
  EXPECT_EQ(advice[0].memory_request, 11 * kGiB);
  EXPECT_THAT(advice[0].reason, HasSubstr("promised 40 GiB, and had 10 GiB or less"));
  fleet.vgpus[0].memory_request = 11 * kGiB + 256 * kMiB;
  EXPECT_TRUE(AdviseSizes(fleet, {}).empty()) << "not worth it";
}

TEST(AdviceSizes, ALimitThatOftenKeepsItOffIsTooSmall) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {SteadyVgpu("a", 0, 0.2, kGiB)}};
  fleet.vgpus[0].request_pct = 20;
  fleet.vgpus[0].limit_pct = 20;
  for (auto& sample : fleet.vgpus[0].samples) sample.waited = sample.throttled = 0.33;
  const auto advice = AdviseSizes(fleet, {});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, Advice::Kind::kLimitTooSmall);
  EXPECT_EQ(advice[0].limit_pct, 55);
  EXPECT_FALSE(advice[0].request_pct);
  for (auto& sample : fleet.vgpus[0].samples) sample.throttled = 0.04;
  EXPECT_TRUE(AdviseSizes(fleet, {}).empty()) << "that it waits for others says nothing of its limit";
}

TEST(AdvicePairs, TwoThatWantTheGpuAtTheSameTimeShouldNotMeet) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {VgpuAt("a", 0, 0, 20, 0.5), VgpuAt("b", 0, 0, 20, 0.5)}};
  EXPECT_TRUE(AdvisePairs(fleet, {}).empty()) << "there is enough for both";
  for (std::size_t at = 0; at < 20; ++at) fleet.vgpus[0].samples[at].waited = 0.4;
  auto advice = AdvisePairs(fleet, {});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].kind, Advice::Kind::kApart);
  EXPECT_EQ(advice[0].vgpus, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(
      advice[0].reason,
      "a and b were busy at the same time in 20 % of the samples (by chance: 4 %), and wanted more than the GPU has "
      "in 20 %; no other GPU of the type has room for either");
  EXPECT_TRUE(advice[0].moves.empty());

  fleet.gpus.push_back(AdvisedGpu("1", "L4"));
  EXPECT_TRUE(AdvisePairs(fleet, {})[0].moves.empty()) << "it goes at another speed there";
  fleet.gpus.push_back(AdvisedGpu("2"));
  advice = AdvisePairs(fleet, {});
  ASSERT_EQ(advice[0].moves.size(), 1u);
  EXPECT_EQ(advice[0].moves[0].to, 2u);

  MeteredFleet limited = fleet;
  for (auto& sample : limited.vgpus[0].samples) sample.throttled = sample.waited;
  EXPECT_TRUE(AdvisePairs(limited, {}).empty()) << "its limit keeps it off, not the other";
  fleet.vgpus[0].space = fleet.vgpus[1].space = "s";
  EXPECT_TRUE(AdvisePairs(fleet, {}).empty()) << "they are together because somebody wants it";
}

TEST(AdvicePairs, TwoThatWorkAtDifferentTimesMayMeet) {
  const MeteredFleet fleet{.gpus = {AdvisedGpu("0")}, .vgpus = {VgpuAt("a", 0, 0, 40, 1), VgpuAt("b", 0, 40, 80, 1)}};
  EXPECT_TRUE(AdvisePairs(fleet, {}).empty());
}

TEST(AdvicePairs, OneThatMissesItsGoalBesideTheOtherShouldNotMeetIt) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1")},
                     .vgpus = {SteadyVgpu("chat", 0, 0.2, kGiB), VgpuAt("batch", 0, 0, 30, 0.7)}};
  fleet.vgpus[0].goal = true;
  for (std::size_t at = 0; at < 15; ++at) fleet.vgpus[0].samples[at].violated = true;
  const auto advice = AdvisePairs(fleet, {});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0].reason, HasSubstr("chat missed its goal in 50 % of these"));
  ASSERT_EQ(advice[0].moves.size(), 1u);
  EXPECT_EQ(advice[0].moves[0].vgpu, 1u) << "the one without a goal goes";
  for (auto& sample : fleet.vgpus[0].samples) sample.violated = true;
  EXPECT_TRUE(AdvisePairs(fleet, {}).empty()) << "it misses it alone as well";
}

TEST(AdvicePacking, ThoseThatWorkAtDifferentTimesFitIntoOneGpu) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1"), AdvisedGpu("2")},
                     .vgpus = {VgpuAt("a", 0, 0, 40, 1), VgpuAt("b", 1, 40, 80, 1), VgpuAt("c", 2, 20, 60, 1)}};
  auto advice = AdvisePacking(fleet, {});
  ASSERT_EQ(advice.size(), 1u) << "c works while a works, and while b works";
  EXPECT_EQ(advice[0].kind, Advice::Kind::kTogether);
  ASSERT_EQ(advice[0].moves.size(), 1u);
  EXPECT_EQ(advice[0].vgpus, std::vector<std::size_t>{1});
  EXPECT_EQ(advice[0].moves[0].to, 0u);
  EXPECT_THAT(advice[0].reason, HasSubstr("GPU 1 is not needed: b fits on GPU 0"));
  fleet.vgpus[1].request_pct = 60;
  fleet.vgpus[0].request_pct = fleet.vgpus[2].request_pct = 50;
  EXPECT_TRUE(AdvisePacking(fleet, {}).empty()) << "more would be promised than there is";
}

TEST(AdvicePacking, OthersMoveTooIfThatSavesAGpu) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1"), AdvisedGpu("2")}};
  const std::pair<std::size_t, double> requests[] = {{0, 60}, {0, 10}, {1, 60}, {1, 10}, {2, 40}, {2, 20}};
  for (const auto& [gpu, pct] : requests) {
    fleet.vgpus.push_back(SteadyVgpu("v", gpu, 0.01, kGiB));
    fleet.vgpus.back().request_pct = pct;
  }
  const auto advice = AdvisePacking(fleet, {});
  ASSERT_EQ(advice.size(), 1u) << "60 and 40; 60, 20, 10 and 10";
  for (const auto& move : advice[0].moves) fleet.vgpus[move.vgpu].gpu = move.to;
  double promised[3] = {};
  for (const auto& vgpu : fleet.vgpus) promised[vgpu.gpu] += vgpu.request_pct;
  EXPECT_EQ(std::ranges::count(promised, 100), 2);
}

TEST(AdvicePacking, OneSampleInAHundredMayBeShortOfTime) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1")},
                     .vgpus = {VgpuAt("a", 0, 0, 40, 1), VgpuAt("b", 1, 39, 80, 1)}};
  EXPECT_EQ(AdvisePacking(fleet, {}).size(), 1u);
  fleet.vgpus[1].samples[38].duty = 1;
  EXPECT_TRUE(AdvisePacking(fleet, {}).empty());
}

TEST(AdvicePacking, MemoryMustFitButForALittleSwap) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1")},
                     .vgpus = {SteadyVgpu("a", 0, 0.1, 42 * kGiB), SteadyVgpu("b", 1, 0.1, 42 * kGiB)}};
  for (auto& vgpu : fleet.vgpus) vgpu.memory_request = 20 * kGiB;
  EXPECT_EQ(AdvisePacking(fleet, {}).size(), 1u) << "84 of 80 GiB";
  for (auto& sample : fleet.vgpus[1].samples) sample.memory = 43 * kGiB;
  EXPECT_TRUE(AdvisePacking(fleet, {}).empty());
  for (auto& gpu : fleet.gpus) gpu.memory = 0;  // not known
  EXPECT_TRUE(AdvisePacking(fleet, {}).empty());
}

TEST(AdvicePacking, TheMembersOfASpaceStayTogether) {
  MeteredFleet fleet{
      .gpus = {AdvisedGpu("0"), AdvisedGpu("1")},
      .vgpus = {SteadyVgpu("a", 0, 1, kGiB), SteadyVgpu("b", 0, 1, kGiB), SteadyVgpu("c", 1, 0.3, kGiB)}};
  for (std::size_t i : {0, 1}) {
    fleet.vgpus[i].space = "s";
    fleet.vgpus[i].sm_pct = 30;
  }
  const auto advice = AdvisePacking(fleet, {});
  ASSERT_EQ(advice.size(), 1u) << "30 % and 30 % of the SMs, and 30 % of the time";
  EXPECT_EQ(advice[0].vgpus, std::vector<std::size_t>{2});
}

TEST(Advice, PackingReckonsWithSmallerRequests) {
  MeteredFleet fleet{.gpus = {AdvisedGpu("0"), AdvisedGpu("1")},
                     .vgpus = {SteadyVgpu("a", 0, 0.06, kGiB), SteadyVgpu("b", 1, 0.06, kGiB)}};
  for (auto& vgpu : fleet.vgpus) vgpu.request_pct = 60;
  const auto advice = Advise(fleet);
  ASSERT_EQ(advice.size(), 3u);
  EXPECT_EQ(advice[2].kind, Advice::Kind::kTogether);
}

}  // namespace
}  // namespace tessera::sched
