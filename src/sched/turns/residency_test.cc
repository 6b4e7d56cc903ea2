#include "sched/turns/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace tessera::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Mode = Residency::Mode;

constexpr Nanos kMs = kMillisecond;
constexpr std::uint64_t kCapacity = 40;

ResidencyDecision Runs(VgpuId id, std::uint64_t target) { return {id, target, true}; }
ResidencyDecision Stops(VgpuId id, std::uint64_t target) { return {id, target, false}; }

// A server that makes everything true in no time, but for what a test says of it. The policy observes each change.
class ResidencyTest : public testing::Test {
 protected:
  void Add(VgpuId id, std::uint64_t demand, std::uint32_t weight = 100, std::uint32_t priority = 8) {
    policy_.Add(id, weight, priority, now_);
    facts_[id] = {.vgpu = id, .demand = demand};
    told_[id] = Runs(id, 0);
    Observe();
  }

  void AddActive(VgpuId id, std::uint64_t demand, std::uint32_t weight = 100, std::uint32_t priority = 8) {
    Add(id, demand, weight, priority);
    Active(id);
    Obey();
  }

  void Update(VgpuId id, std::uint32_t weight, std::uint32_t priority) {
    policy_.Update(id, weight, priority, now_);
    Observe();
  }

  void Remove(VgpuId id) {
    policy_.Remove(id, now_);
    facts_.erase(id);
    Observe();
  }

  void SetCapacity(std::uint64_t bytes) {
    capacity_ = bytes;
    Observe();
  }

  void Demand(VgpuId id, std::uint64_t bytes) {
    facts_.at(id).demand = bytes;
    Observe();
  }

  void Resident(VgpuId id, std::uint64_t bytes) {
    facts_.at(id).resident = bytes;
    Observe();
  }

  void Active(VgpuId id) {
    facts_.at(id).active = true;
    Observe();
  }

  void Idle(VgpuId id) {
    facts_.at(id).active = false;
    Observe();
  }

  void Ready(VgpuId id, Nanos moving, bool typical = true) {
    policy_.Ready(id, now_, moving, typical);
    Observe();
  }

  void Advance(Nanos by) {
    now_ += by;
    Observe();
  }

  void Observe() {
    std::vector<ResidencyFacts> facts;
    for (const auto& [_, known] : facts_) facts.push_back(known);
    const auto decided = policy_.Observe(facts, capacity_, now_);
    decided_.assign(decided.begin(), decided.end());
  }

  ResidencyDecision DecisionFor(VgpuId id) const { return *std::ranges::find(decided_, id, &ResidencyDecision::vgpu); }

  // Those that changed since the last call.
  std::vector<ResidencyDecision> TakeDecisions() {
    std::vector<ResidencyDecision> changed;
    for (const ResidencyDecision& decision : decided_) {
      if (std::exchange(told_.at(decision.vgpu), decision) != decision) changed.push_back(decision);
    }
    return changed;
  }

  // Takes the decisions and makes them true; `moving` is how long that took of each that waits for it.
  std::vector<ResidencyDecision> Obey(Nanos moving = 0) {
    const std::vector<ResidencyDecision> all = TakeDecisions();
    for (const ResidencyDecision& decision : all) {
      std::uint64_t& resident = facts_.at(decision.vgpu).resident;
      resident = decision.runs ? decision.target : std::min(resident, decision.target);
    }
    Observe();
    for (const ResidencyDecision& decision : all) {
      if (decision.runs) Ready(decision.vgpu, moving);
    }
    EXPECT_THAT(TakeDecisions(), IsEmpty());
    return all;
  }

  Residency policy_;
  Nanos now_ = kSecond;
  std::uint64_t capacity_ = kCapacity;
  std::map<VgpuId, ResidencyFacts> facts_;
  std::vector<ResidencyDecision> decided_;
  std::map<VgpuId, ResidencyDecision> told_;
};

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

