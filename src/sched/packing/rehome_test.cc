#include "sched/packing/rehome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "base/size.h"
#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Home Card(std::uint64_t memory = 80 * kGiB) {
  return {.type = "H", .memory = memory, .place = memory, .resident = memory};
}
Home Unusable(std::string why) {
  Home home = Card();
  home.unusable = std::move(why);
  return home;
}

Newcomer Promised(std::uint64_t memory, Part time_pct = 0) {
  return {.owner = 1, .claim = {.sms = kWhole, .time = time_pct * kPercent}, .memory = memory};
}

// Alone in its group.
Dweller On(std::size_t home, std::size_t group, std::uint64_t memory, Part time_pct = 0) {
  return {.home = home, .needs = Promised(memory, time_pct), .held = memory, .bytes = memory, .group = group};
}

TEST(EmptyGpu, PromisesPackAndOthersGoWhereMostPlaceIs) {
  std::vector<Dweller> dwellers{On(0, 0, 10 * kGiB, 20), On(1, 1, 40 * kGiB, 50), On(0, 2, 0)};
  dwellers[2].held = 5 * kGiB;
  const Rehoming found = EmptyGpu(0, {Unusable("it drains"), Card(), Card()}, dwellers);
  EXPECT_THAT(found.stays, IsEmpty());
  ASSERT_EQ(found.moves.size(), 2u);
  EXPECT_THAT(found.moves[0], ElementsAre(Rehoming::Move{0, 1})) << "the fullest that has room";
  EXPECT_THAT(found.moves[1], ElementsAre(Rehoming::Move{2, 2})) << "the emptiest";
  EXPECT_EQ(found.bytes, 10 * kGiB);
}

TEST(EmptyGpu, SaysOfEachThatStaysWhy) {
  auto other_type = Card();
  other_type.type = "A";
  std::vector<Dweller> dwellers{On(0, 0, 70 * kGiB), On(0, 1, kGiB), On(0, 2, kGiB), On(1, 3, 20 * kGiB)};
  dwellers[1].stays = "it uses memory of another program";
  dwellers[2].needs.space = "s";
  const Rehoming found = EmptyGpu(0, {Unusable("it drains"), Card(), other_type}, dwellers);
  EXPECT_THAT(found.moves, IsEmpty());
  ASSERT_EQ(found.stays.size(), 3u);
  EXPECT_EQ(
      found.stays[0].why,
      "no GPU has room; GPU 0: it drains; GPU 1: memory.request 70 GiB does not fit: 60 GiB are left; GPU 2: it is "
      "of another type");
  EXPECT_EQ(found.stays[1].why, "it uses memory of another program");
  EXPECT_EQ(found.stays[2].why, "it is in space s, which stays on its GPU");
}

// Memory may lie in host memory, but not what is pinned.
TEST(EmptyGpu, WhatMustStayOnAGpuNeedsRoomThere) {
  Home swaps = Card(10 * kGiB);
  swaps.place = 100 * kGiB;
  std::vector<Dweller> dwellers{On(0, 0, 0), On(1, 1, 0)};
  for (Dweller& dweller : dwellers) dweller.held = 20 * kGiB, dweller.needs.resident = 4 * kGiB;
  EXPECT_EQ(EmptyGpu(0, {Unusable("it drains"), swaps}, dwellers).moves.size(), 1u);
  dwellers[0].needs.resident = 7 * kGiB;
  EXPECT_THAT(EmptyGpu(0, {Unusable("it drains"), swaps}, dwellers).stays.at(0).why, HasSubstr("memory that stays"));
}

TEST(EmptyGpu, AProgramOnSeveralGpusGoesWhereItIsNot) {
  const std::vector<Dweller> dwellers{On(0, 7, kGiB), On(1, 7, 60 * kGiB)};
  const Rehoming found = EmptyGpu(0, {Unusable("it drains"), Card(), Card()}, dwellers);
  ASSERT_EQ(found.moves.size(), 1u);
  EXPECT_THAT(found.moves[0], ElementsAre(Rehoming::Move{0, 2})) << "the fuller one has its other vGPU";
  EXPECT_THAT(EmptyGpu(0, {Unusable("it drains"), Card()}, dwellers).stays.at(0).why,
              HasSubstr("its programs use this one, too"));
}

