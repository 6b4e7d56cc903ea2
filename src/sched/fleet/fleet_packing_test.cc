#include "sched/fleet/fleet_packing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "sched/fleet/gpu_load.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kGiB = 1ull << 30;

Way WayOf(double sms_pct, double time_pct, double bandwidth = 0) {
  return {.size = {.sms = PartOf(sms_pct), .time = PartOf(time_pct)}, .bandwidth = bandwidth};
}

FleetTenant InTime(double time_pct, std::uint64_t gib = 1) {
  return {.memory = gib * kGiB, .ways = {WayOf(100, time_pct)}};
}

// Busy for all of these intervals, of so many; `gib` all the time.
FleetTenant Seen(std::size_t intervals, const std::vector<std::size_t>& busy, std::int32_t gib, double duty = 1) {
  std::vector<std::int32_t> duties(intervals), memory(intervals, gib * 1024);
  for (const std::size_t at : busy) duties[at] = static_cast<std::int32_t>(duty * UseSeries::kWholeInterval);
  return {.memory = static_cast<std::uint64_t>(gib) * kGiB, .use = UseSeries::Of(std::move(duties), std::move(memory))};
}

FleetGpu Gpu(std::uint64_t gib = 80) {
  return {.memory = gib * kGiB, .move_bytes_per_second = 50e9, .interval = 60 * kSecond};
}

// All promises are kept on each GPU, and together they are over for no more of the time than they may.
void ExpectValid(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& placement) {
  std::vector<GpuLoad> loads(placement.gpus, GpuLoad(tenants, gpu));
  ASSERT_EQ(placement.seats.size(), tenants.size());
  for (std::size_t tenant = 0; tenant < tenants.size(); ++tenant) {
    auto on = placement.seats[tenant].gpus;
    std::ranges::sort(on);
    EXPECT_EQ(std::ranges::adjacent_find(on), on.end()) << "twice on one GPU";
    for (const std::size_t index : on) {
      ASSERT_LT(index, loads.size());
      loads[index].Add(tenant);
    }
  }
  double over = 0;
  for (const GpuLoad& load : loads) {
    EXPECT_FALSE(load.members().empty()) << "an empty GPU is counted";
    EXPECT_LE(load.Now().promised, 0);
    over += load.Now().over;
  }
  EXPECT_LE(over, gpu.most_over * static_cast<double>(loads.size()) + 1e-9);
}

TEST(FirstFitDecreasing, PutsThirdsAndHalvesTogether) {
  std::vector<FleetTenant> tenants;
  for (const double pct : {33.3, 66.7, 50.0, 50.0, 66.7, 33.3}) tenants.push_back(InTime(pct));
  const Placement placement = FirstFitDecreasing(tenants, Gpu());
  EXPECT_EQ(placement.gpus, 3U);
  EXPECT_EQ(placement.Refused(), 0U);
  ExpectValid(tenants, Gpu(), placement);
}

TEST(FirstFitDecreasing, RefusesWhatFitsNowhereAndPlacesTheRest) {
  const std::vector<FleetTenant> tenants = {InTime(60), InTime(60), InTime(30)};
  const Placement placement = FirstFitDecreasing(tenants, Gpu(), 1);
  EXPECT_EQ(placement.gpus, 1U);
  EXPECT_EQ(placement.Refused(), 1U);
  EXPECT_EQ(FirstFitDecreasing({InTime(10, 100)}, Gpu(), 0).Refused(), 1U) << "larger than any GPU";
}

TEST(FirstFitDecreasing, SeveralGpusAreDifferentOnes) {
  std::vector<FleetTenant> tenants = {InTime(50), InTime(50)};
  tenants[1].gpus = 2;
  const Placement placement = FirstFitDecreasing(tenants, Gpu());
  EXPECT_EQ(placement.gpus, 2U);
  ExpectValid(tenants, Gpu(), placement);
}

TEST(GpuLoad, AGroupRunsSideBySideAndStrangersDoNot) {
  // Each needs half of the SMs all of the time, or 80 % of the time of all.
  std::vector<FleetTenant> tenants(2, {.group = 7, .ways = {WayOf(50, 100), WayOf(100, 80)}});
  const FleetGpu gpu = Gpu();
  GpuLoad together(tenants, gpu);
  together.Add(0);
  EXPECT_TRUE(together.HasRoomFor(1));
  together.Add(1);
  for (const auto& seat : together.Seats()) {
    EXPECT_TRUE(seat.in_space);
    EXPECT_EQ(seat.way, WayOf(50, 100));
  }
  tenants[0].group = tenants[1].group = 0;
  GpuLoad strangers(tenants, gpu);
  strangers.Add(0);
  EXPECT_FALSE(strangers.HasRoomFor(1));
  EXPECT_FALSE(strangers.Seats()[0].in_space);
}

