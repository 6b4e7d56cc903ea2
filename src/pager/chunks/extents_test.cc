#include "pager/chunks/extents.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::pager {
namespace {

TEST(ExtentsTest, TakesFromBothEndsAndTheMiddle) {
  Extents extents(100, 50);
  extents.Take(100, 10);
  extents.Take(140, 10);
  extents.Take(120, 5);
  EXPECT_EQ(extents.Free(), (Extents::Map{{110, 10}, {125, 15}}));
  extents.Take(110, 10);
  extents.Take(125, 15);
  EXPECT_TRUE(extents.Free().empty());
}

TEST(ExtentsTest, WhatIsGivenBackJoinsItsNeighbours) {
  Extents extents(0, 40);
  extents.Take(0, 40);
  extents.Give(0, 10);
  extents.Give(20, 10);
  EXPECT_EQ(extents.Free(), (Extents::Map{{0, 10}, {20, 10}}));
  extents.Give(10, 10);
  EXPECT_EQ(extents.Free(), (Extents::Map{{0, 30}}));
  extents.Give(30, 10);
  EXPECT_EQ(extents.Free(), (Extents::Map{{0, 40}}));
}

TEST(ExtentsTest, IsRightAfterAnythingThatIsTakenAndGiven) {
  constexpr std::size_t kUnits = 64;
  std::mt19937 random(1);
  Extents extents(1000, kUnits);
  std::vector<bool> taken(kUnits);
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2) {
      const std::size_t at = random() % kUnits, most = 1 + random() % 9;
      std::size_t length = 0;
      while (length < most && at + length < kUnits && !taken[at + length]) ++length;
      if (length == 0) continue;
      extents.Take(1000 + at, length);
      for (std::size_t i = 0; i < length; ++i) taken[at + i] = true;
      pieces.emplace_back(at, length);
    } else if (!pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const auto [at, length] = pieces.back();
      pieces.pop_back();
      extents.Give(1000 + at, length);
      for (std::size_t i = 0; i < length; ++i) taken[at + i] = false;
    }
    Extents::Map expected;
    for (std::size_t i = 0; i < kUnits; ++i) {
      if (taken[i]) continue;
      const std::size_t begin = i;
      while (i < kUnits && !taken[i]) ++i;
      expected.emplace(1000 + begin, i - begin);
    }
    ASSERT_EQ(extents.Free(), expected) << "step " << step;
  }
}

}  // namespace
}  // namespace tessera::pager