TEST(EmptyGpu, AGroupStaysWithItsLast) {
  std::vector<Dweller> dwellers{On(0, 7, kGiB), On(1, 7, kGiB)};
  dwellers[1].stays = "it cannot leave";
  const Rehoming found = EmptyGpu(0, {Unusable("it drains"), Card(), Card()}, dwellers);
  EXPECT_THAT(found.stays, ElementsAre(Rehoming::Stay{0, "it cannot leave"}));
}

// By time alone, the two of 30 % would take the places of memory from the last.
TEST(EmptyGpu, AnotherOrderMayPlaceAll) {
  const std::vector<Dweller> dwellers{On(0, 0, 5 * kGiB, 30), On(0, 1, 5 * kGiB, 30), On(0, 2, 10 * kGiB, 10)};
  const Rehoming found = EmptyGpu(0, {Unusable("it drains"), Card(10 * kGiB), Card(10 * kGiB)}, dwellers);
  EXPECT_THAT(found.stays, IsEmpty());
}

TEST(MakeRoom, MovesTheFewestBytes) {
  const std::vector<Home> homes{Card(), Card()};
  // 40 GiB are free in all. Room for 30: 10 from the first, or 20 from the second.
  const std::vector<Dweller> dwellers{On(0, 0, 10 * kGiB), On(0, 1, 50 * kGiB), On(1, 2, 20 * kGiB),
                                      On(1, 3, 40 * kGiB)};
  const auto found = MakeRoom(Promised(30 * kGiB), homes, dwellers);
  ASSERT_TRUE(found) << found.error().Text();
  EXPECT_EQ(found->room_on, 0u);
  ASSERT_EQ(found->moves.size(), 1u);
  EXPECT_THAT(found->moves[0], ElementsAre(Rehoming::Move{0, 1}));
  EXPECT_EQ(found->bytes, 10 * kGiB);
}

TEST(MakeRoom, MovesNothingWhereThereIsRoom) {
  const auto found = MakeRoom(Promised(30 * kGiB, 50), {Card(), Card()}, {On(0, 0, 60 * kGiB, 60)});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->room_on, 1u);
  EXPECT_THAT(found->moves, IsEmpty());
}

TEST(MakeRoom, MakesRoomInTimeBySeveral) {
  const std::vector<Dweller> dwellers{On(0, 0, 0, 30), On(0, 1, 0, 30), On(1, 2, 0, 35), On(2, 3, 0, 65)};
  const auto found = MakeRoom(Promised(0, 90), {Card(), Card(), Card()}, dwellers);
  ASSERT_TRUE(found) << found.error().Text();
  EXPECT_EQ(found->room_on, 1u) << "one vGPU instead of two";
  const auto more = MakeRoom(Promised(0, 100), {Card(), Card(), Unusable("it drains")}, dwellers);
  ASSERT_TRUE(more) << more.error().Text();
  EXPECT_EQ(more->room_on, 1u);
  EXPECT_THAT(more->moves.at(0), ElementsAre(Rehoming::Move{2, 0}));
}

TEST(MakeRoom, SaysWhyThereIsNone) {
  std::vector<Dweller> dwellers{On(0, 0, 10 * kGiB), On(1, 1, 72 * kGiB)};
  dwellers[0].stays = "it cannot leave";
  const auto found = MakeRoom(Promised(75 * kGiB), {Card(), Card()}, dwellers);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ENOSPC);
  EXPECT_EQ(found.error().message,
            "no GPU has room; GPU 0: memory.request 75 GiB does not fit: 70 GiB are left; GPU 1: memory.request 75 GiB "
            "does not fit: 8 GiB are left; no moves of vGPUs between GPUs make room");
}

// ---- properties ----

// As large in the first cases as in later ones.
std::size_t Between(std::size_t least, std::size_t below) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, below));
}

