#include "sched/turns/residency_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"
#include "sched/testing/residency_test.h"

namespace tessera::sched {
namespace {

using ResidencyTurnsTest = ResidencyTest;
using testing::ElementsAre;
using testing::IsEmpty;
using Mode = Residency::Mode;

TEST_F(ResidencyTurnsTest, ATurnsLengthFollowsFromTheMeasuredMove) {
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
TEST_F(ResidencyTurnsTest, AMoveThatIsNotTypicalIsForgotten) {
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

TEST_F(ResidencyTurnsTest, ATurnBeginsWhenAllIsLoaded) {
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

TEST_F(ResidencyTurnsTest, WeightsMakeTurnsLonger) {
  AddActive(1, 30, 100);
  AddActive(2, 30, 300);
  EXPECT_EQ(policy_.TurnLength(), 250 * kMs);
  Advance(250 * kMs);
  Obey(0);
  EXPECT_EQ(policy_.TurnLength(), 750 * kMs) << "the shortest is long enough, the ratio holds";
  Update(2, 100, 8);
  EXPECT_EQ(policy_.TurnLength(), 250 * kMs);
}

TEST_F(ResidencyTurnsTest, AHolderThatBecomesIdleGivesTheTurnOnAndKeepsWhatFits) {
  AddActive(1, 30);
  AddActive(2, 25);
  Advance(kMs);
  Idle(1);
  EXPECT_THAT(Obey(), ElementsAre(Runs(1, 15), Runs(2, 25)));
  Advance(kMs);
  Active(1);
  EXPECT_THAT(Obey(), ElementsAre(Stops(1, 15)));
}

TEST_F(ResidencyTurnsTest, AGapShorterThanItsMoveDoesNotEndATurn) {
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

TEST_F(ResidencyTurnsTest, AGraceDoesNotOutlastTheTurn) {
  AddActive(1, 30);
  AddActive(2, 25);
  Advance(250 * kMs);
  Obey(kSecond);
  Advance(policy_.TurnLength() - 10 * kMs);
  Idle(2);
  Advance(10 * kMs);
  EXPECT_EQ(DecisionFor(1), Runs(1, 30));
}

TEST_F(ResidencyTurnsTest, RemovingTheHolderGivesTheTurnOn) {
  AddActive(1, 30);
  AddActive(2, 25);
  Remove(1);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(2, 25)));
}

TEST_F(ResidencyTurnsTest, ATurnGoesOnWhileNobodyWaitsForIt) {
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

TEST_F(ResidencyTurnsTest, WhoFitsBesideTheHolderRunsAlong) {
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

TEST_F(ResidencyTurnsTest, TheHolderKeepsItsTurnWhenDemandsChange) {
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

TEST_F(ResidencyTurnsTest, ALoadInTheMiddleOfATurnDoesNotMakeItLonger) {
  AddActive(1, 20);
  AddActive(2, 40);
  Demand(1, 30);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Runs(1, 30)));
  Advance(250 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Stops(1, 0), Runs(2, 40)));
}

TEST_F(ResidencyTurnsTest, TurnsEndWhenAllFitsWithRoomToSpareForAWhile) {
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

TEST_F(ResidencyTurnsTest, AStopThatNobodyHeardOfNeedsNoReady) {
  AddActive(1, 30);
  AddActive(2, 30);
  policy_.Update(2, 100, 1, now_);  // the turn of 1 would end
  Update(2, 100, 8);
  EXPECT_THAT(TakeDecisions(), IsEmpty());
  EXPECT_NE(policy_.NextDeadline(), kNever);
}

TEST_F(ResidencyTurnsTest, AnIdleOneWhoseMemoryStayedRunsOnWithoutAReady) {
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

TEST_F(ResidencyTurnsTest, WhatWasTakenAwayHasToComeBackBeforeATurnBegins) {
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

TEST_F(ResidencyTurnsTest, AnIdleOneThatWasLetGoIsReadyAsItIs) {
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

TEST_F(ResidencyTurnsTest, TimeTogetherIsNoTurn) {
  AddActive(1, 30, 300);
  Advance(3600 * kSecond);
  AddActive(2, 30, 100);
  EXPECT_EQ(DecisionFor(2), Stops(2, 0));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 750 * kMs);
}

TEST_F(ResidencyTurnsTest, WhoLeadsALowerClassKeepsItsTurnWhenTheHigherOneGoes) {
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

TEST_F(ResidencyTurnsTest, WhoComesToRunAlongDoesNotTakeTheTurn) {
  AddActive(1, 20, 100, 2);
  AddActive(2, 30);
  AddActive(3, 15);
  AddActive(4, 30);
  Advance(100 * kMs);
  Demand(2, 5);
  EXPECT_THAT(Obey(), ElementsAre(Runs(2, 5)));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 150 * kMs) << "still that of 3";
}

TEST_F(ResidencyTurnsTest, WhoRunsAlongStaysUntilTheTurnEnds) {
  AddActive(1, 20);
  AddActive(2, 25);
  AddActive(3, 20);
  Demand(2, 20);
  EXPECT_THAT(Obey(), IsEmpty());
  Advance(250 * kMs);
  EXPECT_EQ(DecisionFor(2), Runs(2, 20));
}

TEST_F(ResidencyTurnsTest, WhoIsInterruptedAfterATurnsTimeGoesToTheBack) {
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

TEST_F(ResidencyTurnsTest, TheEndOfAHigherTurnMayEndALowerOne) {
  AddActive(1, 10, 100, 2);
  AddActive(2, 35, 100, 2);
  AddActive(3, 5);
  AddActive(4, 25);
  Advance(250 * kMs);
  EXPECT_THAT(TakeDecisions(), ElementsAre(Stops(1, 0), Runs(2, 35), Stops(4, 0)));
  EXPECT_EQ(policy_.NextDeadline(), now_ + 250 * kMs) << "3 begins anew";
}

}  // namespace
}  // namespace tessera::sched