TEST(GpuLoad, OneThatTakesAllSmsRunsBesideTheSpace) {
  // Two share the SMs for half of the time; the third is alone for the other half.
  const std::vector<FleetTenant> tenants = {{.group = 1, .ways = {WayOf(50, 50), WayOf(100, 45)}},
                                            {.group = 1, .ways = {WayOf(50, 50), WayOf(100, 45)}},
                                            {.group = 1, .ways = {WayOf(100, 50)}}};
  const FleetGpu gpu = Gpu();
  GpuLoad load(tenants, gpu);
  load.Add(0);
  load.Add(1);
  EXPECT_TRUE(load.HasRoomFor(2));
  load.Add(2);
  const auto seats = load.Seats();
  EXPECT_TRUE(seats[0].in_space);
  EXPECT_TRUE(seats[1].in_space);
  EXPECT_FALSE(seats[2].in_space);
  EXPECT_EQ(load.WhatBinds(), Binds::kTime);
}

TEST(GpuLoad, ASpaceIsAsShortAsOthersNeed) {
  // The narrowest ways would fill all of the time; the shorter ones leave room for the stranger.
  const std::vector<FleetTenant> tenants = {{.group = 1, .ways = {WayOf(20, 100), WayOf(35, 60), WayOf(100, 40)}},
                                            {.group = 1, .ways = {WayOf(20, 100), WayOf(35, 60), WayOf(100, 40)}},
                                            InTime(35)};
  const FleetGpu gpu = Gpu();
  GpuLoad load(tenants, gpu);
  load.Add(0);
  load.Add(2);
  EXPECT_TRUE(load.HasRoomFor(1));
}

TEST(GpuLoad, BandwidthOfASpaceIsBounded) {
  const std::vector<FleetTenant> tenants(2, {.group = 1, .ways = {WayOf(50, 100, 0.6), WayOf(100, 90, 0.6)}});
  const FleetGpu gpu = Gpu();
  GpuLoad load(tenants, gpu);
  load.Add(0);
  EXPECT_FALSE(load.HasRoomFor(1));
}

TEST(GpuLoad, PromisedMemoryHasToFitAndTheRestMayMove) {
  std::vector<FleetTenant> tenants = {InTime(10, 60), InTime(10, 60)};
  FleetGpu gpu = Gpu(80);
  GpuLoad load(tenants, gpu);
  load.Add(0);
  EXPECT_TRUE(load.HasRoomFor(1)) << "they take turns";
  gpu.moves_memory = false;
  EXPECT_FALSE(load.HasRoomFor(1));
  gpu.moves_memory = true;
  tenants[0].promised = tenants[1].promised = 50 * kGiB;
  EXPECT_FALSE(load.HasRoomFor(1));
  tenants[0].promised = tenants[1].promised = 0;
  tenants[1].waits_for_turns = false;
  EXPECT_FALSE(load.HasRoomFor(1)) << "a latency goal does not bear turns";
}

TEST(GpuLoad, CountsIntervalsInWhichMoreWasUsedThanThereIs) {
  const std::vector<FleetTenant> tenants = {Seen(100, {1, 2, 3}, 10), Seen(100, {3, 4}, 10), Seen(100, {50}, 10)};
  const FleetGpu gpu = Gpu();
  GpuLoad load(tenants, gpu);
  load.Add(0);
  EXPECT_EQ(load.Now().over, 0);
  load.Add(1);
  EXPECT_NEAR(load.Now().over, 0.01, 1e-9);
  EXPECT_NEAR(load.Now().beyond, 0.01, 1e-4) << "a whole interval too much, in one of a hundred";
  EXPECT_NEAR(load.After(1, 2).over, 0, 1e-9);
  load.Remove(1);
  EXPECT_EQ(load.Now().over, 0);
}

TEST(GpuLoad, MovesTakeTimeOnlyWhereMemoryDoesNotFit) {
  // 60 GiB come in when the second begins to work: 1.3 s of 60 s at 50 GB/s. 99 % of duty leave no time for that.
  const std::vector<FleetTenant> tenants = {Seen(100, {}, 60), Seen(100, {10}, 60, 0.99)};
  const FleetGpu small = Gpu(80), large = Gpu(140);
  for (const auto& [gpu, over] : {std::pair(&small, 0.01), std::pair(&large, 0.0)}) {
    GpuLoad load(tenants, *gpu);
    load.Add(0);
    load.Add(1);
    EXPECT_NEAR(load.Now().over, over, 1e-9);
  }
}

