#include "server/model/bursts.h"

#include <gtest/gtest.h>

#include "server/model/vgpu.h"
#include "server/record/events.h"

namespace tessera::server {
namespace {

using Kind = sched::Verdict::Kind;

sched::Burst Of(Nanos length, bool alone = false) {
  return {.begin = 0, .end = length, .submissions = 8, .alone = alone};
}

TEST(Bursts, AreCountedWithoutAGoal) {
  Bursts bursts;
  EXPECT_FALSE(bursts.ReportAt(0).p50);
  bursts.Note(Of(10 * kMillisecond), kSecond);
  bursts.Note(Of(10 * kMillisecond), kSecond);
  bursts.Note(Of(30 * kMillisecond), kSecond);
  const BurstReport report = bursts.ReportAt(kSecond);
  EXPECT_EQ(report.count, 3u);
  EXPECT_EQ(report.lengths.Sum(), 50 * kMillisecond);
  EXPECT_NEAR(static_cast<double>(report.p50.value()), 10e6, 0.2e6);
  EXPECT_NEAR(static_cast<double>(report.p99.value()), 30e6, 0.5e6);
  EXPECT_FALSE(report.solo_p50);
  EXPECT_FALSE(report.attained_time);
  EXPECT_EQ(report.ViolatingPart(), 0) << "no goal, nothing to violate";
}

TEST(Bursts, AreHeldAgainstALatency) {
  Bursts bursts;
  bursts.Note(Of(kSecond), kSecond);
  bursts.SetGoal(sched::LatencyGoal{.percentile = 50, .time = 20 * kMillisecond});
  bursts.Note(Of(20 * kMillisecond), 2 * kSecond);
  bursts.Note(Of(20 * kMillisecond), 2 * kSecond);
  bursts.Note(Of(40 * kMillisecond), 2 * kSecond);
  bursts.Note(Of(40 * kMillisecond), 2 * kSecond);
  const BurstReport report = bursts.ReportAt(2 * kSecond);
  EXPECT_EQ(report.count, 5u);
  EXPECT_EQ(report.judged, 4u) << "the first was before the goal";
  EXPECT_EQ(report.ViolatingPart(), 0.5);
  EXPECT_NEAR(static_cast<double>(report.attained_time.value()), 20e6, 0.4e6);
  EXPECT_FALSE(report.attained_pct);
  EXPECT_FALSE(bursts.ReportAt(200 * kSecond).attained_time) << "the last minute had no bursts";
}

TEST(Bursts, HaveASpeedOnceTheyWereAlone) {
  Bursts bursts;
  bursts.SetGoal(sched::SpeedGoal{80});
  bursts.Note(Of(20 * kMillisecond), kSecond);
  EXPECT_FALSE(bursts.ReportAt(kSecond).attained_pct) << "nobody knows how fast it is alone";
  bursts.Note(Of(10 * kMillisecond, /*alone=*/true), 2 * kSecond);
  bursts.Note(Of(20 * kMillisecond), 3 * kSecond);
  const BurstReport report = bursts.ReportAt(3 * kSecond);
  EXPECT_NEAR(report.attained_pct.value(), 100 * 20.0 / 30, 0.1);
  EXPECT_NEAR(static_cast<double>(report.solo_p50.value()), 10e6, 0.2e6);
  EXPECT_EQ(report.judged, 0u) << "a speed has no time";
}

TEST(Bursts, AnotherGoalBeginsAnew) {
  Bursts bursts;
  const sched::Goal goal = sched::LatencyGoal{.percentile = 99, .time = kMillisecond};
  bursts.SetGoal(goal);
  bursts.Note(Of(kSecond), kSecond);
  EXPECT_TRUE(bursts.SetVerdict(Kind::kMissed, "the batch job"));
  bursts.SetGoal(goal);
  EXPECT_EQ(bursts.ReportAt(kSecond).violations, 1u) << "it is the same";
  bursts.SetGoal(std::nullopt);
  const BurstReport report = bursts.ReportAt(kSecond);
  EXPECT_EQ(report.count, 1u);
  EXPECT_EQ(report.violations, 0u);
  EXPECT_EQ(report.verdict, Kind::kUnknown);
  EXPECT_EQ(report.reason, "");
  EXPECT_FALSE(report.GoalMet());
}

TEST(Bursts, AnEventTellsOfAnotherVerdict) {
  VGpu vgpu;
  vgpu.gpu = 1;
  vgpu.spec.name = "serve";
  vgpu.spec.uid = 1000;
  vgpu.spec.goal = sched::LatencyGoal{.percentile = 99, .time = 20 * kMillisecond};
  const std::uint64_t before = events::Last();
  Judge(vgpu, Kind::kUnknown, "");
  EXPECT_EQ(events::Last(), before);
  Judge(vgpu, Kind::kMissed, "its bursts take 25 ms alone");
  Judge(vgpu, Kind::kMissed, "its bursts take 26 ms alone");
  const auto told = events::After(before, 10).events;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type, EventType::kGoal);
  EXPECT_EQ(told[0].vgpu, "serve");
  EXPECT_EQ(told[0].gpu, 1u);
  EXPECT_EQ(told[0].owner, 1000u);
  EXPECT_EQ(told[0].text, "p99=20ms: missed: its bursts take 25 ms alone");
  EXPECT_EQ(vgpu.bursts.ReportAt(0).reason, "its bursts take 26 ms alone") << "as it is now";
  EXPECT_EQ(vgpu.bursts.ReportAt(0).GoalMet(), false);
}

}  // namespace
}  // namespace tessera::server
