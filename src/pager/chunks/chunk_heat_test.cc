// Which memory goes and which comes, by what was used.
#include <unistd.h>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class HeapUseTest : public HeapFixture {
 protected:
  // Something names the address in each of so many intervals.
  void Use(CUdeviceptr address, int intervals) {
    for (int i = 1; i <= intervals; ++i) heap->Heat().Touch(address, now + i * UseHistory::kInterval);
  }
  std::uint64_t HotOut() { return heap->Heat().HotOut(now + 32 * UseHistory::kInterval) / kChunk; }
  // A submission in that interval.
  void Submitted(bool named, int interval) {
    heap->Heat().NoteSubmission(named, now + interval * UseHistory::kInterval);
  }
  // Chunks in use, and those of them that are out.
  std::pair<std::uint64_t, std::uint64_t> Used() {
    const auto used = heap->Heat().UsedLately();
    return {used.all / kChunk, used.out / kChunk};
  }
  bool IsOut(CUdeviceptr address) { return !driver.Valid(address); }

  const Nanos now = MonotonicNow();
};

TEST_F(HeapUseTest, NothingIsHotWhereNothingIsUsed) {
  AllocateChunks(4);
  EXPECT_EQ(HotOut(), 0u);
  mover.Evict(2);
  EXPECT_EQ(HotOut(), 0u);
}

TEST_F(HeapUseTest, WhatIsUsedAndOutIsHot) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  Use(blocks[0] + 100, 20);
  EXPECT_EQ(HotOut(), 1u);
  Use(blocks[1], 20);
  EXPECT_EQ(HotOut(), 2u);
  Use(blocks[2], 20);  // is in: one less that could make room
  EXPECT_EQ(HotOut(), 1u);
  Use(blocks[3], 20);
  EXPECT_EQ(HotOut(), 0u);
}

TEST_F(HeapUseTest, WhatWasUsedLatelyIsToldAndWhatOfItIsOut) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  Use(blocks[1], 50);
  Use(blocks[2], 50);
  Submitted(true, 50);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(2, 1)));
  Submitted(true, 60);  // of something else
  Use(blocks[3], 60);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(3, 1)));
  mover.Load(2);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(3, 0)));
}

// A kernel may run for long after it was submitted.
TEST_F(HeapUseTest, WhatTheLastSubmissionUsedIsInUseUntilTheNext) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(1);
  Use(blocks[0], 50);
  Submitted(true, 50);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(1, 1)));
  heap->Heat().ForgetSubmissions();
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(2, 1))) << "nobody knows what runs";
}

TEST_F(HeapUseTest, WhereUseIsNotSeenAllIsUsed) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  Submitted(true, 50);  // names small memory only
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(4, 2)));
  Use(blocks[3], 50);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(1, 0)));
  Submitted(false, 50);
  EXPECT_EQ(Used(), (std::pair<std::uint64_t, std::uint64_t>(4, 2)));
}

TEST_F(HeapUseTest, WhatIsNamedIsHotterThanWhatMayBeUsed) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  for (int i = 1; i <= 32; ++i) Submitted(false, i);
  EXPECT_EQ(HotOut(), 0u) << "all alike";
  Use(blocks[0], 32);
  EXPECT_EQ(HotOut(), 1u);
}

TEST_F(HeapUseTest, WhatNoMoverBringsBackIsNotHot) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  Use(blocks[0], 20);
  ASSERT_EQ(HotOut(), 1u);
  mover.LoseSlots();
  mover.Restart();
  EXPECT_EQ(HotOut(), 0u);
}

TEST_F(HeapUseTest, AnExchangeBringsTheHotInAndEnds) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(2);
  for (const std::size_t i : {0, 1}) Use(blocks[i], 20);
  const auto bytes = static_cast<std::uint32_t>(HotOut());
  ASSERT_EQ(mover.Evict(bytes), 2u);
  ASSERT_EQ(mover.Load(bytes), 2u);
  for (const std::size_t i : {0, 1}) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  for (const std::size_t i : {2, 3}) EXPECT_TRUE(IsOut(blocks[i]));
  EXPECT_EQ(HotOut(), 0u);
}

TEST_F(HeapUseTest, APointerIsAUseOfWhatLiesBehindItInItsBlock) {
  const CUdeviceptr large = Allocate(3 * kChunk);
  const auto cold = AllocateChunks(3);
  mover.Evict(3);
  ASSERT_TRUE(IsOut(large + 2 * kChunk));
  Use(large, 30);
  EXPECT_EQ(HotOut(), 3u);
  mover.Evict(3);
  mover.Load(3);
  EXPECT_FALSE(IsOut(large) || IsOut(large + kChunk) || IsOut(large + 2 * kChunk));
}

TEST_F(HeapUseTest, WhatLiesBeforeAPointerIsNotUsed) {
  const CUdeviceptr large = Allocate(4 * kChunk);
  AllocateChunks(4);
  mover.Evict(4);
  Use(large + 3 * kChunk, 30);
  EXPECT_EQ(HotOut(), 1u);
}

// As of an allocator that has everything in one block.
TEST_F(HeapUseTest, WithinABlockWhatIsNamedComesBeforeWhatIsBehindIt) {
  const CUdeviceptr large = Allocate(6 * kChunk);
  mover.Evict(3);
  for (const std::size_t i : {1, 2}) Use(large + i * kChunk, 30);
  EXPECT_EQ(HotOut(), 2u);
  mover.Evict(2);
  mover.Load(2);
  EXPECT_FALSE(IsOut(large + kChunk) || IsOut(large + 2 * kChunk));
  EXPECT_TRUE(IsOut(large));
}

TEST_F(HeapUseTest, WhoNamesTheBeginningOfABlockMeansAllOfIt) {
  const CUdeviceptr large = Allocate(3 * kChunk);
  Allocate(3 * kChunk);
  mover.Evict(3);
  Use(large, 30);
  EXPECT_EQ(HotOut(), 3u);
}

TEST_F(HeapUseTest, PinnedAndEmptyChunksMakeNoRoom) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(1);
  Use(blocks[0], 20);
  Exported pinned;
  ASSERT_EQ(heap->Pins().Pin(blocks[1], &pinned), CUDA_SUCCESS);
  EXPECT_EQ(HotOut(), 1u);
  heap->Free(blocks[2]);
  EXPECT_EQ(HotOut(), 0u);
}

TEST_F(HeapUseTest, WhatWasUsedLongAgoIsColdAgain) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(1);
  Use(blocks[0], 20);
  EXPECT_EQ(heap->Heat().HotOut(now + 30 * UseHistory::kInterval), kChunk);
  EXPECT_EQ(heap->Heat().HotOut(now + 90 * UseHistory::kInterval), 0u);
}

}  // namespace
}  // namespace tessera::pager
