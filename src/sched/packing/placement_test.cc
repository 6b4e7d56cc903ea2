#include "sched/packing/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/size.h"
#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

Rectangle Pct(Part sms, Part time) { return {sms * kPercent, time * kPercent}; }

GpuRoom Gpu(std::vector<Space> spaces = {}, Part alone_pct = 0) {
  return {
      .spaces = std::move(spaces), .alone = alone_pct * kPercent, .memory_left = 80 * kGiB, .resident_left = 80 * kGiB};
}

Newcomer Alone(Part time_pct) { return {.owner = 1, .claim = Pct(100, time_pct)}; }
Newcomer In(std::string space, Part sms, Part time) {
  return {.owner = 1, .space = std::move(space), .claim = Pct(sms, time)};
}

// Adds the newcomer to the room of the GPU that took it.
void Take(GpuRoom& gpu, const Newcomer& newcomer) {
  gpu.memory_left -= newcomer.memory;
  gpu.resident_left -= newcomer.resident;
  if (newcomer.space.empty()) {
    gpu.alone += newcomer.claim.time;
    return;
  }
  const auto space = std::ranges::find(gpu.spaces, newcomer.space, &Space::name);
  if (space != gpu.spaces.end()) {
    space->members.push_back(newcomer.claim);
  } else {
    gpu.spaces.push_back({newcomer.owner, newcomer.space, {newcomer.claim}});
  }
}

TEST(Placement, TakesTheTightestGpuThatHasRoom) {
  EXPECT_EQ(*Place(Alone(30), {Gpu(), Gpu({}, 50), Gpu({}, 80)}), 1u);
  EXPECT_EQ(*Place(Alone(30), {Gpu(), Gpu()}), 0u) << "the lowest index of equals";
  auto less = Gpu();
  less.memory_left = 40 * kGiB;
  EXPECT_EQ(*Place(Alone(30), {Gpu(), less}), 1u) << "less memory is left over";
}

TEST(Placement, MembersOfASpaceLieSideBySideAndSpacesAlternate) {
  const Space a{1, "a", {Pct(50, 60)}};
  EXPECT_EQ(*Place(In("a", 50, 60), {Gpu({a}, 40)}), 0u);
  EXPECT_FALSE(Place(In("b", 50, 60), {Gpu({a}, 40)})) << "another space needs time of its own";
  EXPECT_FALSE(Place(Alone(60), {Gpu({a})})) << "one in no space is as wide as all SMs";
}

TEST(Placement, ASpaceHasOneGpuAndOneOwner) {
  const std::vector<GpuRoom> gpus{Gpu({}, 50), Gpu({{1, "a", {Pct(50, 20)}}})};
  EXPECT_EQ(*Place(In("a", 50, 20), gpus), 1u) << "the other one would be tighter";
  auto stranger = In("a", 50, 20);
  stranger.owner = 2;
  EXPECT_EQ(*Place(stranger, gpus), 0u) << "a space of another owner is another space";
  const auto refused = Place(In("a", 60, 90), gpus);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_EQ(refused.error().message,
            "the space a lies on one GPU, which has no room; GPU 1: compute.request 90 on 60 % of the SMs does not "
            "fit: all requests need 110 of 100; 20 without this one");
  EXPECT_EQ(refused.error().hint,
            "compute.request 80 on 60 % of the SMs, or compute.request 90 on 50 % of the SMs would fit");
}

TEST(Placement, MemoryAndUsableCount) {
  auto gpus = std::vector{Gpu(), Gpu(), Gpu()};
  gpus[0].unusable = "it has failed";
  gpus[1].memory_left = kGiB;
  gpus[2].resident_left = kMiB;
  auto newcomer = Alone(10);
  newcomer.memory = 2 * kGiB;
  newcomer.resident = 500 * kMiB;
  EXPECT_EQ(Place(newcomer, gpus).error().message,
            "no GPU has room; GPU 0: it has failed; GPU 1: memory.request 2 GiB does not fit: 1 GiB are left; GPU 2: "
            "memory that stays there, 500 MiB does not fit: 1 MiB are left");
  newcomer.memory = kGiB;
  EXPECT_EQ(*Place(newcomer, gpus), 1u);
  EXPECT_EQ(Place(newcomer, {}).error().code, ENODEV);
}