TEST_F(ResidencyTest, ATurnsLengthFollowsFromTheMeasuredMove) {
  AddActive(1, 30);
  AddActive(2, 30);
  Advance(250 * kMs);
  Obey(kSecond);
  EXPECT_EQ(policy_.TurnLength(), 4500 * kMs) << "a first load took no time, this one a second: half on average";
  Advance(4500 * kMs);
  Obey(kSecond);
  EXPECT_EQ(policy_.TurnLength(), 9 * kSecond);
  Advance(9 * kSecond);
  Obey(100 * kSecond);
  EXPECT_EQ(policy_.TurnLength(), 30 * kSecond);
}

// The first move out waits for host memory to be made; the next ones do not.
TEST_F(ResidencyTest, AMoveThatIsNotTypicalIsForgotten) {
  AddActive(1, 30);
  AddActive(2, 30);
  Advance(250 * kMs);
  ASSERT_THAT(TakeDecisions(), ElementsAre(Stops(1, 10), Runs(2, 30)));
  Ready(2, 5 * kSecond, /*typical=*/false);
  EXPECT_GE(policy_.TurnLength(), 20 * kSecond) << "as long as nothing better is known";
  for (int turn = 0; turn < 2; ++turn) {
    Advance(30 * kSecond);
    Obey(100 * kMs);
  }
  EXPECT_EQ(policy_.TurnLength(), 900 * kMs) << "as of moves of 0.1 s";
}

TEST_F(ResidencyTest, ATurnBeginsWhenAllIsLoaded) {
  AddActive(1, 30);
  AddActive(2, 30);
  Advance(250 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Stops(1, 10), Runs(2, 30)));
  EXPECT_EQ(policy_.NextDeadline(), kNever);
  EXPECT_EQ(policy_.TurnLength(), 0);
  Advance(3600 * kSecond);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  Ready(1, 0);  // lies
  EXPECT_EQ(policy_.NextDeadline(), kNever);
  Ready(2, 20 * kMs);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs);
}

TEST_F(ResidencyTest, WeightsMakeTurnsLonger) {
  AddActive(1, 30, 100);
  AddActive(2, 30, 300);
  EXPECT_EQ(policy_.TurnLength(), 250 * kMs);
  Advance(250 * kMs);
  Obey(0);
  EXPECT_EQ(policy_.TurnLength(), 750 * kMs) << "the shortest is long enough, the ratio holds";
  Update(2, 100, 8);
  EXPECT_EQ(policy_.TurnLength(), 250 * kMs);
}

TEST_F(ResidencyTest, AHolderThatBecomesIdleGivesTheTurnOnAndKeepsWhatFits) {
  AddActive(1, 30);
  AddActive(2, 25);
  Advance(kMs);
  Idle(1);
  EXPECT_THAT(Obey(), ElementsAre(Runs(1, 15), Runs(2, 25)));
  Advance(kMs);
  Active(1);
  EXPECT_THAT(Obey(), ElementsAre(Stops(1, 15)));
}

TEST_F(ResidencyTest, AGapShorterThanItsMoveDoesNotEndATurn) {
  AddActive(1, 30);
  AddActive(2, 25);
  Advance(250 * kMs);
  Obey(60 * kMs);
  Advance(10 * kMs);
  Idle(2);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 60 * kMs);
  Advance(50 * kMs);
  Active(2);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  Advance(10 * kMs);
  Idle(2);
  Advance(60 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30), Runs(2, 10)));
}

TEST_F(ResidencyTest, AGraceDoesNotOutlastTheTurn) {
  AddActive(1, 30);
  AddActive(2, 25);
  Advance(250 * kMs);
  Obey(kSecond);
  Advance(policy_.TurnLength() - 10 * kMs);
  Idle(2);
  Advance(10 * kMs);
  EXPECT_EQ(DecisionFor(1), Runs(1, 30));
}

TEST_F(ResidencyTest, RemovingTheHolderGivesTheTurnOn) {
  AddActive(1, 30);
  AddActive(2, 25);
  Remove(1);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(2, 25)));
}

