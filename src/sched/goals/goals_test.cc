// Goals event by event. src/plan tests what comes of it in the long run.
#include "sched/goals/goals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Kind = Verdict::Kind;

class GoalsTest : public testing::Test {
 protected:
  void Set(VgpuId id, const Shares& shares, const std::optional<Goal>& goal = {}) {
    const auto set = goals_.Set(id, shares, goal, now_);
    ASSERT_TRUE(set) << set.error().Text();
    terms_.erase(id);
    Take();
  }
  void Began(VgpuId id) {
    goals_.Began(id, now_);
    Take();
  }
  void Ended(VgpuId id, std::uint64_t submissions = 1) {
    goals_.Ended(id, now_, submissions, now_);
    Take();
  }
  // A burst of this length, and a pause.
  void Burst(VgpuId id, Nanos length, Nanos pause = 10 * kMs) {
    Began(id);
    Pass(length);
    Ended(id);
    Pass(pause);
  }
  // Advances at every deadline. Those of `submissions` per second say how far they are.
  void Pass(Nanos time) {
    const Nanos end = now_ + time;
    while (goals_.NextDeadline() <= end) {
      ASSERT_GT(goals_.NextDeadline(), now_);
      now_ = goals_.NextDeadline();
      for (const auto& [id, progress] : progress_) goals_.Progress(id, progress(now_), now_);
      goals_.Advance(now_);
      Take();
    }
    now_ = end;
  }
  void Take() {
    for (const Terms& terms : goals_.TakeTerms()) terms_[terms.vgpu] = terms;
    for (const Verdict& verdict : goals_.TakeVerdicts()) verdicts_[verdict.vgpu] = verdict;
  }

  Goals goals_;
  Nanos now_ = kSecond;
  std::map<VgpuId, Terms> terms_;
  std::map<VgpuId, Verdict> verdicts_;
  std::map<VgpuId, std::function<std::uint64_t(Nanos)>> progress_;
};

// Requests that queue are one burst.
TEST_F(GoalsTest, ToldRequestsCountInPlaceOfBursts) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Set(2, {});
  Began(2);
  const auto many = [&](bool told, Nanos latency) {
    for (int i = 0; i < 200; ++i) {
      Burst(1, 50 * kMs);
      if (told) goals_.Told(1, std::array{latency}, now_);
      Take();
    }
  };
  many(false, 0);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kCannot);
  many(true, 15 * kMs);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kKept) << verdicts_.at(1).why;
  EXPECT_GT(*terms_.at(1).patience, GoalsConfig().least_patience);
  EXPECT_EQ(goals_.ReportOf(1, now_)->last_minute.violations, 0u);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.violations, 0u) << "of bursts";
  for (int i = 0; i < 200; ++i) goals_.Told(1, std::array{10 * kMs, 15 * kMs, 25 * kMs}, now_);
  Pass(2 * kSecond);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kMissed);
  EXPECT_THAT(verdicts_.at(1).why, HasSubstr("requests of the last minute"));
  EXPECT_EQ(terms_.at(1).patience, 0);
  for (int i = 0; i < 4; ++i) many(true, 10 * kSecond);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kCannot) << "others need not stand for what they do not cause";
  EXPECT_NE(terms_.at(1).patience, 0);
  Pass(70 * kSecond);
  many(false, 0);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kCannot) << "it tells no more";
  EXPECT_GT(goals_.ReportOf(1, now_)->last_minute.violations, 0u);
}

TEST_F(GoalsTest, WhatIsToldWithoutALatencyGoalIsIgnored) {
  Set(1, {}, SpeedGoal{50});
  Set(2, {});
  for (const VgpuId id : {1u, 2u, 3u}) goals_.Told(id, std::array{kMs}, now_);
  EXPECT_EQ(goals_.ReportOf(1, now_)->last_minute.bursts(), 0u);
  EXPECT_FALSE(goals_.ReportOf(2, now_));
}

