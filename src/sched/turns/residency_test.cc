#include "sched/turns/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"
#include "sched/testing/residency_test.h"

namespace tessera::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Mode = Residency::Mode;

TEST_F(ResidencyTest, WhatFitsRunsTogether) {
  Add(1, 20);
  Add(2, 20);
  EXPECT_THAT(TakeDecisions(), IsEmpty()) << "idle ones run, with nothing";
  Active(1);
  Active(2);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 20), Runs(2, 20)));
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTogether);
  EXPECT_EQ(policy_.NextDeadline(), kNever);
  EXPECT_EQ(policy_.TurnLength(), 0);
  EXPECT_EQ(policy_.Why(), "all that is in use fits: 40 B of 40 B");
}

TEST_F(ResidencyTest, AnIdleOneKeepsWhatNobodyNeeds) {
  AddActive(1, 30);
  Idle(1);
  EXPECT_THAT(Obey(), IsEmpty());
  Add(2, 25);
  Active(2);
  EXPECT_THAT(Obey(), ElementsAre(Runs(1, 15), Runs(2, 25)));
  Idle(2);
  EXPECT_THAT(Obey(), IsEmpty()) << "nothing is loaded for idle ones";
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTogether);
}

TEST_F(ResidencyTest, TheLongestIdleLosesFirst) {
  for (VgpuId id : {1, 2, 3}) {
    AddActive(id, 10);
    Advance(kMs);
    Idle(id);
  }
  Advance(kMs);
  Active(1);
  Advance(kMs);
  Idle(1);
  AddActive(4, 15);
  EXPECT_EQ(DecisionFor(1), Runs(1, 10));
  EXPECT_EQ(DecisionFor(2), Runs(2, 5));
  EXPECT_EQ(DecisionFor(3), Runs(3, 10));
}

TEST_F(ResidencyTest, OfThoseIdleSinceTheSameTimeTheLowestClassLosesFirst) {
  AddActive(1, 20, 100, 9);
  AddActive(2, 20, 100, 2);
  Idle(1);
  Idle(2);
  AddActive(3, 10);
  EXPECT_EQ(DecisionFor(1), Runs(1, 10));
  EXPECT_EQ(DecisionFor(2), Runs(2, 20));
}

TEST_F(ResidencyTest, AnIdleOneThatWasEvictedIsLoadedWhenItBecomesActive) {
  AddActive(1, 30);
  Idle(1);
  AddActive(2, 20);
  EXPECT_EQ(DecisionFor(1), Runs(1, 20));
  Demand(2, 10);
  Active(1);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30), Runs(2, 10)));
}

TEST_F(ResidencyTest, WhatDoesNotFitTakesTurns) {
  AddActive(1, 30);
  Add(2, 30);
  Active(2);
  EXPECT_THAT(Obey(), ElementsAre(Stops(2, 0)));
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTurns);
  EXPECT_EQ(policy_.TurnLength(), 250 * kMs) << "1 has all it needs: its turn began at once";
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs);
  EXPECT_EQ(policy_.Why(), "2 active vGPUs use 60 B of 40 B: turns of 0.25 s");
  Advance(250 * kMs);
  EXPECT_THAT(Obey(kSecond), ElementsAre(Stops(1, 10), Runs(2, 30)));
}

TEST_F(ResidencyTest, WhoWaitsTheLeastKeepsTheMost) {
  AddActive(1, 30);
  AddActive(2, 20);
  AddActive(3, 25);
  AddActive(4, 40);
  Resident(3, 5);
  Resident(2, 8);
  Resident(4, 7);
  EXPECT_EQ(DecisionFor(2), Stops(2, 8));
  EXPECT_EQ(DecisionFor(3), Stops(3, 2));
  EXPECT_EQ(DecisionFor(4), Stops(4, 0));
}

TEST_F(ResidencyTest, IdleOnesLoseBeforeActiveOnesThatWait) {
  AddActive(1, 10);
  Idle(1);
  AddActive(2, 25);
  Add(3, 30);
  Resident(3, 12);
  Active(3);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 3), Stops(3, 12)));
}

