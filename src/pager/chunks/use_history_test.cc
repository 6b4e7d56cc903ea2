#include "pager/chunks/use_history.h"

#include <gtest/gtest.h>

namespace tessera::pager {
namespace {

constexpr Nanos kInterval = UseHistory::kInterval;
constexpr Nanos kStart = 1000 * kInterval;

// Heat, after `intervals`, of a chunk that is used every `period` intervals.
Heat After(int intervals, int period) {
  UseHistory history;
  for (int i = 0; i < intervals; i += period) history.Note(kStart + i * kInterval);
  return history.At(kStart + (intervals - 1) * kInterval);
}

TEST(UseHistory, WhatWasNeverUsedIsCold) {
  const UseHistory history;
  EXPECT_EQ(history.At(kStart), Heat{});
  EXPECT_EQ(history.At(0), Heat{});
}

TEST(UseHistory, CountsTheIntervalsInWhichItWasUsedAndTheLastOnesMore) {
  UseHistory history;
  for (int i = 0; i < 100; ++i) history.Note(kStart + i);
  EXPECT_EQ(history.At(kStart), (Heat{15, 1000}));
  history.Note(kStart + kInterval);
  history.Note(kStart + 5 * kInterval);
  EXPECT_EQ(history.At(kStart + 5 * kInterval), (Heat{15 + 7 + 7, 1005}));
  EXPECT_EQ(history.At(kStart + 16 * kInterval), (Heat{3 + 3 + 1, 1005}));
}

TEST(UseHistory, ForgetsWhatIsLongAgoButNotWhenItWas) {
  UseHistory history;
  history.Note(kStart);
  EXPECT_EQ(history.At(kStart + 31 * kInterval), (Heat{1, 1000}));
  EXPECT_EQ(history.At(kStart + 32 * kInterval), (Heat{0, 1000}));
  EXPECT_EQ(history.At(kStart + 1'000'000 * kInterval), (Heat{0, 1000}));
  EXPECT_GT(history.At(kStart + 32 * kInterval), Heat{});
}

TEST(UseHistory, IsFullWithUseInEachInterval) { EXPECT_EQ(After(200, 1).use, 128u); }

TEST(UseHistory, OneThatComesLateChangesNoOrder) {
  UseHistory history;
  history.Note(kStart + kInterval);
  history.Note(kStart);  // a thread that was held up between looking at the clock and this
  EXPECT_EQ(history.At(kStart + kInterval), (Heat{15, 1001}));
}

TEST(Exchanging, WhatIsUsedIsWorthMoreThanWhatIsNot) {
  EXPECT_TRUE(WorthExchanging(After(40, 1), {}));
  EXPECT_TRUE(WorthExchanging(After(40, 1).Behind(), {}));
  EXPECT_TRUE(WorthExchanging(After(40, 1), After(40, 5)));
  EXPECT_FALSE(WorthExchanging({}, After(40, 1)));
  EXPECT_FALSE(WorthExchanging({}, {}));
  EXPECT_FALSE(WorthExchanging(After(1, 1), {}));  // once is no habit
}

// A program that turns to other data has that data on the GPU after some seconds.
TEST(Exchanging, ChunkThatIsUsedInPlaceOfAnotherTakesItsPlace) {
  UseHistory before, now;
  for (int i = 0; i < 100; ++i) before.Note(kStart + i * kInterval);
  int intervals = 0;
  for (; intervals < 32; ++intervals) {
    const Nanos when = kStart + (100 + intervals) * kInterval;
    now.Note(when);
    if (WorthExchanging(now.At(when), before.At(when))) break;
  }
  EXPECT_GE(intervals, 4);
  EXPECT_LE(intervals, 10);
}

// Two that are used in turns with the same period, seen at any time: whichever is out, the other one is worth as much.
class Uniform : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Periods, Uniform, testing::Values(1, 2, 3, 5, 8, 13, 20, 31, 32, 33, 50));

TEST_P(Uniform, UseIsNoReasonToMoveAnything) {
  const int period = GetParam();
  UseHistory first, second;
  for (int i = 0; i < 200; ++i) {
    const Nanos now = kStart + i * kInterval;
    if (i % period == 0) first.Note(now);
    if (i % period == period / 2) second.Note(now);
    if (i < 32 + period) continue;
    EXPECT_FALSE(WorthExchanging(first.At(now), second.At(now))) << i;
    EXPECT_FALSE(WorthExchanging(second.At(now), first.At(now))) << i;
  }
}

TEST_P(Uniform, WhatWasExchangedIsNotExchangedBack) {
  const Heat hot = After(200, GetParam());
  for (std::uint32_t use = 0; use <= 128; ++use)
    EXPECT_FALSE(WorthExchanging(hot, {use, 0}) && WorthExchanging({use, 0}, hot)) << use;
}

}  // namespace
}  // namespace tessera::pager