TEST_F(GoalsTest, WithoutAGoalNothingComesOut) {
  Set(1, {.request_pct = 60, .priority = 3});
  Set(2, {.request_pct = 40});
  for (int i = 0; i < 100; ++i) Burst(1, 5 * kMs);
  Began(2);
  Burst(1, 5 * kMs);
  Set(1, {.request_pct = 50});
  EXPECT_THAT(terms_, IsEmpty());
  EXPECT_THAT(verdicts_, IsEmpty());
  EXPECT_EQ(goals_.NextDeadline(), kNever);
  EXPECT_FALSE(goals_.audited());
  EXPECT_FALSE(goals_.ReportOf(1, now_));
}

TEST_F(GoalsTest, ALatencyGoalGoesBeforeTheOthersOfItsPriority) {
  Set(1, {.priority = 4});
  Set(2, {});
  Set(3, {}, LatencyGoal{99, 20 * kMs});
  EXPECT_EQ(terms_.at(1).priority, 0u);
  EXPECT_EQ(terms_.at(3).priority, 1u);
  EXPECT_EQ(terms_.at(2).priority, 2u);
  EXPECT_EQ(terms_.at(3).patience, GoalsConfig().least_patience);
  EXPECT_FALSE(terms_.at(2).patience);
  Set(3, {});
  EXPECT_EQ(terms_.at(1), (Terms{1, 4, 0, {}})) << "as before";
  EXPECT_EQ(terms_.at(2), (Terms{2, 8, 0, {}}));
  EXPECT_FALSE(terms_.contains(3));
}

TEST_F(GoalsTest, ASpeedGoalIsARequest) {
  Set(1, {}, SpeedGoal{80});
  EXPECT_EQ(terms_.at(1), (Terms{1, 8, 80, {}}));
  Set(2, {.request_pct = 10});
  EXPECT_FALSE(terms_.contains(2));
  terms_.clear();
  Set(1, {.weight = 200}, SpeedGoal{80});
  EXPECT_EQ(terms_.at(1), (Terms{1, 8, 80, {}})) << "again, as its shares are new";
}

TEST_F(GoalsTest, RefusesWhatDoesNotFitAndNamesTheGoal) {
  Set(1, {}, SpeedGoal{50});
  const auto goal = goals_.Set(2, {}, SpeedGoal{50}, now_);
  ASSERT_FALSE(goal);
  EXPECT_EQ(goal.error().code, ENOSPC);
  EXPECT_THAT(goal.error().message, AllOf(HasSubstr("speed=50% of vGPU 2"), HasSubstr("100 of 95 %"),
                                          HasSubstr("break the goal speed=50% of vGPU 1")));
  const auto request = goals_.Set(2, {.request_pct = 46}, {}, now_);
  ASSERT_FALSE(request);
  EXPECT_THAT(request.error().message, AllOf(HasSubstr("compute.request 46"), HasSubstr("speed=50% of vGPU 1")));
  EXPECT_TRUE(goals_.Set(2, {.request_pct = 45}, {}, now_));
  EXPECT_FALSE(goals_.Set(1, {.limit_pct = 40}, SpeedGoal{50}, now_)) << "its own limit";
}

TEST_F(GoalsTest, AuditsAVgpuThatIsNotKnown) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Set(2, {});
  Began(2);
  Began(1);
  EXPECT_EQ(goals_.audited(), VgpuId{1});
  Pass(8 * kMs);
  Ended(1);
  Pass(60 * kMs);
  EXPECT_FALSE(goals_.audited());
  const auto report = goals_.ReportOf(1, now_);
  EXPECT_EQ(report->solo_bursts, 1u);
  EXPECT_NEAR(static_cast<double>(report->solo_median), 8 * kMs, 0.02 * 8 * kMs);
}

TEST_F(GoalsTest, NeedsNoAuditWhereNobodyElseWorks) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Set(2, {});
  for (int i = 0; i < 10; ++i) {
    Burst(1, 8 * kMs);
    EXPECT_FALSE(goals_.audited());
  }
  EXPECT_EQ(goals_.ReportOf(1, now_)->solo_bursts, 10u);
}

