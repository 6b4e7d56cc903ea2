#include "pager/heap/placement.h"

#include <gtest/gtest.h>

namespace tessera::pager {
namespace {

constexpr std::uint64_t kMiB = 1u << 20, kChunk = 64 * kMiB, kBegin = 1ull << 40;

// Eight chunks, of which those named have memory, and blocks at some addresses.
class PlacementTest : public testing::Test {
 protected:
  void Back(std::initializer_list<std::size_t> indices) {
    for (const std::size_t i : indices) {
      region_.Grow(i + 1);
      region_.Put(i, {.backing = Backing::kDevice, .units = wire::kAllUnits});
    }
  }
  void Put(std::size_t index, const Chunk& chunk) {
    region_.Grow(index + 1);
    region_.Put(index, chunk);
  }
  void Take(std::uint64_t begin, std::uint64_t bytes) { region_.TakeAddresses(kBegin + begin, bytes); }
  // Where a block would lie, from the region's begin; UINT64_MAX: nowhere.
  std::uint64_t Offset(std::uint64_t bytes) const {
    const auto place = FindPlace(region_, bytes, true);
    return place ? place->begin - kBegin : UINT64_MAX;
  }

  Region region_{{.begin = kBegin, .bytes = 8 * kChunk, .chunk_bytes = kChunk}};
};

TEST_F(PlacementTest, ABlockTakesAMultipleOfItsUnit) {
  EXPECT_EQ(FindPlace(region_, 1, true)->bytes, 512u);
  EXPECT_EQ(FindPlace(region_, 513, true)->bytes, 1024u);
  EXPECT_EQ(FindPlace(region_, 3 * kMiB, true)->bytes, 4 * kMiB);
  Take(0, 512);
  EXPECT_EQ(Offset(512), 512u);
  EXPECT_EQ(Offset(2 * kMiB), 2 * kMiB);
}

TEST_F(PlacementTest, ItCountsTheChunksThatAreMissing) {
  Back({1, 3});
  const auto place = FindPlace(region_, 8 * kChunk, true);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->missing, 6 * kChunk);
}

// It looks at the beginning of each free part only.
TEST_F(PlacementTest, ThePartThatNeedsTheFewestChunksIsBest) {
  Back({4, 5});
  Take(3 * kChunk, kChunk);
  EXPECT_EQ(Offset(2 * kChunk), 4 * kChunk);
  EXPECT_EQ(Offset(4 * kChunk), 4 * kChunk);
}

TEST_F(PlacementTest, OfTwoThatNeedNoneTheSmallerPartIsBest) {
  Back({0, 1, 2, 3, 4, 5, 6, 7});
  Take(3 * kChunk, kChunk);
  Take(5 * kChunk, kChunk);
  EXPECT_EQ(Offset(kChunk), 4 * kChunk);
  EXPECT_EQ(Offset(2 * kChunk), 6 * kChunk);
  EXPECT_EQ(Offset(3 * kChunk), 0u);
}

TEST_F(PlacementTest, WhatFitsNowhereHasNoPlace) {
  EXPECT_EQ(Offset(8 * kChunk + 1), UINT64_MAX);
  Take(4 * kChunk, 512);
  EXPECT_EQ(Offset(4 * kChunk), 0u);
  Take(0, 512);
  EXPECT_EQ(Offset(4 * kChunk), UINT64_MAX) << "it would have to begin at a multiple of 2 MiB";
}

TEST_F(PlacementTest, WithheldAddressesAreFreeWhenTheirChunkIsSharedNoMore) {
  Back({0});
  Take(0, 8 * kChunk);
  Chunk chunk = region_[0];
  chunk.shared = true;
  region_.Put(0, chunk);
  region_.Withhold(0, kBegin + 512, 1024);
  EXPECT_EQ(Offset(512), UINT64_MAX);
  region_.Put(0, chunk);
  EXPECT_EQ(Offset(512), UINT64_MAX) << "it is shared still";
  chunk.shared = false;
  region_.Put(0, chunk);
  EXPECT_EQ(Offset(1024), 512u);
}

TEST_F(PlacementTest, InUnitsABlockNeedsWhatItTakes) {
  EXPECT_EQ(FindPlace(region_, 3 * kMiB, false)->missing, 4 * kMiB);
  EXPECT_EQ(FindPlace(region_, 3 * kMiB, true)->missing, kChunk);
  EXPECT_EQ(FindPlace(region_, kChunk + 1, false)->missing, kChunk + 2 * kMiB);
}

TEST_F(PlacementTest, ASparseChunkGetsTheUnitsThatItLacks) {
  Put(0, {.backing = Backing::kDevice, .units = 0b0110, .live = 0b0110, .sparse = SparsePointer::Make()});
  Take(2 * kMiB, 4 * kMiB);
  EXPECT_EQ(Offset(2 * kMiB), 0u);
  EXPECT_EQ(FindPlace(region_, 2 * kMiB, true)->missing, 2 * kMiB);
  EXPECT_EQ(FindPlace(region_, 8 * kMiB, true)->missing, 8 * kMiB);
}

TEST_F(PlacementTest, AChunkThatIsOutGetsNoMoreMemory) {
  Put(0, {.backing = Backing::kHost, .units = 0b0011, .live = 0b0001});
  Take(0, 2 * kMiB);
  EXPECT_EQ(Offset(2 * kMiB), 2 * kMiB) << "its contents are out, and of no use to anybody";
  EXPECT_EQ(FindPlace(region_, 2 * kMiB, true)->missing, 0u);
  EXPECT_EQ(Offset(4 * kMiB), kChunk);
}

TEST_F(PlacementTest, WhatIsBeingCopiedStaysAsItIs) {
  Put(0, {.backing = Backing::kDevice, .offered = true, .units = wire::kAllUnits, .live = 1, .moving = 0b11});
  Take(0, 2 * kMiB);
  EXPECT_EQ(Offset(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(Offset(4 * kMiB), kChunk);
}

}  // namespace
}  // namespace tessera::pager
