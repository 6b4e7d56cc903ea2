#include "sched/spaces/space_trial.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

// A space of two busy vGPUs; at once they make so much of the progress that they make in turns.
class SpaceTrialTest : public testing::Test {
 protected:
  SpaceTrialTest() {
    members_ = {{1, In(50), LatencyGoal{99, 20 * kMs}}, {2, In(50), {}}};
    for (const VgpuId id : {1, 2}) figures_.members[id] = {.works = true, .reached = 0};
    trial_.SetMembers(members_, now_);
  }
  static Shares In(double sm_pct, double request_pct = 0) {
    return {.request_pct = request_pct, .space = {.number = 1, .sm_pct = sm_pct}};
  }
  void Change(std::vector<SpaceMember> members) {
    members_ = std::move(members);
    trial_.SetMembers(members_, now_);
  }

  void Pass(Nanos time) {
    for (const Nanos end = now_ + time; now_ < end;) {
      const Nanos step = std::min(std::max<Nanos>(trial_.NextDeadline() - now_, 1), end - now_);
      if (trial_.mode() != trial_.choice().mode) other_mode_ += step;
      Work(step);
      now_ += step;
      trial_.Advance(figures_, now_);
    }
  }
  void Work(Nanos time) {
    const bool at_once = trial_.mode() == SpaceMode::kAtOnce;
    figures_.passed += time;
    figures_.had += time;
    for (auto& [id, progress] : figures_.members) {
      if (!progress.works) continue;
      (at_once ? progress.ran : progress.waited) += time / 2;
      progress.ran += time - time / 2;
      progress.submissions += static_cast<std::uint64_t>(static_cast<double>(time) / 1000 * (at_once ? gain_ : 1));
      if (drains_) progress.reached = now_ + time;
    }
  }
  bool Tries() const { return trial_.short_queues(); }
  // How long until a trial begins.
  Nanos Wait() {
    const Nanos from = now_;
    while (!Tries() && now_ - from < 2000 * kSecond) Pass(10 * kMs);
    return now_ - from;
  }
  void Answers() {
    Wait();
    while (Tries()) Pass(10 * kMs);
  }

  SpaceTrial trial_;
  std::vector<SpaceMember> members_;
  SpaceFigures figures_;
  double gain_ = 1.5;
  bool drains_ = true;
  Nanos other_mode_ = 0;  // that was not chosen
  Nanos now_ = 100 * kSecond;
};

TEST_F(SpaceTrialTest, BeginsAtOnceAndStaysWhereThatIsFaster) {
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  EXPECT_EQ(trial_.choice().tried_at, kNever);
  Answers();
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  EXPECT_NEAR(trial_.choice().gain.value(), 1.5, 0.02);
  EXPECT_EQ(trial_.choice().tried_at, now_);
}

TEST_F(SpaceTrialTest, GoesToTurnsWhereThoseAreFasterAndBack) {
  gain_ = 0.7;
  Answers();
  EXPECT_EQ(trial_.mode(), SpaceMode::kInTurns);
  Answers();
  EXPECT_EQ(trial_.mode(), SpaceMode::kInTurns);
  EXPECT_NEAR(trial_.choice().gain.value(), 0.7, 0.02);
  gain_ = 1.5;
  Answers();
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
}

TEST_F(SpaceTrialTest, EachTrialCostsOneSecondInTheOtherMode) {
  Answers();
  EXPECT_NEAR(static_cast<double>(other_mode_), 1e9, 1e8);
}

TEST_F(SpaceTrialTest, TriesLessAndLessWhileTheAnswerIsTheSame) {
  Answers();
  Nanos expected = 10 * kSecond;
  for (int n = 0; n < 9; ++n) {
    EXPECT_NEAR(static_cast<double>(Wait()), static_cast<double>(expected), 2e7) << n;
    Answers();
    expected = std::min(2 * expected, 600 * kSecond);
  }
  gain_ = 0.7;
  Answers();
  EXPECT_NEAR(static_cast<double>(Wait()), 10e9, 2e7) << "another answer";
}

TEST_F(SpaceTrialTest, WithoutAGoalNothingIsTried) {
  Change({{1, In(50), {}}, {2, In(50), {}}});
  EXPECT_EQ(trial_.NextDeadline(), kNever);
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  gain_ = 0.5;
  Pass(100 * kSecond);
  EXPECT_EQ(trial_.choice().tried_at, kNever);
}

TEST_F(SpaceTrialTest, TheLastGoalTakesTheTurnsAlong) {
  gain_ = 0.5;
  Answers();
  ASSERT_EQ(trial_.mode(), SpaceMode::kInTurns);
  Change({{1, In(50), {}}, {2, In(50), {}}});
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  EXPECT_EQ(trial_.NextDeadline(), kNever);
}