TEST_F(GoalsTest, OnlyThoseWithoutALatencyGoalStandStillForAnAudit) {
  Set(1, {}, LatencyGoal{99, 200 * kMs});
  Set(2, {}, LatencyGoal{99, 5 * kMs});
  Set(3, {});
  EXPECT_FALSE(goals_.Stands(3));
  Began(3);
  Began(1);
  ASSERT_EQ(goals_.audited(), VgpuId{1});
  EXPECT_FALSE(goals_.Stands(1));
  EXPECT_TRUE(goals_.Stands(3));
  Pass(10 * kMs);
  Began(2);
  EXPECT_FALSE(goals_.Stands(2));
  Pass(2 * kMs);
  Ended(2);
  Pass(28 * kMs);
  Ended(1);
  EXPECT_EQ(goals_.ReportOf(1, now_)->solo_bursts, 1u) << "2.5 of 40 ms were shared";
  Pass(kSecond);
  Began(1);
  Pass(10 * kMs);
  Began(2);
  Pass(10 * kMs);
  Ended(2);
  Ended(1);
  EXPECT_EQ(goals_.ReportOf(1, now_)->solo_bursts, 1u);
}

TEST_F(GoalsTest, ABurstThatWouldBeLateIsRushed) {
  Set(1, {}, LatencyGoal{99, 100 * kMs});
  Set(2, {});
  for (int i = 0; i < 10; ++i) Burst(1, 25 * kMs);
  Began(2);
  Began(1);
  const Nanos begin = now_;
  ASSERT_GT(terms_.at(1).patience, 0);
  while (terms_.at(1).patience != 0 && now_ - begin < kSecond) Pass(kMs);
  EXPECT_LE(now_ - begin, 100 * kMs);
  EXPECT_GE(now_ - begin, 70 * kMs);
  Ended(1);
  EXPECT_GT(terms_.at(1).patience, 0) << "only for the rest of the burst";
}

TEST_F(GoalsTest, SaysWhenATargetIsBelowTheTimeAlone) {
  Set(1, {}, LatencyGoal{99, 5 * kMs});
  Set(2, {});
  Began(2);
  const Nanos begin = now_;
  while (!verdicts_.contains(1) && now_ - begin < 60 * kSecond) Burst(1, 8 * kMs, 50 * kMs);
  EXPECT_LE(now_ - begin, 5 * kSecond);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kCannot);
  EXPECT_THAT(verdicts_.at(1).why, AllOf(HasSubstr("8."), HasSubstr("the goal is 5 ms")));
}

TEST_F(GoalsTest, SaysWhenBurstsAreLateThatNeedNotBe) {
  Set(1, {}, LatencyGoal{99, 10 * kMs});
  Set(2, {.priority = 2});
  for (int i = 0; i < 10; ++i) Burst(1, 5 * kMs);
  Pass(61 * kSecond);
  Began(2);
  for (int i = 0; i < 300; ++i) Burst(1, goals_.audited() == VgpuId{1} ? 5 * kMs : 30 * kMs);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kMissed);
  EXPECT_THAT(verdicts_.at(1).why, HasSubstr("longer than 10 ms"));
}

TEST_F(GoalsTest, SaysWhenAGoalIsKept) {
  Set(1, {}, LatencyGoal{99, 100 * kMs});
  for (int i = 0; i < 300; ++i) Burst(1, 5 * kMs);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kKept);
}

// The load of a latency is known only from its bursts.
TEST_F(GoalsTest, TheLowerPriorityYieldsFirst) {
  Set(1, {}, SpeedGoal{40});
  Set(2, {.priority = 4}, SpeedGoal{40});
  Set(3, {}, LatencyGoal{99, 100 * kMs});
  Set(4, {.priority = 2}, LatencyGoal{99, 100 * kMs});
  for (int i = 0; i < 200; ++i) {
    Burst(3, 5 * kMs, 0);
    Burst(4, 20 * kMs, 25 * kMs);
  }
  EXPECT_EQ(verdicts_[1].kind, Kind::kCannot);
  EXPECT_THAT(verdicts_[1].why, AllOf(HasSubstr("yields to"), HasSubstr("of 95 %")));
  EXPECT_EQ(terms_.at(1).request_pct, 0);
  EXPECT_EQ(terms_.at(2).request_pct, 40);
  EXPECT_EQ(verdicts_[4].kind, Kind::kKept);
}