TEST(Crowd, PutsUseWhereItHarmsLeastAndBreaksNoPromise) {
  std::vector<FleetTenant> tenants = {Seen(100, {1, 2, 3, 4, 5, 6, 7, 8}, 10),
                                      Seen(100, {20}, 10),
                                      Seen(100, {1, 2, 3, 4, 5, 6, 7, 8}, 10),
                                      InTime(60),
                                      InTime(60),
                                      InTime(60)};
  const FleetGpu gpu = Gpu();
  const Placement first = FirstFitDecreasing(tenants, gpu, 1);
  const Placement crowded = Crowd(tenants, gpu, first, 2);
  EXPECT_EQ(crowded.gpus, 2U);
  EXPECT_NE(crowded.seats[0].gpus, crowded.seats[2].gpus);
  EXPECT_EQ(crowded.Refused(), 1U) << "three times 60 % of two GPUs";
  EXPECT_EQ(Crowd(tenants, gpu, FirstFitDecreasing(tenants, gpu, 1), 1).seats[2].gpus.size(), 1U);
}

TEST(EmptyGpus, FindsWhatFirstFitMisses) {
  // First fit decreasing makes 40+40, 30+30+30, 30+20+20 and has no room for the last 20.
  std::vector<FleetTenant> tenants;
  for (const double pct : {40.0, 40.0, 30.0, 30.0, 30.0, 30.0, 20.0, 20.0, 30.0, 30.0}) tenants.push_back(InTime(pct));
  const Placement first = FirstFitDecreasing(tenants, Gpu());
  ASSERT_EQ(first.gpus, 4U);
  int steps = 0;
  const Placement better = EmptyGpus(tenants, Gpu(), first, 1, [&] { return ++steps < 3000; });
  EXPECT_EQ(better.gpus, 3U);
  ExpectValid(tenants, Gpu(), better);
}

TEST(EmptyGpus, NoGpuStaysOverALittleTooOften) {
  // A GPU may be over for 5 % of 79 intervals. Four are too many, by a twentieth of an interval only.
  std::mt19937 random(3);
  std::vector<FleetTenant> tenants(24, Seen(79, {}, 1));
  for (FleetTenant& tenant : tenants) {
    std::vector<std::int32_t> duties(79);
    for (std::int32_t& duty : duties) duty = random() % 1000 < 200 ? 500'000 : 100'000;
    tenant.use = UseSeries::Of(std::move(duties), std::move(tenant.use.memory));
  }
  FleetGpu gpu = Gpu();
  gpu.most_over = 0.02;
  const Placement first = FirstFitDecreasing(tenants, gpu);
  ASSERT_EQ(first.gpus, 12U);
  int steps = 0;
  const Placement better = EmptyGpus(tenants, gpu, first, 1, [&] { return ++steps < 800; });
  EXPECT_EQ(better.gpus, 9U);
  ExpectValid(tenants, gpu, better);
}

TEST(EmptyGpus, KeepsTheStartWhereNothingCanBeEmptied) {
  const std::vector<FleetTenant> tenants = {InTime(60), InTime(60)};
  const Placement first = FirstFitDecreasing(tenants, Gpu());
  int steps = 0;
  const Placement same = EmptyGpus(tenants, Gpu(), first, 1, [&] { return ++steps < 20; });
  EXPECT_EQ(same.gpus, 2U);
  ExpectValid(tenants, Gpu(), same);
}

RC_GTEST_PROP(FleetProperty, EveryPolicyKeepsPromisesAndTheSearchNeverNeedsMore, ()) {
  std::vector<FleetTenant> tenants;
  const auto count = *rc::gen::inRange(1, 14);
  for (int i = 0; i < count; ++i) {
    FleetTenant tenant;
    tenant.memory = static_cast<std::uint64_t>(*rc::gen::inRange(1, 60)) * kGiB;
    if (*rc::gen::arbitrary<bool>()) tenant.promised = tenant.memory / 2;
    tenant.group = *rc::gen::inRange(0U, 3U);
    const double time = *rc::gen::inRange(1, 100);
    if (*rc::gen::arbitrary<bool>()) tenant.ways.push_back(WayOf(40, std::min(100.0, 2 * time)));
    if (*rc::gen::arbitrary<bool>()) tenant.ways.push_back(WayOf(100, time));
    if (!tenant.ways.empty() && tenant.ways.back().size.sms != kWhole) tenant.ways.push_back(WayOf(100, time));
    if (*rc::gen::inRange(0, 3) == 0) {
      auto seen = Seen(20, {*rc::gen::inRange(std::size_t{0}, std::size_t{20})}, 10, 0.7);
      tenant.use = std::move(seen.use);
    }
    tenants.push_back(std::move(tenant));
  }
  const FleetGpu gpu = Gpu();
  const Placement first = FirstFitDecreasing(tenants, gpu);
  RC_ASSERT(first.Refused() == 0U);
  ExpectValid(tenants, gpu, first);
  ExpectValid(tenants, gpu, LeastFragmentation(tenants, gpu));
  int steps = 0;
  const Placement better = EmptyGpus(tenants, gpu, first, 3, [&] { return ++steps < 30; });
  RC_ASSERT(better.gpus <= first.gpus);
  RC_ASSERT(better.Refused() == 0U);
  ExpectValid(tenants, gpu, better);
}

}  // namespace
}  // namespace tessera::sched
