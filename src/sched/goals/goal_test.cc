#include "sched/goals/goal.h"

#include <gtest/gtest.h>

namespace tessera::sched {
namespace {

TEST(Goal, LatencyIsAPercentileAndATime) {
  const auto goal = ParseGoal("p99.9=5ms");
  ASSERT_TRUE(goal) << goal.error().Text();
  const auto& latency = std::get<LatencyGoal>(*goal);
  EXPECT_EQ(latency, (LatencyGoal{99.9, 5 * kMillisecond}));
  EXPECT_NEAR(latency.violations(), 0.001, 1e-12);
}

TEST(Goal, SpeedIsAPartOfTheSpeedAlone) {
  const auto goal = ParseGoal("speed=80%");
  ASSERT_TRUE(goal) << goal.error().Text();
  EXPECT_EQ(std::get<SpeedGoal>(*goal), SpeedGoal{80});
  EXPECT_EQ(ParseGoal("speed=80").value(), *goal);
}

TEST(Goal, PrintsAsItIsWritten) {
  for (const char* text : {"p99=20ms", "p99.9=5ms", "p50=100us", "p99.99=3600s", "p95=1.5s", "p99=1.234567s",
                           "speed=80%", "speed=1%", "speed=7.1%", "speed=100%"}) {
    const auto goal = ParseGoal(text);
    ASSERT_TRUE(goal) << text << ": " << goal.error().Text();
    EXPECT_EQ(FormatGoal(*goal), text);
  }
  EXPECT_EQ(FormatGoal(LatencyGoal{99, 500 * kMillisecond}), "p99=500ms");
  EXPECT_EQ(FormatGoal(*ParseGoal("p99=0.5s")), "p99=500ms");
}

TEST(Goal, RefusesWhatIsNoGoal) {
  for (const char* text :
       {"",           "=",          "p",         "p=",        "p99",       "p99=",     "p99=20",   "p99=ms",
        "p99=20 ms",  "p99=20msx",  "px=20ms",   "p99%=20ms", "q99=20ms",  "speed",    "speed=",   "speed=fast",
        "speed=80%%", "speed=0.8x", "Speed=80%", "p99=infms", "p99=nanms", "pnan=1ms", "p99=1e3ms"}) {
    const auto goal = ParseGoal(text);
    ASSERT_FALSE(goal) << text;
    EXPECT_EQ(goal.error().code, EINVAL) << text;
    EXPECT_FALSE(goal.error().hint.empty()) << text;
  }
}

TEST(Goal, RefusesWhatIsOutOfRange) {
  for (const char* text : {"p49=20ms", "p100=20ms", "p-1=20ms", "p99=0ms", "p99=-5ms", "p99=99us", "p99=3601s",
                           "p99=99999999999999999999999s", "speed=0%", "speed=0.9%", "speed=101%", "speed=-5%"}) {
    const auto goal = ParseGoal(text);
    ASSERT_FALSE(goal) << text;
    EXPECT_EQ(goal.error().code, ERANGE) << text;
    EXPECT_FALSE(goal.error().hint.empty()) << text;
  }
}

}  // namespace
}  // namespace tessera::sched