TEST_F(GoalsTest, SpeedOfABurstWithoutEndIsKnownFromItsProgress) {
  Set(1, {}, SpeedGoal{50});
  Set(2, {});
  // 10,000 submissions a second alone, half of that beside the other.
  double done = 0;
  Nanos then = now_;
  progress_[1] = [&](Nanos now) {
    const bool alone = goals_.audited() == VgpuId{1};
    done += static_cast<double>(now - then) * (alone ? 10e-6 : 5e-6);
    then = now;
    return static_cast<std::uint64_t>(done);
  };
  Began(2);
  Began(1);
  Pass(60 * kSecond);
  EXPECT_NEAR(goals_.ReportOf(1, now_)->since_start.Speed(), 0.5, 0.02);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kKept);
}

// It needs a request of 50 to go at 40 % of its speed alone, until somebody is promised 55.
TEST_F(GoalsTest, ARaisedRequestGivesWayToAPromise) {
  Set(1, {}, SpeedGoal{40});
  Set(2, {});
  double done = 0;
  Nanos then = now_;
  progress_[1] = [&](Nanos now) {
    const double speed = goals_.audited() == VgpuId{1} ? 1 : 0.8 * terms_.at(1).request_pct / 100;
    done += static_cast<double>(now - then) * 10e-6 * speed;
    then = now;
    return static_cast<std::uint64_t>(done);
  };
  Began(2);
  Began(1);
  Pass(60 * kSecond);
  EXPECT_NEAR(terms_.at(1).request_pct, 50, 2);
  ASSERT_TRUE(goals_.Set(3, {}, SpeedGoal{55}, now_));
  const auto terms = goals_.TakeTerms();
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].vgpu, 1u) << "first the one that falls, so that the sum is never too large";
  EXPECT_LE(terms[0].request_pct, 45);
  EXPECT_GE(terms[0].request_pct, 40);
  EXPECT_EQ(terms[1], (Terms{3, 8, 55, {}}));
  terms_[1] = terms[0];
  Pass(20 * kSecond);
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kMissed);
}

TEST_F(GoalsTest, RestsWhenNothingHappens) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Burst(1, 5 * kMs);
  EXPECT_NE(goals_.NextDeadline(), kNever);
  Pass(100 * kSecond);
  EXPECT_EQ(goals_.NextDeadline(), kNever);
}

TEST_F(GoalsTest, AGoalThatComesDuringABurstIgnoresThatBurst) {
  Set(1, {});
  Began(1);
  Pass(kSecond);
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Pass(5 * kMs);
  Ended(1, 1000);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.bursts(), 0u);
  Burst(1, 5 * kMs);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.bursts(), 1u);
}

TEST_F(GoalsTest, WithoutMeansAGoalIsOnlyJudged) {
  Set(2, {});
  ASSERT_TRUE(goals_.Set(1, {}, LatencyGoal{99, 20 * kMs}, now_, {.means = Means::kNone}));
  ASSERT_TRUE(goals_.Set(3, {}, SpeedGoal{90}, now_, {.means = Means::kNone}));
  EXPECT_TRUE(goals_.Set(4, {}, SpeedGoal{90}, now_)) << "nothing was promised before";
  goals_.Remove(4, now_);
  Take();
  Began(2);
  for (int i = 0; i < 300; ++i) {
    Burst(1, 30 * kMs);
    ASSERT_FALSE(goals_.audited());
  }
  EXPECT_FALSE(terms_.contains(1));
  EXPECT_FALSE(terms_.contains(3));
  EXPECT_EQ(verdicts_.at(1).kind, Kind::kMissed) << verdicts_.at(1).why;
  ASSERT_TRUE(goals_.Set(1, {}, LatencyGoal{99, 20 * kMs}, now_));
  Take();
  EXPECT_TRUE(terms_.at(1).patience);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.bursts(), 300u) << "it is the same goal";
  Began(1);
  EXPECT_EQ(goals_.audited(), VgpuId{1});
}

