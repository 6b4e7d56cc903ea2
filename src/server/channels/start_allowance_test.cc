#include "server/channels/start_allowance.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

constexpr Nanos kStart = StartAllowance::kMostStart;

TEST(StartAllowance, SparesAStartUntilItIsOver) {
  StartAllowance allowance;
  Nanos now = 100 * kSecond;
  EXPECT_FALSE(allowance.Spares(now));
  allowance.Begin(now);
  EXPECT_TRUE(allowance.Spares(now += kStart - 1));
  allowance.End(now);
  EXPECT_FALSE(allowance.Spares(now));
}

TEST(StartAllowance, AStartThatNeverEndsIsSparedForAMoment) {
  StartAllowance allowance;
  allowance.Begin(kSecond);
  EXPECT_TRUE(allowance.Spares(kSecond + kStart - 1));
  EXPECT_FALSE(allowance.Spares(kSecond + kStart));
}

TEST(StartAllowance, ManyAtOnceCostOnce) {
  StartAllowance allowance;
  for (int i = 0; i < 100; ++i) allowance.Begin(kSecond);
  allowance.End(kSecond + kStart / 2);
  allowance.Begin(2 * kSecond);
  EXPECT_TRUE(allowance.Spares(2 * kSecond + kStart - 1)) << "there is more than one start left";
}

// Of an hour, a tenth and what was saved.
TEST(StartAllowance, EndlessStartsHaveATenthOfTheTime) {
  constexpr Nanos kStep = 10 * kMillisecond, kLook = kMillisecond / 2, kHour = 3600 * kSecond;
  StartAllowance allowance;
  Nanos spared = 0;
  for (Nanos now = kSecond; now < kHour; now += kStep) {
    allowance.Begin(now);
    for (Nanos at = now; at < now + kStep; at += kLook) spared += allowance.Spares(at) ? kLook : 0;
  }
  EXPECT_LE(spared, kHour / 10 + StartAllowance::kMost + kStart);
  EXPECT_GE(spared, kHour / 10 - kStart);
}

}  // namespace
}  // namespace tessera::server
