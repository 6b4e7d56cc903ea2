#include "sched/packing/free_range.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera::sched {
namespace {

constexpr Part P(int percent) { return percent * kPercent; }

TEST(FreeRange, TheFirstThatIsWideEnough) {
  EXPECT_EQ(FirstFree({}, kWhole), 0);
  EXPECT_EQ(FirstFree({{P(20), P(30)}}, P(20)), 0);
  EXPECT_EQ(FirstFree({{P(20), P(30)}}, P(21)), P(50));
  EXPECT_EQ(FirstFree({{P(60), P(40)}, {0, P(20)}}, P(40)), P(20)) << "in any order";
  EXPECT_EQ(FirstFree({{P(20), P(30)}}, P(51)), std::nullopt) << "70 % are free, in two pieces";
  EXPECT_EQ(FirstFree({{0, kWhole}}, 1), std::nullopt);
}

TEST(FreeRange, WhatIsFree) {
  EXPECT_TRUE(IsFree({}, {0, kWhole}));
  EXPECT_FALSE(IsFree({}, {P(1), kWhole}));
  EXPECT_TRUE(IsFree({{P(20), P(30)}}, {P(50), P(50)}));
  EXPECT_FALSE(IsFree({{P(20), P(30)}}, {P(49), P(50)}));
  EXPECT_FALSE(IsFree({{P(20), P(30)}}, {0, kWhole}));
}

TEST(FreeRange, TheWidest) {
  EXPECT_EQ(WidestFree({}), kWhole);
  EXPECT_EQ(WidestFree({{P(20), P(30)}}), P(50));
  EXPECT_EQ(WidestFree({{0, kWhole}}), 0);
}

RC_GTEST_PROP(FreeRange, RangesNeverOverlapAndNoRoomIsMissed, ()) {
  std::vector<SmRange> taken;
  for (int i = 0, steps = *rc::gen::inRange(0, 40); i < steps; ++i) {
    if (!taken.empty() && *rc::gen::inRange(0, 3) == 0) {
      taken.erase(taken.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(taken.size())));
      continue;
    }
    const Part width = P(*rc::gen::inRange(1, 60));
    const auto from = FirstFree(taken, width);
    RC_ASSERT(from.has_value() == (WidestFree(taken) >= width));
    if (!from) continue;
    const SmRange made{*from, width};
    RC_ASSERT(IsFree(taken, made));
    for (const SmRange& other : taken) RC_ASSERT(made.End() <= other.from || other.End() <= made.from);
    RC_ASSERT(!IsFree({made}, made));
    taken.push_back(made);
  }
}

}  // namespace
}  // namespace tessera::sched
