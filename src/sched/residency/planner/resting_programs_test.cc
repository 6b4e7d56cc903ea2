// Programs that do not run: they rest, or are to be away from their GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/residency/planner/residency_planner.h"
#include "sched/testing/planner_test.h"

namespace tessera::sched {
namespace {

class RestingProgramsTest : public PlannerTest {};

TEST_F(RestingProgramsTest, AProgramThatRestsIsThawedBehindItsGateWhenItIsSettled) {
  Add(1, 30);
  AddBusy(2, 0);
  Allocate(2, 30);
  world_.Run(500 * kMillisecond);
  ASSERT_GT(Out(1), 0u);
  EXPECT_EQ(world_.Count(Kind::kThaw, 1), 0u);
  world_.Run(2 * kSecond);
  EXPECT_EQ(world_.Count(Kind::kSettle, 1), 1u);
  EXPECT_TRUE(Process(1).stopped && Process(1).thawed);
}

TEST_F(RestingProgramsTest, AProgramThatIsToBeAwayGivesAllUpAndDoesNotComeBackBeforeItMay) {
  AddBusy(1, 20);
  AddBusy(2, 10);
  Process(1).pinned = 2 * kChunk;
  Process(1).away = true;
  world_.Run(kSecond);
  EXPECT_EQ(Out(1), 18u);
  EXPECT_TRUE(Process(1).stopped && Process(1).thawed && Process(1).Left());
  EXPECT_EQ(world_.Count(Kind::kPark, 1), 1u);
  EXPECT_EQ(world_.Count(Kind::kMoveOut, 1), 1u);
  EXPECT_FALSE(Process(2).stopped);
  const std::size_t before = world_.history().size();
  world_.Run(kSecond);
  EXPECT_EQ(world_.history().size(), before);  // though it has work, and there is room

  Process(1).away = false;
  world_.Run(kSecond);
  EXPECT_EQ(Out(1), 0u);
  EXPECT_FALSE(Process(1).stopped || Process(1).parked);
}

// Its program on other GPUs would look for its memory in vain, and waits; so it does not rest as it came.
TEST_F(RestingProgramsTest, WhoWasAwayIsSettledForItsPeers) {
  Add(1, 20);
  Process(1).peers = Process(1).away = true;
  world_.Run(kSecond);
  ASSERT_EQ(Out(1), 20u);
  EXPECT_TRUE(Process(1).thawed && Process(1).keeps_peers);
  Process(1).away = false;
  world_.Run(kSecond);
  EXPECT_TRUE(Process(1).alone && !Process(1).keeps_peers && !Process(1).unsafe);
}

TEST_F(RestingProgramsTest, WhoWasAwayAndHasNoPeersRestsAsItCame) {
  Add(1, 20);
  Process(1).away = true;
  world_.Run(kSecond);
  Process(1).away = false;
  world_.Run(5 * kSecond);
  EXPECT_TRUE(Process(1).thawed);
  EXPECT_EQ(world_.Count(Kind::kStop, 1), 1u);
}

TEST_F(RestingProgramsTest, WhatWasParkedOnceIsParkedAgainAfterMoreHasGoneOut) {
  AddBusy(1, 20);
  Process(1).parked = true;  // nothing is out: it came so from another GPU
  Process(1).away = true;
  world_.Run(kSecond);
  EXPECT_EQ(Out(1), 20u);
  EXPECT_EQ(world_.Count(Kind::kPark, 1), 1u);
}

TEST_F(RestingProgramsTest, WhatIsAwayAsksForItsPinnedMemoryAndGetsItByMovesOfOthers) {
  Add(1, 0);
  Process(1).away = Process(1).stopped = Process(1).thawed = true;
  AddBusy(2, 40);
  world_.Run(100 * kMillisecond);
  EXPECT_EQ(Allocate(1, 2, true).kind, Answer::kWait);
  world_.Run(kSecond);
  EXPECT_EQ(Process(1).pinned, 2 * kChunk);
  EXPECT_EQ(Out(2), 2u);
  EXPECT_TRUE(Process(1).stopped);
}

TEST_F(RestingProgramsTest, WithoutAMoverAProgramWithNothingOutCanBeAway) {
  world_.state.mover_ready = false;
  world_.state.mover_hopeless = true;
  AddBusy(1, 20);
  Process(1).away = true;
  world_.Run(kSecond);
  EXPECT_TRUE(Process(1).stopped && Process(1).thawed && Process(1).Left());
  Process(1).away = false;
  world_.Run(kSecond);
  EXPECT_FALSE(Process(1).stopped);
}

TEST_F(RestingProgramsTest, WithAFileAProgramThatRestsStaysFrozen) {
  world_.state.file = 100 * kChunk;
  Add(1, 30);
  AddBusy(2, 0);
  Allocate(2, 30);
  world_.Run(5 * kSecond);
  ASSERT_GT(Out(1), 0u);
  EXPECT_TRUE(Process(1).stopped && !Process(1).thawed);
  EXPECT_TRUE(Process(1).may_be_in_file);
  world_.Work(2, false);
  world_.RemoveProcess(2);
  world_.Work(1, true);
  world_.Run(5 * kSecond);
  EXPECT_FALSE(Process(1).stopped);
  EXPECT_FALSE(Process(1).may_be_in_file);
}

// It was restored on another GPU than its driver knows.
TEST_F(RestingProgramsTest, AProgramThatCannotReachHostMemoryRunsWithAllOfItsMemory) {
  Add(1, 30);
  AddBusy(2, 0);
  Process(1).no_host_memory = true;
  Allocate(2, 30);
  world_.Run(5 * kSecond);
  ASSERT_GT(Out(1), 0u);
  EXPECT_TRUE(Process(1).stopped && !Process(1).thawed) << "it stays frozen while it rests";
  world_.Work(1, true);  // they take turns from now on
  world_.Run(20 * kSecond);
  EXPECT_GT(world_.programs.at(1).ran, kSecond);
  EXPECT_GT(world_.programs.at(2).ran, kSecond);
  EXPECT_EQ(world_.Count(ResidencyActionKind::kSettle, 1), 0u);
}

}  // namespace
}  // namespace tessera::sched
