#include "server/model/bursts.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

sched::Burst Of(Nanos length, bool alone = false) {
  return {.begin = 0, .end = length, .submissions = 8, .alone = alone};
}

TEST(Bursts, AreCountedWithoutAGoal) {
  Bursts bursts;
  EXPECT_FALSE(bursts.Report().p50);
  bursts.Note(Of(10 * kMillisecond));
  bursts.Note(Of(10 * kMillisecond));
  bursts.Note(Of(30 * kMillisecond));
  BurstReport report = bursts.Report();
  EXPECT_EQ(report.count, 3u);
  EXPECT_EQ(report.lengths.Sum(), 50 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(report.p50.value()), 10e6, 0.2e6);
  EXPECT_NEAR(static_cast<double>(report.p99.value()), 30e6, 0.5e6);
  EXPECT_FALSE(report.solo_p50);
  EXPECT_FALSE(report.attained_time);
  EXPECT_EQ(report.ViolatingPart(), 0) << "no goal, nothing to violate";
  bursts.Note(Of(10 * kMillisecond, /*alone=*/true));
  EXPECT_NEAR(static_cast<double>(bursts.Report().solo_p50.value()), 10e6, 0.2e6);
}

sched::BurstFigures Figures(std::initializer_list<Nanos> lengths) {
  sched::BurstFigures figures;
  for (const Nanos length : lengths) figures.lengths.Add(length);
  return figures;
}

TEST(Bursts, AreHeldAgainstALatency) {
  BurstReport report;
  sched::GoalReport goal{.goal = sched::LatencyGoal{.percentile = 50, .time = 20 * kMillisecond},
                         .verdict = {.kind = sched::Verdict::Kind::kMissed, .why = "too long"},
                         .last_minute = Figures({20 * kMillisecond, 20 * kMillisecond, 40 * kMillisecond}),
                         .since_start = Figures({20 * kMillisecond, 20 * kMillisecond, 40 * kMillisecond, kSecond}),
                         .solo_median = 10 * kMillisecond,
                         .solo_bursts = 1};
  goal.since_start.violations = 2;
  report.Add(goal);
  EXPECT_EQ(report.judged, 4u);
  EXPECT_EQ(report.ViolatingPart(), 0.5);
  EXPECT_NEAR(static_cast<double>(report.attained_time.value()), 20e6, 0.4e6);
  EXPECT_FALSE(report.attained_pct);
  EXPECT_EQ(report.solo_p50, 10 * kMillisecond);
  EXPECT_EQ(report.reason, "too long");
  EXPECT_EQ(report.GoalMet(), false);
}

TEST(Bursts, HaveASpeedOnceItIsKnown) {
  BurstReport report;
  sched::GoalReport goal{.goal = sched::SpeedGoal{80}};
  report.Add(goal);
  EXPECT_FALSE(report.attained_pct);
  EXPECT_FALSE(report.GoalMet());
  EXPECT_FALSE(report.solo_p50);
  goal.last_minute.worked = 30;
  goal.last_minute.solo = 20;
  goal.verdict.kind = sched::Verdict::Kind::kTight;
  report.Add(goal);
  EXPECT_NEAR(report.attained_pct.value(), 66.7, 0.1);
  EXPECT_EQ(report.judged, 0u) << "a speed has no time";
  EXPECT_EQ(report.GoalMet(), true);
}

}  // namespace
}  // namespace tessera::server
