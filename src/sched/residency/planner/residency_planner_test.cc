#include "sched/residency/planner/residency_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "sched/residency/room_admission.h"
#include "sched/testing/planner_test.h"

namespace tessera::sched {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

// Each has room of the books, and one of them none of the GPU: what it allocates fails until there is place.
TEST_F(PlannerTest, WhatIsMoreThanFitsGoesOutThoughNobodyAsks) {
  AddBusy(1, 30);
  AddBusy(2, 20);
  world_.Run(kSecond);
  EXPECT_LE(world_.state.Used(), world_.state.capacity);
  EXPECT_EQ(Out(1) + Out(2), 10u);
}

// ---- promises and limits ----

TEST_F(PlannerTest, AContextTakesItsRoomFromOthersAndWaitsForNoTurn) {
  AddBusy(1, 30);
  AddBusy(2, 0);
  EXPECT_EQ(Allocate(2, 30).kind, Answer::kWait);
  world_.Run(20 * kSecond);
  ASSERT_TRUE(world_.planner().TakesTurns());
  Add(3, 0);
  EXPECT_EQ(world_.Allocate(3, 2 * kChunk, /*pins=*/true).kind, Answer::kWait);
  world_.Run(200 * kMillisecond);  // two chunks out; a turn takes seconds
  EXPECT_EQ(Process(3).pinned, 2 * kChunk);
  EXPECT_EQ(world_.Count(Kind::kStop, 3), 0u);
}

TEST_F(PlannerTest, AContextIsRefusedWhatWasPromisedToOthersAndMemoryThatMovesIsNot) {
  Add(1, 0);
  world_.VGpu(1).request = 30 * kChunk;
  Add(2, 0);
  const RoomAnswer refused = world_.Allocate(2, 11 * kChunk, /*pins=*/true);
  EXPECT_EQ(refused.reason, Reason::kKeptByOthers);
  EXPECT_EQ(refused.most, 10 * kChunk);
  EXPECT_EQ(Text(refused).find("at most 10 GiB can be had at once"), 0u);
  EXPECT_EQ(Allocate(2, 30).kind, Answer::kGrant) << "it is lent";
  EXPECT_EQ(world_.Allocate(1, 30 * kChunk, /*pins=*/true).kind, Answer::kWait) << "it is taken back";
  world_.Finish();
  EXPECT_EQ(Process(1).pinned, 30 * kChunk);
  EXPECT_EQ(Process(2).Movable(), 10 * kChunk);
}

TEST_F(PlannerTest, APromiseIsLentWhenItsVGpuHasRestedAndNotInAShortGap) {
  AddBusy(1, 30);
  world_.VGpu(1).request = 30 * kChunk;
  AddBusy(2, 10);
  world_.Look();
  EXPECT_EQ(Allocate(2, 20).reason, Reason::kKeptByOthers);
  world_.Work(1, false);
  EXPECT_EQ(Allocate(2, 20).kind, Answer::kWait);
  world_.Run(5 * kSecond);
  EXPECT_EQ(Out(1), 0u);
  world_.Run(6 * kSecond);
  EXPECT_EQ(Out(1), 20u);
  world_.Work(1, true);
  world_.Run(2 * kSecond);
  EXPECT_EQ(Out(1), 0u);
  EXPECT_FALSE(Process(1).stopped);
}

TEST_F(PlannerTest, WhatIsBeyondAPromiseIsInTurnsWithTheRest) {
  AddBusy(1, 20);
  world_.VGpu(1).request = 10 * kChunk;
  AddBusy(2, 20);
  AddBusy(3, 0);
  EXPECT_EQ(Allocate(3, 20).kind, Answer::kWait);
  world_.Run(60 * kSecond);
  EXPECT_GE(Process(1).Movable(), 10 * kChunk);
  for (ProcessId id : {1, 2, 3}) EXPECT_GT(world_.programs.at(id).ran, 20 * kSecond) << id;
}

// Contexts, memory that others pinned since, programs outside of Tessera.
TEST_F(PlannerTest, PromisesThatAreMoreThanThereIsAreKeptAsFarAsItGoes) {
  AddBusy(1, 20);
  AddBusy(2, 20);
  for (VgpuId id : {1, 2}) world_.VGpu(id).request = 21 * kChunk;
  EXPECT_EQ(Allocate(2, 1).kind, Answer::kWait);
  world_.Run(60 * kSecond);
  EXPECT_EQ(Process(2).allocated, 21 * kChunk);
  for (ProcessId id : {1, 2}) EXPECT_GT(world_.programs.at(id).ran, 20 * kSecond) << id;
}

TEST_F(PlannerTest, ALimitThatIsLoweredMovesMemoryOutAtOnce) {
  Add(1, 20);
  AddBusy(2, 20);
  for (ProcessId id : {1, 2}) {
    world_.VGpu(static_cast<VgpuId>(id)).limit = 5 * kChunk;
    world_.Look();
    world_.Run(kSecond);
    EXPECT_EQ(Process(id).Movable(), 5 * kChunk);
    EXPECT_EQ(Out(id), 15u);
  }
  EXPECT_FALSE(Process(2).stopped) << "it goes on, from host memory";
}

// ---- victims ----

TEST_F(PlannerTest, OfOneVGpuThoseWithoutWorkLoseMemoryFirstAndOfTheseTheLargest) {
  VGpuResidence& vgpu = world_.AddVGpu(1);
  vgpu.limit = 40 * kChunk;
  for (const auto& [id, chunks, works] :
       {std::tuple(1ull, 16ull, true), std::tuple(2ull, 8ull, false), std::tuple(3ull, 10ull, false)}) {
    world_.AddProcess(1, id, chunks * kChunk);
    world_.programs.at(id).drains_for = 0;
    world_.Work(id, works);
  }
  world_.AddProcess(1, 4);
  EXPECT_EQ(Allocate(4, 20).kind, Answer::kWait);
  EXPECT_EQ(world_.Count(Kind::kStop, 1), 0u);
  EXPECT_THAT(world_.history(), ElementsAre(Is(Kind::kGrowPool, 0), Is(Kind::kStop, 3), Is(Kind::kStop, 2),
                                            Is(Kind::kMoveOut, 3), Is(Kind::kMoveOut, 2)));
  world_.Finish();
  EXPECT_EQ(Out(1), 0u);
  EXPECT_EQ(Out(3), 10u);
  EXPECT_EQ(Out(2), 4u) << "no more than is needed";
}

TEST_F(PlannerTest, AnotherOneIsAskedWhereAVictimDoesNotComeToAStand) {
  VGpuResidence& vgpu = world_.AddVGpu(1);
  vgpu.limit = 20 * kChunk;
  world_.AddProcess(1, 1, 12 * kChunk);
  world_.AddProcess(1, 2, 6 * kChunk);
  world_.AddProcess(1, 3);
  world_.programs.at(1).drains_for = kNever;
  EXPECT_EQ(Allocate(3, 8).kind, Answer::kWait);
  world_.Run(kSecond);
  EXPECT_EQ(Out(1), 0u);
  EXPECT_EQ(Out(2), 6u);
}

TEST_F(PlannerTest, APushBringsOutWhatMayGoAndSaysWhatMayNot) {
  Add(1, 8);
  world_.VGpu(1).swap = 3 * kChunk;
  Process(1).push = 8 * kChunk;
  world_.Finish();
  EXPECT_EQ(Out(1), 3u);
  EXPECT_THAT(world_.history(), Contains(ResidencyAction{Kind::kEndPush, 1, 5 * kChunk}));
}

// ---- moves ----

TEST_F(PlannerTest, MemoryComesBackWhenThereIsWorkForItAndNotBefore) {
  Add(1, 30);
  AddBusy(2, 0);
  EXPECT_EQ(Allocate(2, 20).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Out(1), 10u);
  world_.Work(2, false);
  world_.RemoveProcess(2);
  world_.Finish();
  EXPECT_EQ(Out(1), 10u) << "there is room, but nobody needs it";
  world_.Work(1, true);
  world_.Finish();
  EXPECT_EQ(Out(1), 0u);
  EXPECT_FALSE(Process(1).stopped);
}

TEST_F(PlannerTest, MemoryThatWasPushedOutOfALimitStaysOutUntilThereIsWork) {
  Add(1, 10, 20);
  Process(1).push = 6 * kChunk;
  world_.Finish();
  EXPECT_EQ(Out(1), 6u);
  EXPECT_EQ(world_.Count(Kind::kMoveIn, 1), 0u);
  world_.Work(1, true);
  world_.Finish();
  EXPECT_EQ(Out(1), 0u);
}

TEST_F(PlannerTest, AProgramIsSettledBeforeItRunsFromHostMemory) {
  AddBusy(1, 30, 20);
  Process(1).push = 10 * kChunk;
  world_.Finish();
  EXPECT_EQ(Out(1), 10u);
  EXPECT_FALSE(Process(1).stopped);
  ASSERT_GE(world_.Count(Kind::kSettle, 1), 1u);
  const auto& history = world_.history();
  const auto settle = std::ranges::find(history, Kind::kSettle, &ResidencyAction::kind);
  const auto run = std::ranges::find(history, Kind::kRun, &ResidencyAction::kind);
  EXPECT_LT(settle, run);
}

TEST_F(PlannerTest, AProgramThatComesWithAddressesThatAreNotValidIsStoppedAtOnce) {
  ProcessResidence& process = Add(1, 10);
  process.unsafe = true;
  process.swapped = 2 * kChunk;
  EXPECT_THAT(world_.PlanOnly().actions, Contains(Is(Kind::kStop, 1)));
}

TEST_F(PlannerTest, AMoverIsWantedBeforeItIsNeededAndItsPoolGrowsAheadOfNeed) {
  Add(1, 20);
  EXPECT_FALSE(world_.PlanOnly().needs_mover);
  EXPECT_THAT(world_.PlanOnly().actions, IsEmpty());
  Add(2, 5);
  EXPECT_TRUE(world_.PlanOnly().needs_mover);
  EXPECT_THAT(world_.PlanOnly().actions, ElementsAre(ResidencyAction{Kind::kGrowPool, 0, 5 * kChunk}));
  world_.state.pool.most = 3 * kChunk;
  EXPECT_THAT(world_.PlanOnly().actions, ElementsAre(ResidencyAction{Kind::kGrowPool, 0, 3 * kChunk}));
  world_.state.pool.wanted = 3 * kChunk;
  EXPECT_THAT(world_.PlanOnly().actions, IsEmpty());
}

TEST_F(PlannerTest, WithoutAMoverNobodyIsKeptStopped) {
  AddBusy(1, 30).stopped = true;
  AddBusy(2, 30).stopped = true;
  world_.state.mover_ready = false;
  world_.Look();
  EXPECT_FALSE(Process(1).stopped);
  EXPECT_FALSE(Process(2).stopped);
  EXPECT_TRUE(world_.PlanOnly().needs_mover || !world_.PlanOnly().pressed);
}

// ---- turns ----

TEST_F(PlannerTest, TwoThatDoNotFitTakeTurns) {
  AddBusy(1, 30);
  AddBusy(2, 0);
  EXPECT_EQ(Allocate(2, 30).kind, Answer::kWait);
  world_.Run(30 * kSecond);
  EXPECT_TRUE(world_.planner().TakesTurns());
  const double first = static_cast<double>(world_.programs.at(1).ran),
               second = static_cast<double>(world_.programs.at(2).ran);
  EXPECT_GT(first, 11e9);
  EXPECT_GT(second, 11e9);
  world_.RemoveProcess(1);
  world_.Run(5 * kSecond);
  EXPECT_FALSE(world_.planner().TakesTurns());
  EXPECT_FALSE(Process(2).stopped);
}

TEST_F(PlannerTest, ThoseThatMustGoComeFirstInAPlan) {
  AddBusy(1, 0);
  AddBusy(2, 30);
  EXPECT_EQ(Allocate(1, 30).kind, Answer::kWait);
  world_.Run(kSecond);
  AddBusy(3, 0).wanted = 20 * kChunk;
  world_.VGpu(3).priority = 2;
  Process(3).wanted_at = world_.now;
  const auto changed = world_.PlanOnly().changed;
  ASSERT_GE(changed.size(), 2u);
  EXPECT_FALSE(changed.front().runs);
  EXPECT_TRUE(changed.back().runs);
}

TEST_F(PlannerTest, OneWhoseMemoryIsPromisedTakesNoTurns) {
  AddBusy(1, 10);
  world_.VGpu(1).request = 10 * kChunk;
  AddBusy(2, 25);
  AddBusy(3, 0);
  EXPECT_EQ(Allocate(3, 25).kind, Answer::kWait);
  world_.Run(10 * kSecond);
  EXPECT_EQ(world_.Count(Kind::kStop, 1), 0u);
  EXPECT_EQ(Process(1).room, 10 * kChunk);
}

TEST_F(PlannerTest, AProgramThatGivesUpNothingDoesNotKeepOthersForEver) {
  AddBusy(1, 30);
  world_.programs.at(1).drains_for = kNever;  // a debugger stopped it
  AddBusy(2, 8);
  Process(2).swapped = 10 * kChunk;
  Process(2).allocated = 18 * kChunk;
  world_.Run(60 * kSecond);
  EXPECT_GT(world_.programs.at(2).ran, 10 * kSecond) << "partly from host memory";
}

// It comes to a stand some time after it was stopped. Until then it must not go on.
TEST_F(PlannerTest, LessThanAChunkComesBackToo) {
  AddBusy(1, 30, 31);
  Process(1).swapped = kChunk / 4;
  Process(1).allocated += kChunk / 4;
  *world_.VGpu(1).limit -= kChunk / 2;
  world_.Run(kSecond);
  EXPECT_EQ(Process(1).swapped, 0u);
  EXPECT_EQ(world_.Count(Kind::kStop, 1), 1u);
  EXPECT_FALSE(Process(1).stopped);
}

// ---- exchange ----

TEST_F(PlannerTest, HotMemoryChangesPlacesWithColdAndNotAllTheTime) {
  AddBusy(1, 20, 20);
  Process(1).swapped = 20 * kChunk;
  Process(1).allocated = 40 * kChunk;
  world_.state.pool = {.size = 60 * kChunk, .used = 20 * kChunk, .wanted = 60 * kChunk, .most = 60 * kChunk};
  world_.Finish();
  world_.bytes_per_second = 20'000'000'000;
  const std::size_t before = world_.history().size();
  Process(1).hot_out = 12 * kChunk;  // and says so for ever
  const Nanos ran = world_.programs.at(1).ran;
  world_.Run(30 * kSecond);
  std::uint64_t most = 0;
  for (std::size_t i = before; i < world_.history().size(); ++i) {
    if (world_.history()[i].kind == Kind::kMoveOut) most = std::max(most, world_.history()[i].bytes);
  }
  EXPECT_EQ(most, 8 * kChunk) << "at a time";
  EXPECT_GE(world_.Count(Kind::kMoveOut, 1), 3u);
  EXPECT_GT(world_.programs.at(1).ran - ran, 26 * kSecond) << "a tenth of the time goes into it";
}

TEST_F(PlannerTest, ThereIsNoExchangeWithoutPlaceInThePool) {
  AddBusy(1, 20, 20);
  Process(1).swapped = 20 * kChunk;
  Process(1).allocated = 40 * kChunk;
  Process(1).hot_out = 12 * kChunk;
  world_.state.pool = {.size = 20 * kChunk, .used = 20 * kChunk, .wanted = 20 * kChunk, .most = 20 * kChunk};
  world_.Run(5 * kSecond);
  EXPECT_EQ(world_.Count(Kind::kMoveOut, 1), 0u);
}

// ---- peers ----

// They may have turns of their own, on their GPU, which come while this GPU is another's.
TEST_F(PlannerTest, PeersWaitForMovesAndForNoTurn) {
  AddBusy(1, 30);
  Process(1).peers = true;
  AddBusy(2, 0);
  EXPECT_EQ(Allocate(2, 30).kind, Answer::kWait);
  world_.Run(20 * kSecond);
  ASSERT_TRUE(world_.planner().TakesTurns());
  EXPECT_GT(world_.Count(Kind::kFreePeers, 1), 1u) << "in each turn of the other";
  EXPECT_EQ(world_.Count(Kind::kSettle, 1), world_.Count(Kind::kFreePeers, 1));
  EXPECT_EQ(world_.Count(Kind::kFreePeers, 2), 0u);
  EXPECT_GT(world_.Count(Kind::kRun, 1), 1u);
}

TEST_F(PlannerTest, PeersThatHaveNoTurnEitherWaitUntilMemoryOfOthersIsIn) {
  world_.bytes_per_second = 4 * kChunk;  // the last chunk comes in a quarter of a second after the last has gone out
  AddBusy(1, 30);
  Process(1).peers = true;
  AddBusy(2, 0);
  Allocate(2, 30);
  world_.Run(20 * kSecond);
  for (const VgpuId has : {1u, 2u, 1u, 2u}) {
    for (const VgpuId vgpu : {1u, 2u}) world_.VGpu(vgpu).gang = vgpu == has ? GangTurn::kHas : GangTurn::kWaits;
    const std::size_t settled = world_.Count(Kind::kSettle, 1);
    for (int i = 0; i < 200; ++i) {
      world_.Run(50 * kMillisecond);
      if (Process(2).moving == Moving::kIn) ASSERT_EQ(world_.Count(Kind::kSettle, 1), settled);
    }
    if (has == 2) EXPECT_EQ(world_.Count(Kind::kSettle, 1), settled + 1);
    EXPECT_FALSE(Process(has).stopped);
  }
}

TEST_F(PlannerTest, PeersOfAProgramThatRestsGoOnBeforeItIsThawed) {
  Add(1, 30);
  Process(1).peers = true;
  AddBusy(2, 0);
  Allocate(2, 30);
  world_.Run(900 * kMillisecond);
  ASSERT_GT(Out(1), 0u);
  EXPECT_TRUE(Process(1).alone);
  world_.Run(2 * kSecond);
  EXPECT_TRUE(Process(1).thawed && !Process(1).alone);
  EXPECT_EQ(world_.Count(Kind::kSettle, 1), 1u);
}

TEST_F(PlannerTest, WhatPeersMayReachIsNotLeftInTheFile) {
  world_.state.file = 100 * kChunk;
  Add(1, 30);
  Process(1).peers = true;
  AddBusy(2, 0);
  Allocate(2, 30);
  world_.Run(5 * kSecond);
  ASSERT_GT(Out(1), 0u);
  EXPECT_TRUE(Process(1).alone && !Process(1).may_be_in_file);
  EXPECT_EQ(world_.Count(Kind::kRest, 1), 0u);
}

// ---- the policy and the log ----

TEST_F(PlannerTest, APlanTellsEachGoalOnce) {
  AddBusy(1, 30);
  Add(2, 30).swapped = kChunk;
  const auto changed = world_.PlanOnly().changed;
  EXPECT_EQ(changed.size(), 2u);
  EXPECT_THAT(world_.PlanOnly().changed, IsEmpty());
}

TEST_F(PlannerTest, WhatIsDecidedIsToldToPeople) {
  AddBusy(1, 8);
  world_.Look();
  EXPECT_EQ(world_.planner().Why(world_.state), "all that is in use fits: 8 GiB of 40 GiB");
  AddBusy(2, 0);
  Allocate(2, 36);
  EXPECT_NE(world_.planner().Why(world_.state).find("2 active vGPUs use 44 GiB of 40 GiB"), std::string::npos);
}

}  // namespace
}  // namespace tessera::sched
