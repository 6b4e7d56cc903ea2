#include "sched/goals/latency_keeper.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

const GoalsConfig kConfig;

TEST(LatencyKeeper, BeginsStrictAndRelaxesWhileTheTargetHolds) {
  LatencyKeeper keeper({99, 20 * kMs}, kConfig);
  EXPECT_EQ(keeper.patience(), kConfig.least_patience);
  Nanos before = 0;
  for (int i = 0; i < 3000; ++i) {
    keeper.Ended(false);
    EXPECT_GE(keeper.patience(), before);
    before = keeper.patience();
  }
  EXPECT_EQ(keeper.patience(), kConfig.most_patience);
}

TEST(LatencyKeeper, OneViolationTakesPatienceAway) {
  LatencyKeeper keeper({99, 20 * kMs}, kConfig);
  for (int i = 0; i < 1500; ++i) keeper.Ended(false);
  const Nanos before = keeper.patience();
  keeper.Ended(true);
  EXPECT_LT(keeper.patience(), before);
}

TEST(LatencyKeeper, JumpsToWhatTheBurstAloneLeavesOfTheTarget) {
  LatencyKeeper tight({99, 9 * kMs}, kConfig);
  tight.Learn(8 * kMs);
  EXPECT_LE(tight.patience(), kMs);
  EXPECT_GE(tight.patience(), kMs / 4);
  LatencyKeeper lax({99, 500 * kMs}, kConfig);
  lax.Learn(8 * kMs);
  EXPECT_EQ(lax.patience(), kConfig.most_patience);
  LatencyKeeper impossible({99, 2 * kMs}, kConfig);
  impossible.Learn(3 * kMs);
  EXPECT_EQ(impossible.patience(), kConfig.least_patience);
  LatencyKeeper strict({99, 20 * kMs}, kConfig);
  strict.Learn(19900 * kMicrosecond);
  EXPECT_EQ(strict.patience(), 0) << "a long burst gains by a freeze";
  strict.GiveUp(true);
  EXPECT_EQ(strict.patience(), kConfig.least_patience);
  lax.Learn(600 * kMs);
  EXPECT_EQ(lax.patience(), kConfig.most_patience) << "once; from then on it follows what happens";
}

TEST(LatencyKeeper, RushesWhenTheSlackIsGone) {
  LatencyKeeper keeper({99, 100 * kMs}, kConfig);
  keeper.Learn(25 * kMs);
  // At half the speed it needs 50 ms, and would be late only if it were longer than usual.
  EXPECT_EQ(keeper.RushAt(kSecond, 25 * kMs, 0.5), kSecond + 100 * kMs - kConfig.freeze_time - kMs);
  // At a tenth the rest, alone, just fits when 90 % of what is left of the target has gone by.
  const Nanos at = keeper.RushAt(kSecond, 25 * kMs, 0.1) - kSecond;
  EXPECT_NEAR(static_cast<double>(at), 73.5 * kMs / 0.9, kMs);
  EXPECT_EQ(keeper.RushAt(kSecond, 99 * kMs, 0.1), kSecond) << "no slack at all";
  LatencyKeeper brief({99, 5 * kMs}, kConfig);
  brief.Learn(kMs);
  EXPECT_EQ(brief.RushAt(kSecond, kMs, 0.1), kNever) << "a freeze takes about as long as the burst";
  keeper.GiveUp(true);
  EXPECT_EQ(keeper.RushAt(kSecond, 25 * kMs, 0.1), kNever);
}

// Any bursts, as long as strictness can help: with the least patience none is late.
RC_GTEST_PROP(LatencyKeeperProperty, ViolationsAreBoundedWhateverArrives, ()) {
  const double percentile = *rc::gen::element(50.0, 90.0, 99.0, 99.9);
  LatencyKeeper keeper({percentile, 20 * kMs}, kConfig);
  const double allowed = 1 - percentile / 100;
  const auto bursts = *rc::gen::inRange(1, 5000);
  const bool jump = *rc::gen::inRange(0, 2) == 0;
  double violations = 0;
  Nanos needed = kConfig.most_patience;
  for (int i = 0; i < bursts; ++i) {
    if (i % 100 == 0) needed = *rc::gen::inRange<Nanos>(kConfig.least_patience, 2 * kConfig.most_patience);
    if (jump && i == 50) keeper.Learn(2 * kMs);
    const bool late = keeper.patience() > needed;
    violations += late ? 1 : 0;
    keeper.Ended(late);
  }
  RC_ASSERT(violations <= allowed * bursts + (jump ? 1 / kConfig.gain : 0) + 1);
}

// Of requests, fewer violations beyond what is allowed are enough for that.
TEST(LatencyKeeper, RequestsThatAreLateTogetherMakeItStrictSooner) {
  const LatencyGoal goal{99, 20 * kMillisecond};
  LatencyKeeper bursts(goal, {}), requests(goal, {});
  for (int i = 0; i < 5000; ++i) {
    bursts.Ended(false);
    requests.Told(false);
  }
  EXPECT_EQ(bursts.strictness(), 0);
  EXPECT_EQ(requests.strictness(), 0);
  for (int i = 0; i < 5; ++i) {
    bursts.Ended(true);
    requests.Told(true);
  }
  EXPECT_EQ(requests.strictness(), 1);
  EXPECT_LT(bursts.strictness(), 0.3);
}

}  // namespace
}  // namespace tessera::sched
