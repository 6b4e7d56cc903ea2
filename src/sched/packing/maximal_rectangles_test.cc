#include "sched/packing/maximal_rectangles.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

using Fit = MaximalRectangles::Fit;

Rectangle Pct(Part sms, Part time) { return {sms * kPercent, time * kPercent}; }
Spot PctAt(Part sms_at, Part time_at, Part sms, Part time) {
  return {sms_at * kPercent, time_at * kPercent, Pct(sms, time)};
}

bool FreeOf(const std::vector<Spot>& taken, const Spot& spot) {
  return std::ranges::none_of(taken, [&](const Spot& other) { return other.Overlaps(spot); });
}

TEST(MaximalRectangles, PutsSideBySideAndUponEachOther) {
  MaximalRectangles strip(kWhole, Fit::kShortSide);
  EXPECT_EQ(strip.Put(Pct(60, 100))->sms_at, 0);
  EXPECT_EQ(strip.Put(Pct(40, 50))->sms_at, 60 * kPercent);
  EXPECT_EQ(strip.Put(Pct(40, 50))->time_at, 50 * kPercent);
  EXPECT_TRUE(strip.free().empty());
  EXPECT_FALSE(strip.Put({1, 1}));
}

TEST(MaximalRectangles, TheFitsChooseDifferentRooms) {
  // Free are the 20 % of the SMs beside it, and all SMs above it.
  const auto make = [](Fit fit) {
    MaximalRectangles strip(kWhole, fit);
    strip.Put(Pct(80, 70));
    return strip;
  };
  auto by_side = make(Fit::kShortSide);
  EXPECT_EQ(by_side.Put(Pct(19, 30))->sms_at, 0) << "the room of 100 x 30 leaves nothing of its height";
  auto by_area = make(Fit::kArea);
  EXPECT_EQ(by_area.Put(Pct(19, 30))->sms_at, 80 * kPercent) << "the room of 20 x 100 is smaller";
}

TEST(MaximalRectangles, OneThousandFillTheStrip) {
  for (const Fit fit : {Fit::kShortSide, Fit::kArea}) {
    MaximalRectangles strip(kWhole, fit);
    std::mt19937 random(1);
    std::vector<Spot> taken;
    Part area = 0;
    for (int i = 0; i < 1000; ++i) {
      const auto side = [&] { return static_cast<Part>(1 + random() % 40) * kPercent / 10; };
      const auto spot = strip.Put({side(), side()});
      if (!spot) continue;
      ASSERT_TRUE(FreeOf(taken, *spot));
      taken.push_back(*spot);
      area += spot->size.Area() / kWhole;
    }
    // 1,000 of 2 x 2 % in the mean are 42 % of the strip.
    EXPECT_EQ(taken.size(), 1000u);
    EXPECT_GT(area, 35 * kPercent);
  }
}

// On a grid of 10 x 10, all places can be looked at.
RC_GTEST_PROP(MaximalRectanglesProperty, FindsRoomWhereThereIsAny, ()) {
  constexpr Part kSteps = 10;
  MaximalRectangles strip(kWhole, *rc::gen::element(Fit::kShortSide, Fit::kArea));
  std::vector<Spot> taken;
  const int count = *rc::gen::inRange(1, 40);
  for (int i = 0; i < count; ++i) {
    const Rectangle size = Pct(10 * *rc::gen::inRange(1, 7), 10 * *rc::gen::inRange(1, 7));
    bool room = false;
    for (Part x = 0; x < kSteps * kSteps; ++x) {
      const Spot spot{x % kSteps * 10 * kPercent, x / kSteps * 10 * kPercent, size};
      room |= spot.Right() <= kWhole && spot.Top() <= kWhole && FreeOf(taken, spot);
    }
    const auto spot = strip.Put(size);
    RC_ASSERT(spot.has_value() == room);
    if (!spot) continue;
    RC_ASSERT(PctAt(0, 0, 100, 100).Contains(*spot));
    RC_ASSERT(FreeOf(taken, *spot));
    taken.push_back(*spot);
    for (const Spot& free : strip.free()) {
      RC_ASSERT(FreeOf(taken, free));
      for (const Spot& other : strip.free()) RC_ASSERT(&other == &free || !other.Contains(free));
    }
  }
}

}  // namespace
}  // namespace tessera::sched