TEST_F(GoalsTest, RequestsAloneNeedNoAudit) {
  ASSERT_TRUE(goals_.Set(1, {}, SpeedGoal{60}, now_, {.means = Means::kRequests}));
  Set(2, {});
  EXPECT_EQ(terms_.at(1).request_pct, 60);
  Began(2);
  Burst(1, 5 * kMs);
  EXPECT_FALSE(goals_.audited());
}

// A quota bounds what its owner may be promised.
TEST_F(GoalsTest, TheRequestOfASpeedRisesAsFarAsItsOwnerMay) {
  ASSERT_TRUE(goals_.Set(1, {}, SpeedGoal{50}, now_, {.most_request_pct = 0}));
  Set(2, {});
  for (int i = 0; i < 10; ++i) Burst(1, 10 * kMs);
  Began(2);
  for (int i = 0; i < 500; ++i) Burst(1, goals_.audited() ? 10 * kMs : 40 * kMs);
  EXPECT_EQ(terms_.at(1).request_pct, 50);
}

TEST_F(GoalsTest, ABurstThatNobodySawEndDoesNotCount) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Set(2, {});
  Began(2);
  Began(1);
  Pass(5 * kMs);
  goals_.Dropped(1, now_);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.bursts(), 0u);
  Burst(1, 5 * kMs);
  EXPECT_EQ(goals_.ReportOf(1, now_)->since_start.bursts(), 1u);
}

TEST_F(GoalsTest, AHigherPriorityDoesNotStandStillForAnAudit) {
  Set(1, {}, LatencyGoal{99, 20 * kMs});
  Set(2, {.priority = 7});
  Set(3, {});
  Began(2);
  Began(3);
  Began(1);
  EXPECT_FALSE(goals_.audited());
  Ended(1);
  Ended(2);
  Pass(kSecond);
  Began(1);
  EXPECT_EQ(goals_.audited(), VgpuId{1});
  EXPECT_TRUE(goals_.Stands(3));
  EXPECT_FALSE(goals_.Stands(2));
}

TEST_F(GoalsTest, MessagesNameOnlyWhatTheirReaderMayKnow) {
  ASSERT_TRUE(goals_.Set(1, {}, SpeedGoal{50}, now_, {.name = "serve", .owner = 1000}));
  const auto refusal = [&](std::uint32_t owner) {
    const auto set = goals_.Set(2, {}, SpeedGoal{50}, now_, {.name = "mine", .owner = owner});
    return set ? "" : set.error().message;
  };
  EXPECT_THAT(refusal(1000), AllOf(HasSubstr("of vGPU mine"), HasSubstr("break the goal speed=50% of vGPU serve")));
  EXPECT_THAT(refusal(0), HasSubstr("speed=50% of vGPU serve"));
  EXPECT_THAT(refusal(1001), AllOf(HasSubstr("break the goal of another user's vGPU"), Not(HasSubstr("serve"))));
}

TEST_F(GoalsTest, WhatNeedsNoMoreIsNotRefused) {
  Set(1, {.request_pct = 40});
  Set(2, {.priority = 4}, LatencyGoal{99, 100 * kMs});
  for (int i = 0; i < 100; ++i) Burst(2, 80 * kMs, 20 * kMs);
  EXPECT_FALSE(goals_.Set(1, {.request_pct = 41}, {}, now_)) << "the load has grown";
  EXPECT_TRUE(goals_.Set(1, {.request_pct = 40, .weight = 7}, {}, now_));
}

}  // namespace
}  // namespace tessera::sched