TEST_F(ResidencyTest, AHigherClassNeverWaitsForALowerOne) {
  AddActive(1, 30, 100, 8);
  AddActive(2, 30, 100, 8);
  Advance(100 * kMs);
  Add(3, 20, 100, 2);
  Active(3);
  EXPECT_THAT(Obey(), ElementsAre(Stops(1, 20), Runs(3, 20)));
  Advance(3600 * kSecond);
  EXPECT_THAT(Obey(), IsEmpty());
  Idle(3);
  EXPECT_THAT(Obey(), ElementsAre(Runs(1, 30), Runs(3, 10))) << "1 goes on with its turn";
  EXPECT_EQ(policy_.NextDeadline(), now_ + 150 * kMs + 100 * kMs) << "at least a turn's least length";
}

TEST_F(ResidencyTest, ALowerClassRunsAlongWhereItFits) {
  AddActive(1, 20, 100, 2);
  AddActive(2, 20, 100, 8);
  AddActive(3, 20, 100, 8);
  EXPECT_EQ(DecisionFor(2), Runs(2, 20));
  Advance(250 * kMs);
  EXPECT_THAT(Obey(), ElementsAre(Stops(2, 0), Runs(3, 20))) << "and takes turns there";
  AddActive(4, 20, 100, 4);
  EXPECT_EQ(DecisionFor(3), Stops(3, 0));
  EXPECT_EQ(DecisionFor(4), Runs(4, 20));
}

TEST_F(ResidencyTest, AChangeOfPriorityTakesEffectAtOnce) {
  AddActive(1, 30);
  AddActive(2, 30);
  Update(2, 100, 1);
  EXPECT_THAT(Obey(), ElementsAre(Stops(1, 10), Runs(2, 30)));
}

TEST_F(ResidencyTest, UnknownIdsAreIgnored) {
  for (VgpuId id : {7, 8}) {
    Update(id, 1, 1);
    Remove(id);
    facts_[id] = {.vgpu = id, .demand = 1, .resident = 1, .active = true};
    Ready(id, 1);
    EXPECT_EQ(DecisionFor(id), Stops(id, 0));
    facts_.erase(id);
  }
  AddActive(1, 30);
  policy_.Add(1, 1, 0, now_);
  Observe();
  EXPECT_EQ(DecisionFor(1), Runs(1, 30));
}

TEST_F(ResidencyTest, HugeDemandsDoNotOverflow) {
  SetCapacity(UINT64_MAX);
  for (VgpuId id : {1, 2, 3}) AddActive(id, 1ull << 63);
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTurns);
  EXPECT_EQ(DecisionFor(1), Runs(1, 1ull << 63));
  EXPECT_EQ(DecisionFor(2).runs, false);
  EXPECT_EQ(policy_.Why(), "3 active vGPUs use 16777216 TiB of 16777216 TiB: turns of 0.25 s");
  Remove(2);
  Remove(3);
  Advance(2 * kSecond);
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTogether);
}

TEST_F(ResidencyTest, WithoutCapacitySomebodyRunsAllTheSame) {
  SetCapacity(0);
  AddActive(1, 30);
  AddActive(2, 30);
  EXPECT_EQ(DecisionFor(1), Runs(1, 0));
  EXPECT_EQ(DecisionFor(2), Stops(2, 0));
}

TEST(ResidencyConfigTest, NonsenseIsMended) {
  Residency policy({.turn_min = -1, .turn_max = -5, .most_moving = 0.0 / 0.0, .comfort = 7, .settle = kNever});
  const ResidencyFacts facts[] = {{.vgpu = 1, .demand = 30, .active = true}, {.vgpu = 2, .demand = 30, .active = true}};
  for (const ResidencyFacts& fact : facts) policy.Add(fact.vgpu, 0, 8, 0);
  policy.Observe(facts, 40, 0);
  policy.Ready(1, 0, kNever);
  EXPECT_GT(policy.NextDeadline(), 0);
  EXPECT_EQ(policy.Observe(facts, 40, kNever)[1], (ResidencyDecision{2, 30, true}));
}

}  // namespace
}  // namespace tessera::sched
