#include "sched/goals/speed_keeper.h"

#include <gtest/gtest.h>

namespace tessera::sched {
namespace {

// A vGPU that is as fast as its request times `efficiency`.
Nanos Follow(SpeedKeeper& keeper, double efficiency, double most_pct, Nanos now, int seconds) {
  for (int i = 0; i < 10 * seconds; ++i) {
    now += 100 * kMillisecond;
    const double speed = keeper.request_pct() / 100 * efficiency;
    keeper.Worked(100 * kMillisecond, speed * 100 * kMillisecond, now);
    keeper.Update(most_pct, now);
  }
  return now;
}

TEST(SpeedKeeper, BeginsWithThePromise) {
  const SpeedKeeper keeper({30});
  EXPECT_EQ(keeper.request_pct(), 30);
  EXPECT_FALSE(keeper.known());
}

TEST(SpeedKeeper, RaisesTheRequestByWhatSwitchesCost) {
  SpeedKeeper keeper({30});
  const Nanos now = Follow(keeper, 0.8, 100, 0, 20);
  EXPECT_NEAR(100 * keeper.speed(), 30, 0.02 * 30);
  EXPECT_EQ(keeper.ShortFor(now), 0);
  Follow(keeper, 1, 100, now, 20);
  EXPECT_NEAR(keeper.request_pct(), 30, 0.02 * 30) << "and gives it back";
}

TEST(SpeedKeeper, StaysWithinWhatOthersLeave) {
  SpeedKeeper keeper({30});
  const Nanos now = Follow(keeper, 0.5, 35, 0, 20);
  EXPECT_EQ(keeper.request_pct(), 35);
  EXPECT_GE(keeper.ShortFor(now), 10 * kSecond);
  keeper.Update(10, now);
  EXPECT_EQ(keeper.request_pct(), 10);
}

TEST(SpeedKeeper, KeepsThePromiseWhileItIsFaster) {
  SpeedKeeper keeper({30});
  Follow(keeper, 3, 100, 0, 20);
  EXPECT_EQ(keeper.request_pct(), 30);
}

}  // namespace
}  // namespace tessera::sched
