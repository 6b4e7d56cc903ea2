#include "sched/steering/grace.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

constexpr Nanos kCost = 8 * kMs;

// Gaps one after the other, with work of 10 ms between them; those below the grace are never seen.
Nanos Learn(Grace& grace, Nanos gap, int times, Nanos& now) {
  for (int i = 0; i < times; ++i) {
    now += 10 * kMs + gap;
    if (gap >= grace.value()) grace.Learn(gap, grace.value(), now);
  }
  return grace.value();
}

TEST(Grace, BeginsWithTheLeast) { EXPECT_EQ(Grace(kMs, 50 * kMs, kCost).value(), kMs); }

TEST(Grace, OneGapThatDidNotPayIsEnough) {
  Grace grace(kMs, 50 * kMs, kCost);
  Nanos now = 0;
  Learn(grace, 3 * kMs, 1, now);
  EXPECT_GT(grace.value(), 3 * kMs);
  EXPECT_LT(grace.value(), 4 * kMs);
}

TEST(Grace, LongGapsPay) {
  Grace grace(kMs, 50 * kMs, kCost);
  Nanos now = 0;
  EXPECT_EQ(Learn(grace, 200 * kMs, 20, now), kMs);
  EXPECT_EQ(Learn(grace, 10 * kMs, 1, now), kMs) << "a thaw of 9 ms";
}

TEST(Grace, CoversThePausesOfARequestButNotTheTimeBetweenRequests) {
  Grace grace(kMs, 50 * kMs, kCost);
  Nanos now = 0;
  for (int request = 0; request < 30; ++request) {
    Learn(grace, 4 * kMs, 50, now);
    Learn(grace, 300 * kMs, 1, now);
    EXPECT_GT(grace.value(), 4 * kMs) << "request " << request;
    EXPECT_LT(grace.value(), 6 * kMs) << "request " << request;
  }
}

TEST(Grace, FindsOutWhenTheShortGapsAreGone) {
  Grace grace(kMs, 50 * kMs, kCost);
  Nanos now = 0;
  Learn(grace, 4 * kMs, 1, now);
  ASSERT_GT(grace.value(), 4 * kMs);
  EXPECT_GT(Learn(grace, 500 * kMs, 10, now), 4 * kMs) << "they may only be hidden";
  EXPECT_EQ(Learn(grace, 500 * kMs, 50, now), kMs) << "after 30 s";
}

TEST(Grace, FewOfTheShortGapsAreBad) {
  Grace grace(kMs, 50 * kMs, kCost);
  Nanos now = 0;
  int bad = 0;
  constexpr int kGaps = 10'000;
  for (int i = 0; i < kGaps; ++i) {
    if (grace.value() < 6 * kMs) ++bad;
    Learn(grace, 6 * kMs, 1, now);
    if (i % 50 == 49) Learn(grace, 100 * kMs, 1, now);
  }
  EXPECT_GE(bad, 1);
  EXPECT_LT(bad, kGaps / 100);
}

TEST(Grace, StaysInItsRange) {
  Grace grace(kMs, 50 * kMs, 1000 * kMs);
  Nanos now = 0;
  for (const Nanos gap : {Nanos{-5}, Nanos{0}, 45 * kMs, 49 * kMs, 60 * kMs, kNever / 2}) {
    grace.Learn(gap, grace.value(), now += kMs);
    EXPECT_GE(grace.value(), kMs);
    EXPECT_LE(grace.value(), 50 * kMs);
  }
  const Grace fixed(5 * kMs, 5 * kMs, kCost);
  EXPECT_EQ(fixed.value(), 5 * kMs);
}

}  // namespace
}  // namespace tessera::sched