// Two that were promised 60 % of the time each, side by side, cannot have it one after the other.
TEST_F(SpaceTrialTest, RequestsThatFitSideBySideAloneForbidTurns) {
  gain_ = 0.5;
  Answers();
  ASSERT_EQ(trial_.mode(), SpaceMode::kInTurns);
  Change({{1, In(50, 30), SpeedGoal{50}}, {2, In(50, 30), {}}});
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  EXPECT_EQ(trial_.NextDeadline(), kNever);
  Change({{1, In(50, 30), SpeedGoal{50}}, {2, In(50), {}}});
  EXPECT_NE(trial_.NextDeadline(), kNever) << "one request is kept in turns, too";
  Change({{1, In(60, 30), SpeedGoal{50}}, {2, In(60, 30), {}}});
  EXPECT_NE(trial_.NextDeadline(), kNever) << "these never run side by side";
}

TEST_F(SpaceTrialTest, OneThatWorksAloneIsNotDisturbed) {
  figures_.members[2].works = false;
  Pass(100 * kSecond);
  EXPECT_EQ(other_mode_, 0);
  figures_.members[2].works = true;
  EXPECT_LE(Wait(), 1010 * kMs);
}

TEST_F(SpaceTrialTest, OneThatStopsInTheFirstLegEndsTheTrialBeforeItCosts) {
  Wait();
  figures_.members[2].works = false;
  Pass(5 * kSecond);
  EXPECT_FALSE(Tries());
  EXPECT_EQ(other_mode_, 0);
  EXPECT_EQ(trial_.choice().tried_at, kNever);
}

TEST_F(SpaceTrialTest, AMemberThatComesInTheMiddleEndsTheTrialAndTheNextOneIsNotSoon) {
  gain_ = 0.5;
  for (const Nanos into : {50 * kMs, 500 * kMs, 1500 * kMs}) {
    Wait();
    Pass(into);
    ASSERT_TRUE(Tries());
    const VgpuId id = 3 + figures_.members.size();
    members_.push_back({id, In(10), {}});
    figures_.members[id] = {.works = true};
    trial_.SetMembers(members_, now_);
    EXPECT_FALSE(Tries());
    EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
    EXPECT_NEAR(static_cast<double>(Wait()), 10e9, 2e7);
    while (Tries()) Pass(10 * kMs);
    ASSERT_EQ(trial_.mode(), SpaceMode::kInTurns);
    Change({{1, In(50), LatencyGoal{99, 20 * kMs}}, {2, In(50), {}}});
    EXPECT_EQ(trial_.mode(), SpaceMode::kInTurns) << "until a trial says otherwise";
    EXPECT_EQ(trial_.choice().tried_at, kNever);
    gain_ = 2;
    Answers();
    ASSERT_EQ(trial_.mode(), SpaceMode::kAtOnce);
    gain_ = 0.5;
  }
}

TEST_F(SpaceTrialTest, TheSameMembersChangeNothing) {
  Answers();
  const Nanos next = trial_.NextDeadline();
  Pass(kSecond);
  std::vector<SpaceMember> same = members_;
  same[0].shares.measured = true;
  trial_.SetMembers(same, now_);
  EXPECT_EQ(trial_.NextDeadline(), next);
  same[0].shares.weight = 200;
  trial_.SetMembers(same, now_);
  EXPECT_EQ(trial_.choice().tried_at, kNever);
}

TEST_F(SpaceTrialTest, AMissedGoalBringsTheNextTrialForward) {
  Answers();
  Answers();
  Answers();
  Pass(5 * kSecond);
  trial_.GoalMissed(now_);
  EXPECT_NEAR(static_cast<double>(Wait()), 5e9, 2e7) << "ten seconds after the last one";
}

TEST_F(SpaceTrialTest, LongQueuesEndBeforeTheFirstLegIsMeasured) {
  drains_ = false;
  Wait();
  Pass(800 * kMs);
  drains_ = true;
  Pass(950 * kMs);
  EXPECT_EQ(other_mode_, 0) << "it is still measured";
  Pass(2 * kSecond);
  EXPECT_NE(trial_.choice().tried_at, kNever);
}

TEST_F(SpaceTrialTest, QueuesThatNobodySeesEndAreCounted) {
  drains_ = false;
  Answers();
  EXPECT_NEAR(trial_.choice().gain.value(), 1.5, 0.02);
  EXPECT_NEAR(static_cast<double>(other_mode_), 1e9, 1e8);
}

TEST_F(SpaceTrialTest, AfterAnAbortItTriesAgainLater) {
  Wait();
  Pass(1200 * kMs);
  trial_.Abort(now_);
  EXPECT_FALSE(Tries());
  EXPECT_EQ(trial_.mode(), SpaceMode::kAtOnce);
  EXPECT_NEAR(static_cast<double>(Wait()), 10e9, 2e7);
}

}  // namespace
}  // namespace tessera::sched
