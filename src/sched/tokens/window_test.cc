#include "sched/tokens/window.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

TEST(UsageWindow, CountsWhatIsInside) {
  UsageWindow window(100 * kMs);
  EXPECT_EQ(window.Used(0), 0);
  window.Add(10 * kMs, 40 * kMs, 30 * kMs);
  window.Add(60 * kMs, 70 * kMs, 5 * kMs);
  EXPECT_DOUBLE_EQ(window.Used(70 * kMs), 35 * kMs);
  EXPECT_DOUBLE_EQ(window.Used(110 * kMs), 35 * kMs);
  EXPECT_DOUBLE_EQ(window.Used(120 * kMs), 25 * kMs);
  EXPECT_DOUBLE_EQ(window.Used(165 * kMs), 2.5 * kMs);
  EXPECT_DOUBLE_EQ(window.Used(170 * kMs), 0);
}

TEST(UsageWindow, RoomCountsWhatSlidesOutDuringTheRun) {
  UsageWindow window(100 * kMs);
  EXPECT_DOUBLE_EQ(window.Room(0, 30 * kMs), 30 * kMs);
  window.Add(0, 30 * kMs, 30 * kMs);
  EXPECT_DOUBLE_EQ(window.Room(30 * kMs, 30 * kMs), 0);
  EXPECT_DOUBLE_EQ(window.Room(95 * kMs, 31 * kMs), 1 * kMs) << "5 ms would have to pass before anything slides out";
  EXPECT_DOUBLE_EQ(window.Room(99 * kMs, 32 * kMs), 32 * kMs);
  EXPECT_DOUBLE_EQ(window.Room(100 * kMs, 31 * kMs), 31 * kMs);
}

TEST(UsageWindow, RoomAtIsTheFirstMomentWithRoom) {
  UsageWindow window(100 * kMs);
  EXPECT_EQ(window.RoomAt(5, 30 * kMs, 30 * kMs), 5);
  window.Add(0, 20 * kMs, 20 * kMs);
  window.Add(50 * kMs, 60 * kMs, 10 * kMs);
  EXPECT_EQ(window.RoomAt(60 * kMs, 5 * kMs, 30 * kMs), 100 * kMs);
  EXPECT_EQ(window.RoomAt(60 * kMs, 25 * kMs, 30 * kMs), 130 * kMs);
  EXPECT_EQ(window.RoomAt(60 * kMs, 30 * kMs, 30 * kMs), 130 * kMs);
  EXPECT_EQ(window.RoomAt(60 * kMs, 5 * kMs, 35 * kMs), 60 * kMs);
}

TEST(UsageWindow, ManyShortSpansStayFewAndExactInSum) {
  UsageWindow window(100 * kMs);
  for (Nanos t = 0; t < 1000 * kMs; t += 100 * kMicrosecond) window.Add(t, t + 50 * kMicrosecond, 50 * kMicrosecond);
  EXPECT_NEAR(window.Used(1000 * kMs), 50 * kMs, 1 * kMs);
}

}  // namespace
}  // namespace tessera::sched
