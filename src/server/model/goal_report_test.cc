#include "server/model/goal_report.h"

#include <gtest/gtest.h>

#include "server/model/vgpu.h"
#include "server/record/events.h"

namespace tessera::server {
namespace {

TEST(GoalReport, CountsBurstsAndHoldsThemAgainstALatency) {
  GoalReport report;
  NoteBurst(report, {.begin = 0, .end = 30 * kMillisecond}, std::nullopt);
  EXPECT_EQ(report.bursts, 1u);
  EXPECT_EQ(report.ViolatingPart(), 0) << "no goal, nothing to violate";
  const sched::Goal goal = sched::LatencyGoal{.percentile = 99, .time = 20 * kMillisecond};
  NoteBurst(report, {.begin = 0, .end = 20 * kMillisecond}, goal);
  NoteBurst(report, {.begin = 0, .end = 20 * kMillisecond + 1}, goal);
  EXPECT_EQ(report.bursts, 3u);
  EXPECT_EQ(report.violations, 1u);
  EXPECT_EQ(report.ViolatingPart(), 0.5);
  EXPECT_EQ(report.lengths.Sum(), 70 * kMillisecond + 1);
  NoteBurst(report, {.begin = 0, .end = kSecond}, sched::SpeedGoal{80});
  EXPECT_EQ(report.judged, 2u) << "a speed has no time";
}

TEST(GoalReport, ForgetsTheGoalAndKeepsTheBursts) {
  GoalReport report;
  NoteBurst(report, {.begin = 0, .end = kSecond}, sched::LatencyGoal{.percentile = 99, .time = kMillisecond});
  report.verdict = GoalVerdict::kMissed;
  report.reason = "the batch job";
  report.attained_time = kSecond;
  ForgetGoal(report);
  EXPECT_EQ(report.bursts, 1u);
  EXPECT_EQ(report.violations, 0u);
  EXPECT_EQ(report.verdict, GoalVerdict::kNone);
  EXPECT_EQ(report.reason, "");
  EXPECT_FALSE(report.attained_time);
}

TEST(GoalReport, AnEventTellsOfAnotherVerdict) {
  VGpu vgpu;
  vgpu.gpu = 1;
  vgpu.spec.name = "serve";
  vgpu.spec.uid = 1000;
  vgpu.spec.goal = sched::LatencyGoal{.percentile = 99, .time = 20 * kMillisecond};
  const std::uint64_t before = events::Last();
  Judge(vgpu, GoalVerdict::kNone, "");
  EXPECT_EQ(events::Last(), before);
  Judge(vgpu, GoalVerdict::kMissed, "its bursts take 25 ms alone");
  Judge(vgpu, GoalVerdict::kMissed, "its bursts take 26 ms alone");
  const auto told = events::After(before, 10).events;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type, EventType::kGoal);
  EXPECT_EQ(told[0].vgpu, "serve");
  EXPECT_EQ(told[0].gpu, 1u);
  EXPECT_EQ(told[0].owner, 1000u);
  EXPECT_EQ(told[0].text, "p99=20ms: missed (was none): its bursts take 25 ms alone");
  EXPECT_EQ(vgpu.goal_report.reason, "its bursts take 26 ms alone") << "as it is now";
}

}  // namespace
}  // namespace tessera::server
