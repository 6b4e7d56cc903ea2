#include "sched/spaces/space_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SpaceChoiceTest : public testing::Test {
 protected:
  struct Did {
    std::uint64_t submissions = 1000;
    Nanos ran = kSecond, waited = 0;
    std::uint64_t bursts = 0, violations = 0;
  };

  SpaceChoiceTest() {
    Member(1);
    Member(2);
  }
  void Member(VgpuId id, Shares shares = {}, std::optional<Goal> goal = {}) { members_.push_back({id, shares, goal}); }
  static void Set(SpaceLeg& leg, VgpuId id, Did did) {
    leg.to.passed = leg.to.had = kSecond;
    leg.from.members[id] = {.submissions = 5, .programs = 1, .ran = 7, .waited = 7, .bursts = 3, .violations = 1};
    leg.to.members[id] = {.submissions = 5 + did.submissions,
                          .programs = 1,
                          .ran = 7 + did.ran,
                          .waited = 7 + did.waited,
                          .bursts = 3 + did.bursts,
                          .violations = 1 + did.violations};
  }
  // Both vGPUs are busy all the time; in turns each has half of it.
  void Busy(double gain_1, double gain_2) {
    Set(at_once_, 1, {.submissions = static_cast<std::uint64_t>(1000 * gain_1)});
    Set(at_once_, 2, {.submissions = static_cast<std::uint64_t>(1000 * gain_2)});
    for (const VgpuId id : {1, 2}) Set(in_turns_, id, {.ran = kSecond / 2, .waited = kSecond / 2});
  }
  std::optional<SpaceChoice> Choose(SpaceMode present = SpaceMode::kAtOnce) const {
    return ChooseMode(members_, at_once_, in_turns_, present);
  }
  SpaceMode Chosen(SpaceMode present = SpaceMode::kAtOnce) const { return Choose(present).value().mode; }
  double Gain() const { return Choose().value().gain.value(); }

  std::vector<SpaceMember> members_;
  SpaceLeg at_once_, in_turns_;
};

TEST_F(SpaceChoiceTest, WhatIsFasterIsChosen) {
  Busy(1.5, 1.2);
  EXPECT_EQ(Chosen(SpaceMode::kInTurns), SpaceMode::kAtOnce);
  EXPECT_NEAR(Gain(), std::sqrt(1.5 * 1.2), 1e-3);
  Busy(0.9, 0.8);
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns);
  Busy(1.02, 1.02);
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns) << "not worth it";
  Busy(1.08, 1.08);
  EXPECT_EQ(Chosen(SpaceMode::kInTurns), SpaceMode::kAtOnce);
}

TEST_F(SpaceChoiceTest, OneThatIsAboutAsGoodChangesNothing) {
  for (const double gain : {1.04, 1.06}) {
    Busy(gain, gain);
    EXPECT_EQ(Chosen(SpaceMode::kAtOnce), SpaceMode::kAtOnce) << gain;
    EXPECT_EQ(Chosen(SpaceMode::kInTurns), SpaceMode::kInTurns) << gain;
  }
}

TEST_F(SpaceChoiceTest, NeitherModeHasAnAdvantageByItsName) {
  Busy(2, 0.5);
  EXPECT_NEAR(Gain(), 1, 1e-3);
}

TEST_F(SpaceChoiceTest, GainsCountByWeight) {
  members_[0].shares.weight = 300;
  Busy(1.5, 0.75);
  EXPECT_NEAR(Gain(), std::pow(1.5, 0.75) * std::pow(0.75, 0.25), 1e-3);
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce);
}

TEST_F(SpaceChoiceTest, OneThatIsSeldomBusyCountsLittle) {
  Busy(1.5, 0);
  Set(at_once_, 2, {.submissions = 50, .ran = kSecond / 5});
  Set(in_turns_, 2, {.submissions = 100, .ran = kSecond / 5});
  EXPECT_NEAR(Gain(), std::exp((std::log(1.5) + 0.2 * std::log(0.5)) / 1.2), 1e-2);
}

TEST_F(SpaceChoiceTest, ProgressIsComparedByTheTimeWithWork) {
  Busy(1, 1);
  Set(at_once_, 2, {.submissions = 300, .ran = kSecond * 3 / 10});  // it had less to do
  EXPECT_NEAR(Gain(), 1, 1e-3);
}

TEST_F(SpaceChoiceTest, ProgressIsComparedByThePartOfTheGpuThatTheSpaceHad) {
  Busy(1, 1);
  at_once_.to.had = kSecond / 2;  // a neighbour came
  EXPECT_NEAR(Gain(), 2, 1e-3);
}

