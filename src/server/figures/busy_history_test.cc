#include "server/figures/busy_history.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(BusyHistoryTest, NothingYet) { EXPECT_EQ(BusyHistory().Percent(kSecond, 0), 0); }

TEST(BusyHistoryTest, SinceTheFirstSampleAtFirst) {
  BusyHistory history;
  history.Note(10 * kSecond, 0);
  EXPECT_DOUBLE_EQ(history.Percent(10 * kSecond + 200 * kMillisecond, 50 * kMillisecond), 25);
}

TEST(BusyHistoryTest, TheLastSecondOnly) {
  BusyHistory history;
  Nanos busy = 0;
  for (int i = 0; i <= 100; ++i) {  // 2.5 s fully busy, then 2.5 s with a fifth
    history.Note(i * 50 * kMillisecond, busy);
    busy += i < 50 ? 50 * kMillisecond : 10 * kMillisecond;
  }
  EXPECT_NEAR(history.Percent(100 * 50 * kMillisecond, busy - 10 * kMillisecond), 20, 0.01);
}

TEST(BusyHistoryTest, OneLongGrantWithoutEvents) {
  BusyHistory history;
  history.Note(kSecond, 0);
  EXPECT_DOUBLE_EQ(history.Percent(11 * kSecond, 10 * kSecond), 100);
}

TEST(BusyHistoryTest, IdleSinceLongAgo) {
  BusyHistory history;
  history.Note(kSecond, 0);
  history.Note(2 * kSecond, kSecond);
  EXPECT_DOUBLE_EQ(history.Percent(10 * kSecond, kSecond), 0);
}

TEST(BusyHistoryTest, CloseSamplesAreDropped) {
  BusyHistory history;
  history.Note(kSecond, 0);
  EXPECT_FALSE(history.Due(kSecond + 49 * kMillisecond));
  EXPECT_TRUE(history.Due(kSecond + 50 * kMillisecond));
}

}  // namespace
}  // namespace tessera::server