TEST_F(ResidencyTest, ATurnGoesOnWhileNobodyWaitsForIt) {
  AddActive(1, 50);
  EXPECT_EQ(DecisionFor(1), Runs(1, 40)) << "more than there is: the rest lies in host memory";
  EXPECT_EQ(policy_.Why(), "1 active vGPU uses 50 B of 40 B: it runs partly from host memory");
  EXPECT_EQ(policy_.NextDeadline(), kNever);
  Advance(3600 * kSecond);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  Add(2, 30);
  Active(2);
  EXPECT_THAT(Obey(), ElementsAre(Stops(1, 10), Runs(2, 30))) << "its time was over long ago";
}

TEST_F(ResidencyTest, WhoFitsBesideTheHolderRunsAlong) {
  AddActive(1, 30);
  AddActive(2, 30);
  AddActive(3, 10);
  EXPECT_EQ(DecisionFor(1), Runs(1, 30));
  EXPECT_EQ(DecisionFor(2), Stops(2, 0));
  EXPECT_EQ(DecisionFor(3), Runs(3, 10));
  for (int turn = 0; turn < 6; ++turn) {
    Advance(250 * kMs);
    const VgpuId stops = 1 + turn % 2;
    EXPECT_THAT(Obey(), ElementsAre(stops == 1 ? Stops(1, 0) : Runs(1, 30), stops == 1 ? Runs(2, 30) : Stops(2, 0)))
        << "3 has had its turn each time; " << turn;
  }
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

TEST_F(ResidencyTest, TheHolderKeepsItsTurnWhenDemandsChange) {
  AddActive(1, 20);
  AddActive(2, 25);
  AddActive(3, 15);
  EXPECT_EQ(DecisionFor(3), Runs(3, 15));
  Advance(100 * kMs);
  Demand(1, 30);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30), Stops(3, 10)));
  Advance(50 * kMs);
  Ready(1, kSecond);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 100 * kMs) << "loading in the middle of a turn is a part of it";
  SetCapacity(20);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 20), Stops(3, 0)));
}

TEST_F(ResidencyTest, ALoadInTheMiddleOfATurnDoesNotMakeItLonger) {
  AddActive(1, 20);
  AddActive(2, 40);
  Demand(1, 30);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30)));
  Advance(250 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Stops(1, 0), Runs(2, 40)));
}

TEST_F(ResidencyTest, TurnsEndWhenAllFitsWithRoomToSpareForAWhile) {
  AddActive(1, 30);
  AddActive(2, 30);
  Demand(2, 9);
  Obey();
  EXPECT_EQ(DecisionFor(2), Runs(2, 9));
  EXPECT_EQ(policy_.NextDeadline(), kNever) << "39 of 40 are no comfort";
  EXPECT_EQ(policy_.Why(), "all that is in use fits for now: 39 B of 40 B");
  Demand(2, 8);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 2 * kSecond);
  Advance(kSecond);
  Demand(2, 9);
  Demand(2, 8);
  Obey();
  Advance(2 * kSecond - 1);
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTurns);
  Advance(1);
  EXPECT_EQ(policy_.CurrentMode(), Mode::kTogether);
  EXPECT_THAT(TakeDecisions(), IsEmpty()) << "all ran before";
}

TEST_F(ResidencyTest, AStopThatNobodyHeardOfNeedsNoReady) {
  AddActive(1, 30);
  AddActive(2, 30);
  policy_.Update(2, 100, 1, now_);  // the turn of 1 would end
  Update(2, 100, 8);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  EXPECT_NE(policy_.NextDeadline(), kNever);
}

TEST_F(ResidencyTest, AnIdleOneWhoseMemoryStayedRunsOnWithoutAReady) {
  AddActive(1, 30);
  AddActive(2, 10);
  Advance(kMs);
  Idle(1);
  Advance(kMs);
  Active(1);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  AddActive(3, 30);
  EXPECT_EQ(DecisionFor(3), Stops(3, 0));
  EXPECT_NE(policy_.NextDeadline(), kNever) << "the turn of 2 began, along with 1";
}

