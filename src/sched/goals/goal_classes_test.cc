#include "sched/goals/goal_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Le;

TEST(GoalClasses, WithoutATargetAreAsConfigured) {
  EXPECT_THAT(ClassesOf({{8}, {3}, {8}, {15}}), ElementsAre(8, 3, 8, 15));
  EXPECT_TRUE(ClassesOf({}).empty());
}

TEST(GoalClasses, ATargetGoesBeforeItsOwnPriorityAndAShorterOneFirst) {
  EXPECT_THAT(ClassesOf({{8}, {8, 20 * kMs}, {8, 5 * kMs}, {8}}), ElementsAre(2, 1, 0, 2));
}

TEST(GoalClasses, AHigherPriorityStaysAbove) {
  EXPECT_THAT(ClassesOf({{4}, {8, 5 * kMs}, {8}, {9, kMs}}), ElementsAre(0, 1, 2, 3));
}

TEST(GoalClasses, NeighboursShareAClassIfThereAreTooMany) {
  std::vector<ClassWish> wishes;
  for (std::uint32_t i = 0; i < 40; ++i) wishes.push_back({8, (i + 1) * kMs});
  const auto classes = ClassesOf(wishes);
  EXPECT_TRUE(std::ranges::is_sorted(classes));
  EXPECT_THAT(classes, Each(Le(15u)));
  EXPECT_EQ(classes.back(), 15u);
}

}  // namespace
}  // namespace tessera::sched