TEST_F(SpaceChoiceTest, IdleOnesDoNotCountAndOneAloneTellsNothing) {
  Busy(1.5, 1.5);
  Set(at_once_, 2, {.submissions = 0, .ran = 0});
  EXPECT_FALSE(Choose());
  Busy(1.5, 1.5);
  Set(in_turns_, 1, {.submissions = 20, .ran = 50 * kMs});
  EXPECT_FALSE(Choose());
  Member(3);
  Busy(1.5, 1.5);
  Set(at_once_, 3, {.submissions = 10, .ran = 10 * kMs});
  Set(in_turns_, 3, {.submissions = 100'000, .ran = 10 * kMs});
  EXPECT_NEAR(Gain(), 1.5, 1e-3);
}

TEST_F(SpaceChoiceTest, OneThatIsNotThereInBothDoesNotCount) {
  Busy(1.5, 1.5);
  Member(3);
  Set(at_once_, 3, {});
  EXPECT_NEAR(Gain(), 1.5, 1e-3);
}

TEST_F(SpaceChoiceTest, OneWhoseProgramsChangedDoesNotCount) {
  Busy(1.5, 0.1);
  at_once_.to.members[2].programs = 2;
  EXPECT_NEAR(Gain(), 1.5, 1e-3);
}

TEST_F(SpaceChoiceTest, WithoutProgressTheModeStays) {
  Busy(0, 0);
  for (const VgpuId id : {1, 2}) Set(in_turns_, id, {.submissions = 0, .ran = kSecond / 2, .waited = kSecond / 2});
  for (const SpaceMode present : {SpaceMode::kAtOnce, SpaceMode::kInTurns}) {
    EXPECT_EQ(Chosen(present), present);
    EXPECT_FALSE(Choose(present)->gain);
  }
}

TEST_F(SpaceChoiceTest, ASpaceThatHadNothingOfTheGpuTellsNothing) {
  Busy(1.5, 1.5);
  in_turns_.to.had = 0;
  EXPECT_FALSE(Choose()->gain);
}

// Whatever a vGPU says of its progress, it moves the mean by a factor of 2 at most where two count alike.
TEST_F(SpaceChoiceTest, AClaimIsBounded) {
  for (const auto& [from, to] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0}, {0, UINT64_MAX}, {UINT64_MAX, 0}, {0, 1}, {1ull << 40, 3}}) {
    for (SpaceLeg* leg : {&at_once_, &in_turns_}) {
      Busy(2.5, 1);
      leg->from.members[2].submissions = from;
      leg->to.members[2].submissions = to;
      EXPECT_GE(Gain(), std::sqrt(2.5 / 4) - 1e-3);
      EXPECT_LE(Gain(), std::sqrt(2.5 * 4) + 1e-3);
    }
  }
  members_[0].shares.weight = 10'000;  // and one of little weight hardly moves it
  Busy(1.2, 0);
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce);
}

TEST_F(SpaceChoiceTest, ALatencyThatIsMissedInOneModeDecides) {
  members_[0].goal = LatencyGoal{99, 10 * kMs};
  Busy(1.5, 1.5);
  Set(at_once_, 1, {.submissions = 1500, .bursts = 100, .violations = 20});
  Set(in_turns_, 1, {.ran = kSecond / 2, .waited = kSecond / 2, .bursts = 100, .violations = 2});
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns);
  EXPECT_THAT(Choose()->rescued, ElementsAre(1));
  EXPECT_THAT(Choose()->missed, IsEmpty());
  EXPECT_NEAR(Gain(), 1.5, 1e-3) << "it is told all the same";
  std::swap(at_once_.to.members[1].violations, in_turns_.to.members[1].violations);
  Busy(0.7, 0.7);
  Set(in_turns_, 1, {.ran = kSecond / 2, .waited = kSecond / 2, .bursts = 100, .violations = 20});
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce) << "though slower";
}

TEST_F(SpaceChoiceTest, AFewViolationsAreChance) {
  members_[0].goal = LatencyGoal{99, 10 * kMs};
  Busy(1.5, 1.5);
  Set(at_once_, 1, {.submissions = 1500, .bursts = 100, .violations = 4});
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce);
}

TEST_F(SpaceChoiceTest, ASpeedIsComparedWithThatOfATurn) {
  members_[0].goal = SpeedGoal{70};
  Busy(1.5, 1.5);  // 75 % of the speed alone; in turns half
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce);
  EXPECT_THAT(Choose()->rescued, ElementsAre(1));
  Set(in_turns_, 1, {.submissions = 1600, .ran = kSecond * 8 / 10, .waited = kSecond * 2 / 10});
  Set(at_once_, 1, {.submissions = 1200});  // 60 %
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns) << "its weight gives it 80 %";
  members_[0].goal = SpeedGoal{90};
  EXPECT_THAT(Choose()->missed, ElementsAre(1));
  EXPECT_THAT(Choose()->rescued, IsEmpty());
}

TEST_F(SpaceChoiceTest, WhereGoalsAreMissedInBothTheHigherPriorityDecidesAndThenTheNumber) {
  const LatencyGoal goal{99, 10 * kMs};
  members_ = {};
  Member(1, {.priority = 3}, goal);
  Member(2, {.priority = 9}, goal);
  Member(3, {.priority = 9}, goal);
  const auto misses = [](SpaceLeg& leg, std::vector<VgpuId> ids) {
    for (const VgpuId id : {1, 2, 3}) {
      const bool missed = std::ranges::find(ids, id) != ids.end();
      Set(leg, id, {.bursts = 100, .violations = missed ? 50u : 0u});
    }
  };
  misses(at_once_, {1});
  misses(in_turns_, {2, 3});
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns);
  EXPECT_THAT(Choose()->missed, ElementsAre(2, 3));
  EXPECT_THAT(Choose()->rescued, ElementsAre(1));
  misses(at_once_, {1, 2, 3});
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns);
  misses(in_turns_, {1, 2, 3});
  EXPECT_EQ(Chosen(), SpaceMode::kInTurns) << "both alike: by the gain, which is 1";
  misses(at_once_, {1, 3});
  EXPECT_EQ(Chosen(), SpaceMode::kAtOnce);
  EXPECT_THAT(Choose()->missed, ElementsAre(1, 3));
  EXPECT_THAT(Choose()->rescued, ElementsAre(2));
}

}  // namespace
}  // namespace tessera::sched