std::string WhyUnusable() { return *rc::gen::element<std::string>("", "", "", "", "", "it drains"); }

std::vector<Home> SomeHomes() {
  std::vector<Home> homes(Between(2, 6));
  for (Home& home : homes) {
    home = Card(Between(5, 20));
    home.place += *rc::gen::element<std::uint64_t>(0, 10);
    home.type = *rc::gen::element<std::string>("H", "H", "H", "H", "A");
    home.unusable = WhyUnusable();
  }
  return homes;
}

struct Use {
  Part time = 0;
  std::uint64_t promised = 0, claimed = 0, resident = 0;
};

Use UseOf(std::size_t home, const std::vector<Dweller>& dwellers) {
  Use use;
  std::vector<Rectangle> in_space;
  for (const Dweller& dweller : dwellers) {
    if (dweller.home != home) continue;
    use.promised += dweller.needs.memory;
    use.claimed += std::max(dweller.needs.memory, dweller.held);
    use.resident += dweller.needs.resident;
    if (dweller.needs.space.empty()) {
      use.time += dweller.needs.claim.time;
    } else {
      in_space.push_back(dweller.needs.claim);
    }
  }
  use.time += TimeToKeep(GpuRoom{.spaces = {{1, "s", in_space}}});
  return use;
}

bool Keeps(const Home& home, const Use& use) {
  return use.time <= kWhole && use.promised <= home.memory && use.claimed <= home.place &&
         use.resident <= home.resident;
}

// Each GPU keeps what is on it; two of one group are not on one GPU.
std::vector<Dweller> SomeDwellers(const std::vector<Home>& homes) {
  std::vector<Dweller> dwellers;
  const auto count = Between(0, 16);
  for (std::size_t i = 0; i < count; ++i) {
    Dweller dweller =
        On(Between(0, homes.size()), Between(0, 16), Between(0, 8), *rc::gen::element<Part>(0, 0, 10, 20, 40));
    dweller.held = Between(0, 12);
    dweller.bytes = dweller.held;
    dweller.needs.resident = Between(0, 3);
    if (Between(0, 16) == 0) dweller.stays = "it cannot";
    if (Between(0, 8) == 0) {
      dweller.needs.space = "s";
      dweller.needs.claim.sms = 50 * kPercent;
    }
    const bool taken = std::ranges::any_of(
        dwellers, [&](const Dweller& other) { return other.group == dweller.group && other.home == dweller.home; });
    dwellers.push_back(dweller);
    if (taken || !Keeps(homes[dweller.home], UseOf(dweller.home, dwellers))) dwellers.pop_back();
  }
  return dwellers;
}

std::vector<Dweller> After(std::vector<Dweller> dwellers, const Rehoming& rehoming) {
  for (const auto& together : rehoming.moves) {
    for (const auto& [dweller, to] : together) dwellers[dweller].home = to;
  }
  return dwellers;
}

// What both kinds keep, for moves from one GPU.
void CheckMoves(std::size_t gpu, const Rehoming& rehoming, const std::vector<Home>& homes,
                const std::vector<Dweller>& before) {
  std::uint64_t bytes = 0;
  std::set<std::size_t> seen;
  for (const auto& together : rehoming.moves) {
    RC_ASSERT(!together.empty());
    for (const auto& [dweller, to] : together) {
      RC_ASSERT(seen.insert(dweller).second);
      RC_ASSERT(before[dweller].home == gpu);
      RC_ASSERT(before[dweller].group == before[together.front().dweller].group);
      RC_ASSERT(to != gpu);
      RC_ASSERT(homes[to].unusable.empty());
      RC_ASSERT(homes[to].type == homes[gpu].type);
      RC_ASSERT(before[dweller].needs.space.empty());
      bytes += before[dweller].bytes;
      for (const Dweller& other : before) RC_ASSERT(other.group != before[dweller].group || other.stays.empty());
    }
  }
  RC_ASSERT(bytes == rehoming.bytes);
  const std::vector<Dweller> after = After(before, rehoming);
  for (std::size_t home = 0; home < homes.size(); ++home) RC_ASSERT(Keeps(homes[home], UseOf(home, after)));
  for (std::size_t i = 0; i < after.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) RC_ASSERT(after[i].group != after[j].group || after[i].home != after[j].home);
  }
}

