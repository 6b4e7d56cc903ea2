#include "server/model/vgpu_request.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

constexpr std::uint64_t kCapacity = 8ull << 30;

TEST(VGpuRequest, SetsAndTakesAwayAGoal) {
  VGpuSpec spec;
  ASSERT_TRUE(ApplyFigures({.goal = "p99=20ms"}, kCapacity, true, spec));
  EXPECT_EQ(spec.goal, sched::Goal(sched::LatencyGoal{.percentile = 99, .time = 20 * kMillisecond}));
  ASSERT_TRUE(ApplyFigures({.compute_weight = "7"}, kCapacity, true, spec));
  EXPECT_TRUE(spec.goal) << "a request that does not name it leaves it as it is";
  ASSERT_TRUE(ApplyFigures({.goal = "speed=80%"}, kCapacity, true, spec));
  EXPECT_EQ(spec.goal, sched::Goal(sched::SpeedGoal{80}));
  ASSERT_TRUE(ApplyFigures({.goal = "none"}, kCapacity, true, spec));
  EXPECT_FALSE(spec.goal);
}

TEST(VGpuRequest, OfAWrongGoalChangesNothing) {
  VGpuSpec spec;
  spec.goal = sched::SpeedGoal{80};
  for (const char* text : {"", "fast", "p99", "p99=20", "speed=0%", "p100=1ms", "None"}) {
    const auto applied = ApplyFigures({.compute_weight = "7", .goal = text}, kCapacity, true, spec);
    ASSERT_FALSE(applied) << text;
    EXPECT_TRUE(applied.error().code == EINVAL || applied.error().code == ERANGE) << text;
    EXPECT_NE(applied.error().message.find("goal"), std::string::npos) << applied.error().message;
    EXPECT_EQ(spec.goal, sched::Goal(sched::SpeedGoal{80}));
    EXPECT_EQ(spec.compute.weight, sched::Shares{}.weight);
  }
}

TEST(VGpuRequest, NamesASpaceAndItsPartOfTheSms) {
  VGpuSpec spec;
  ASSERT_TRUE(ApplyFigures({.space = "team", .sm_limit = "33.5"}, kCapacity, true, spec));
  EXPECT_EQ(spec.space, "team");
  EXPECT_EQ(spec.compute.space.sm_pct, 33.5);
  ASSERT_TRUE(ApplyFigures({.compute_weight = "7"}, kCapacity, true, spec));
  EXPECT_EQ(spec.space, "team");
  EXPECT_EQ(spec.compute.space.sm_pct, 33.5);
}

TEST(VGpuRequest, OfAWrongSpaceChangesNothing) {
  VGpuSpec spec;
  const auto nameless = ApplyFigures({.space = ""}, kCapacity, true, spec);
  ASSERT_FALSE(nameless);
  EXPECT_EQ(nameless.error().code, EINVAL);
  for (const char* text : {"", "-1", "101", "half"}) {
    const auto applied = ApplyFigures({.space = "team", .sm_limit = text}, kCapacity, true, spec);
    ASSERT_FALSE(applied) << text;
    EXPECT_NE(applied.error().message.find("sm_limit"), std::string::npos) << applied.error().message;
    EXPECT_EQ(spec.space, "");
    EXPECT_EQ(spec.compute.space, sched::SpacePlace());
  }
}

TEST(VGpuRequest, NamesAGangOrTakesItAway) {
  VGpuSpec spec;
  ASSERT_TRUE(ApplyFigures({.gang = "job-1"}, kCapacity, true, spec));
  EXPECT_EQ(spec.gang, "job-1");
  ASSERT_TRUE(ApplyFigures({.compute_weight = "7"}, kCapacity, true, spec));
  EXPECT_EQ(spec.gang, "job-1");
  ASSERT_TRUE(ApplyFigures({.gang = std::string(63, 'x')}, kCapacity, true, spec));
  ASSERT_TRUE(ApplyFigures({.gang = "none"}, kCapacity, true, spec));
  EXPECT_EQ(spec.gang, "");
}

TEST(VGpuRequest, ReplacesLabels) {
  VGpuSpec spec;
  ASSERT_TRUE(ApplyFigures({.labels = Labels{{"team", "a"}, {"pod", "b"}}}, kCapacity, true, spec));
  ASSERT_TRUE(ApplyFigures({.compute_weight = "7"}, kCapacity, true, spec));
  EXPECT_EQ(spec.labels, (Labels{{"team", "a"}, {"pod", "b"}}));
  ASSERT_TRUE(ApplyFigures({.labels = Labels{{"team", "c"}}}, kCapacity, true, spec));
  EXPECT_EQ(spec.labels, (Labels{{"team", "c"}}));
  const auto wrong = ApplyFigures({.compute_weight = "8", .labels = Labels{{"vgpu", "x"}}}, kCapacity, true, spec);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, EINVAL);
  EXPECT_EQ(spec.labels, (Labels{{"team", "c"}}));
  EXPECT_EQ(spec.compute.weight, 7u);
  ASSERT_TRUE(ApplyFigures({.labels = Labels()}, kCapacity, true, spec));
  EXPECT_TRUE(spec.labels.empty());
}

TEST(VGpuRequest, OfAWrongGangChangesNothing) {
  VGpuSpec spec;
  spec.gang = "job";
  for (const std::string& name : {std::string(), std::string(".."), std::string("a b"), std::string(64, 'x')}) {
    const auto applied = ApplyFigures({.compute_weight = "7", .gang = name}, kCapacity, true, spec);
    ASSERT_FALSE(applied) << name;
    EXPECT_EQ(applied.error().code, EINVAL);
    EXPECT_NE(applied.error().message.find("gang"), std::string::npos) << applied.error().message;
    EXPECT_EQ(spec.gang, "job");
    EXPECT_EQ(spec.compute.weight, sched::Shares{}.weight);
  }
}

TEST(VGpuRequest, AVGpuOfASpaceIsInNoGang) {
  VGpuSpec spec;
  const auto both = ApplyFigures({.gang = "job", .space = "team"}, kCapacity, true, spec);
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, EINVAL);
  EXPECT_NE(both.error().message.find("team"), std::string::npos) << both.error().message;
  ASSERT_TRUE(ApplyFigures({.gang = "none", .space = "team"}, kCapacity, true, spec));
  EXPECT_FALSE(ApplyFigures({.gang = "job"}, kCapacity, true, spec)) << "also if it is changed";
}

}  // namespace
}  // namespace tessera::server