TEST(Placement, WithoutARequestNoTimeIsNeeded) {
  EXPECT_EQ(*Place(Alone(0), {Gpu({}, 100)}), 0u);
  EXPECT_EQ(*Place(In("a", 50, 0), {Gpu({}, 100)}), 0u);
}

TEST(Placement, SaysTheNearestSizeAndGroupsTheReasons) {
  const std::vector<GpuRoom> gpus{Gpu({}, 80), Gpu({}, 80), Gpu({}, 75)};
  const auto refused = Place(Alone(30), gpus);
  EXPECT_EQ(refused.error().message,
            "no GPU has room; GPUs 0, 1: compute.request 30 does not fit: all requests need 110 of 100; 80 without "
            "this one; GPU 2: compute.request 30 does not fit: all requests need 105 of 100; 75 without this one");
  EXPECT_EQ(refused.error().hint, "compute.request 25 would fit");
  EXPECT_EQ(Place(Alone(30), {Gpu({}, 100)}).error().hint, "lower the requests of others, or remove one");
}

TEST(Placement, OneThousandFillHundredsOfGpus) {
  std::mt19937 random(1);
  std::vector<GpuRoom> gpus(200, Gpu());
  Part area = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    // An owner has five programs in a space.
    const auto pct = [&](unsigned most) { return static_cast<Part>(5 + random() % most); };
    auto newcomer = In("space " + std::to_string(i / 5), pct(46), pct(46));
    newcomer.owner = i / 5;
    newcomer.memory = kGiB;
    const auto gpu = Place(newcomer, gpus);
    if (!gpu) continue;
    Take(gpus[*gpu], newcomer);
    area += newcomer.claim.Area() / kWhole;
  }
  Part used = 0;
  for (const GpuRoom& gpu : gpus) {
    EXPECT_LE(TimeToKeep(gpu), kWhole);
    if (!gpu.spaces.empty()) used += kWhole;
  }
  EXPECT_GT(area, used / 2) << "more than half of the GPUs that are used";
}

RC_GTEST_PROP(PlacementProperty, WhatIsPlacedFitsAndWhatIsNearestFits, ()) {
  std::vector<GpuRoom> gpus(static_cast<std::size_t>(*rc::gen::inRange(1, 4)), Gpu());
  const int count = *rc::gen::inRange(1, 25);
  for (int i = 0; i < count; ++i) {
    Newcomer newcomer =
        In(*rc::gen::element<std::string>("", "a", "b"), *rc::gen::inRange(5, 101), *rc::gen::inRange(0, 80));
    if (newcomer.space.empty()) newcomer.claim.sms = kWhole;
    if (const auto gpu = Place(newcomer, gpus)) {
      Take(gpus[*gpu], newcomer);
      RC_ASSERT(TimeToKeep(gpus[*gpu]) <= kWhole || newcomer.claim.time == 0);
      continue;
    }
    const NearestSizes nearest = NearestThatFit(newcomer, gpus);
    if (nearest.time) {
      Newcomer shorter = newcomer;
      shorter.claim.time = *nearest.time;
      RC_ASSERT(shorter.claim.time < newcomer.claim.time);
      RC_ASSERT(Place(shorter, gpus).has_value());
    }
    if (nearest.sms) {
      Newcomer narrower = newcomer;
      narrower.claim.sms = *nearest.sms;
      RC_ASSERT(narrower.claim.sms < newcomer.claim.sms);
      RC_ASSERT(Place(narrower, gpus).has_value());
    }
  }
}

}  // namespace
}  // namespace tessera::sched