RC_GTEST_PROP(EmptyGpu, BreaksNoPromiseAndForgetsNobody, ()) {
  std::vector<Home> homes = SomeHomes();
  const std::vector<Dweller> dwellers = SomeDwellers(homes);
  const auto gpu = Between(0, homes.size());
  homes[gpu].unusable = "it drains";
  const Rehoming found = EmptyGpu(gpu, homes, dwellers);
  CheckMoves(gpu, found, homes, dwellers);
  std::set<std::size_t> told;
  for (const auto& together : found.moves) {
    for (const auto& move : together) told.insert(move.dweller);
  }
  for (const auto& [dweller, why] : found.stays) {
    RC_ASSERT(told.insert(dweller).second);
    RC_ASSERT(!why.empty());
  }
  for (std::size_t i = 0; i < dwellers.size(); ++i) RC_ASSERT(told.contains(i) == (dwellers[i].home == gpu));
  RC_ASSERT(EmptyGpu(gpu, homes, dwellers) == found);
}

// The least bytes by which one vGPU's move makes room, found in the plainest way.
std::optional<std::uint64_t> CheapestSingle(const Newcomer& newcomer, const std::vector<Home>& homes,
                                            const std::vector<Dweller>& dwellers) {
  std::optional<std::uint64_t> best;
  const Dweller as_dweller{.needs = newcomer};
  for (std::size_t i = 0; i < dwellers.size(); ++i) {
    const bool bound = std::ranges::any_of(
        dwellers, [&](const Dweller& other) { return &other != &dwellers[i] && other.group == dwellers[i].group; });
    if (bound || !dwellers[i].stays.empty() || !dwellers[i].needs.space.empty()) continue;
    for (std::size_t to = 0; to < homes.size(); ++to) {
      const std::size_t from = dwellers[i].home;
      if (to == from || !homes[to].unusable.empty() || !homes[from].unusable.empty() ||
          homes[to].type != homes[from].type)
        continue;
      std::vector<Dweller> after = dwellers;
      after[i].home = to;
      after.push_back(as_dweller);
      after.back().home = from;
      if (!Keeps(homes[from], UseOf(from, after)) || !Keeps(homes[to], UseOf(to, after))) continue;
      best = std::min(best.value_or(UINT64_MAX), dwellers[i].bytes);
    }
  }
  return best;
}

RC_GTEST_PROP(MakeRoom, MakesItAndMissesNoSingleMove, ()) {
  const std::vector<Home> homes = SomeHomes();
  const std::vector<Dweller> dwellers = SomeDwellers(homes);
  // Mostly more than a GPU has left: else it fits at once.
  std::uint64_t left = 0;
  for (std::size_t gpu = 0; gpu < homes.size(); ++gpu) {
    const Use use = UseOf(gpu, dwellers);
    if (homes[gpu].unusable.empty())
      left = std::max(left, std::min(homes[gpu].memory - use.promised, homes[gpu].place - use.claimed));
  }
  const Newcomer newcomer = Promised(left + Between(0, 3), *rc::gen::element<Part>(0, 0, 0, 30, 60));
  const auto found = MakeRoom(newcomer, homes, dwellers);
  const auto single = CheapestSingle(newcomer, homes, dwellers);
  RC_ASSERT(found || !single);
  if (!found) return;
  CheckMoves(found->room_on, *found, homes, dwellers);
  RC_ASSERT(homes[found->room_on].unusable.empty());
  std::vector<Dweller> after = After(dwellers, *found);
  after.push_back({.home = found->room_on, .needs = newcomer});
  RC_ASSERT(Keeps(homes[found->room_on], UseOf(found->room_on, after)));
  if (single) RC_ASSERT(found->bytes <= *single);
  RC_ASSERT(*MakeRoom(newcomer, homes, dwellers) == *found);
}

}  // namespace
}  // namespace tessera::sched
