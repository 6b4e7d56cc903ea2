#include "sched/packing/strip.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

Rectangle Pct(Part sms, Part time) { return {sms * kPercent, time * kPercent}; }

std::vector<Rectangle> AnyRectangles() {
  std::vector<Rectangle> all(static_cast<std::size_t>(*rc::gen::inRange(1, 20)));
  for (Rectangle& rectangle : all) rectangle = Pct(*rc::gen::inRange(1, 101), *rc::gen::inRange(1, 101));
  return all;
}

TEST(Strip, PartsRoundDownAndAddUp) {
  EXPECT_EQ(PartOf(100), kWhole);
  EXPECT_EQ(PartOf(0.29), 290'000);
  EXPECT_LE(6 * PartOf(100.0 / 6), kWhole);
  EXPECT_EQ(PctOf(PartOf(12.5)), 12.5);
}

TEST(Strip, NothingNeedsNothing) {
  EXPECT_EQ(LeastHeight({}), 0);
  EXPECT_EQ(LeastHeight({Pct(50, 0), Pct(0, 50)}), 0);
  EXPECT_EQ(TimeToKeep({}), 0);
}

TEST(Strip, MaximalRectanglesFillWhatShelvesLeave) {
  // Two shorter ones lie upon each other beside the long one; a shelf has no second storey.
  EXPECT_EQ(LeastHeight({Pct(60, 80), Pct(40, 40), Pct(40, 40)}), 80 * kPercent);
  EXPECT_EQ(LeastHeight({Pct(50, 60), Pct(50, 50), Pct(50, 40), Pct(50, 30)}), 90 * kPercent);
}

TEST(Strip, PackingMayFillNineTenthsAndLevelShelvesAll) {
  EXPECT_EQ(TimeToKeep({Pct(60, 80), Pct(40, 30), Pct(40, 50)}), 80 * kWhole / 90 + 1) << "rounded up";
  EXPECT_EQ(TimeToKeep({Pct(50, 60), Pct(50, 60), Pct(50, 40), Pct(50, 40)}), kWhole);
  EXPECT_EQ(TimeToKeep({Pct(40, 100), Pct(30, 20), Pct(30, 70)}), kWhole) << "side by side";
  EXPECT_EQ(TimeToKeep({Pct(60, 50), Pct(70, 30), Pct(80, 20)}), kWhole) << "one after the other";
}

RC_GTEST_PROP(StripProperty, TheHeightIsBetweenItsBounds, ()) {
  const auto rectangles = AnyRectangles();
  const Part height = LeastHeight(rectangles);
  Part longest = 0;
  Part area = 0;
  for (const Rectangle& rectangle : rectangles) {
    longest = std::max(longest, rectangle.time);
    area += rectangle.Area() / kWhole;
  }
  RC_ASSERT(height >= LeastThinkable(rectangles));
  RC_ASSERT(height <= 2 * area + longest);  // what shelves keep
  RC_ASSERT(TimeToKeep(rectangles) >= LeastThinkable(rectangles));
}

}  // namespace
}  // namespace tessera::sched