TEST_F(ResidencyTest, WhatWasTakenAwayHasToComeBackBeforeATurnBegins) {
  AddActive(1, 30);
  Demand(1, 20);
  Obey();
  Demand(1, 30);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30)));
  Resident(1, 30);
  Idle(1);
  Active(1);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  AddActive(2, 30);
  EXPECT_EQ(policy_.NextDeadline(), kNever);
  Ready(1, 0);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs);
}

TEST_F(ResidencyTest, AnIdleOneThatWasLetGoIsReadyAsItIs) {
  AddActive(1, 30);
  AddActive(2, 40);
  Resident(2, 10);
  TakeDecisions();
  Idle(2);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(2, 10)));
  Demand(2, 10);
  Active(2);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  Remove(1);
  AddActive(3, 40);
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs) << "the turn of 2";
}

TEST_F(ResidencyTest, TimeTogetherIsNoTurn) {
  AddActive(1, 30, 300);
  Advance(3600 * kSecond);
  AddActive(2, 30, 100);
  EXPECT_EQ(DecisionFor(2), Stops(2, 0));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 750 * kMs);
}

TEST_F(ResidencyTest, WhoLeadsALowerClassKeepsItsTurnWhenTheHigherOneGoes) {
  AddActive(1, 20, 100, 2);
  AddActive(2, 30);
  AddActive(3, 20);
  EXPECT_EQ(DecisionFor(3), Runs(3, 20));
  Advance(kMs);
  Idle(1);
  EXPECT_EQ(DecisionFor(2), Stops(2, 0));
  EXPECT_EQ(DecisionFor(3), Runs(3, 20));
  Advance(249 * kMs);
  EXPECT_EQ(DecisionFor(2), Runs(2, 30));
}

TEST_F(ResidencyTest, WhoComesToRunAlongDoesNotTakeTheTurn) {
  AddActive(1, 20, 100, 2);
  AddActive(2, 30);
  AddActive(3, 15);
  AddActive(4, 30);
  Advance(100 * kMs);
  Demand(2, 5);
  EXPECT_THAT(Obey(), ElementsAre(Runs(2, 5)));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 150 * kMs) << "still that of 3";
}

TEST_F(ResidencyTest, WhoRunsAlongStaysUntilTheTurnEnds) {
  AddActive(1, 20);
  AddActive(2, 25);
  AddActive(3, 20);
  Demand(2, 20);
  EXPECT_THAT(Obey(), IsEmpty());
  Advance(250 * kMs);
  EXPECT_EQ(DecisionFor(2), Runs(2, 20));
}

TEST_F(ResidencyTest, WhoIsInterruptedAfterATurnsTimeGoesToTheBack) {
  AddActive(1, 30);
  AddActive(2, 30);
  Add(3, 20, 100, 2);
  for (Nanos ran : {200 * kMs, 60 * kMs}) {
    EXPECT_EQ(DecisionFor(1), Runs(1, 30));
    Advance(ran);
    Active(3);
    Obey();
    Idle(3);
    Obey();
  }
  EXPECT_EQ(DecisionFor(1), Stops(1, 10));
  EXPECT_EQ(DecisionFor(2), Runs(2, 30));
}

TEST_F(ResidencyTest, TheEndOfAHigherTurnMayEndALowerOne) {
  AddActive(1, 10, 100, 2);
  AddActive(2, 35, 100, 2);
  AddActive(3, 5);
  AddActive(4, 25);
  Advance(250 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Stops(1, 0), Runs(2, 35), Stops(4, 0)));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs) << "3 begins anew";
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
  EXPECT_EQ(policy.Observe(facts, 40, kNever)[1], Runs(2, 30));
}

}  // namespace
}  // namespace tessera::sched
