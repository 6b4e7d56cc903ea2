#include "pager/heap/heap.h"

#include <limits>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class HeapTest : public HeapFixture {};

TEST_F(HeapTest, SmallBlocksShareAChunkAndAreAlignedTo512Bytes) {
  const CUdeviceptr first = Allocate(1), second = Allocate(513), third = Allocate(512);
  EXPECT_EQ(first % 512, 0u);
  EXPECT_EQ(second - first, 512u);
  EXPECT_EQ(third - second, 1024u);
  EXPECT_EQ(heap->Figures().resident, Heap::kSmallChunk);
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallChunk);
  ExpectRightFigures();
}

TEST_F(HeapTest, From2MiBOnBlocksAreAlignedToThat) {
  Allocate(1);
  const CUdeviceptr below = Allocate(2 * kMiB - 1), first = Allocate(2 * kMiB), second = Allocate(3 * kMiB);
  EXPECT_NE(below % (2 * kMiB), 0u);
  EXPECT_EQ(first % (2 * kMiB), 0u);
  EXPECT_EQ(second % (2 * kMiB), 0u);
}

TEST_F(HeapTest, ABlockBecomesAnotherAllocationAtTheSameAddresses) {
  const CUdeviceptr address = Allocate(600);
  const Block before = *heap->Find(address);
  int owner = 0;
  EXPECT_FALSE(heap->Renew(address, before.id + 1, 1000, &owner));
  EXPECT_TRUE(heap->Renew(address, before.id, 1000, &owner));
  const Block after = *heap->Find(address + 999);
  EXPECT_GT(after.id, before.id);
  EXPECT_EQ(after.owner, &owner);
  EXPECT_EQ(after.bytes, 1000u);
  EXPECT_FALSE(heap->Free(address, before.id)) << "that allocation is gone";
  EXPECT_TRUE(heap->Free(address, after.id));
  ExpectRightFigures();
}

TEST_F(HeapTest, SmallBlocksLieApartFromLargeOnes) {
  Allocate(kChunk);
  const CUdeviceptr small = Allocate(kMiB);
  EXPECT_TRUE(heap->Chunks().small_range.Has(small));
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallChunk);
  for (std::uint64_t bytes = kMiB; bytes < Heap::kSmallTotal; bytes += kMiB) Allocate(kMiB);
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallTotal);
  EXPECT_TRUE(heap->Chunks().large_range.Has(Allocate(kMiB))) << "what stays on the GPU is bounded";
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallTotal);
}

TEST_F(HeapTest, TheFirstBlocksTakeNoMoreThanTheyNeedAndLaterOnesWholeChunks) {
  std::uint64_t bytes = 0;
  for (; bytes < Heap::kFewTotal; bytes += 8 * kMiB) Allocate(8 * kMiB);
  EXPECT_EQ(heap->Figures().resident, bytes);
  EXPECT_EQ(heap->Figures().pinned, 0u);
  Allocate(8 * kMiB);
  EXPECT_EQ(heap->Figures().resident, bytes + kChunk);
}

TEST_F(HeapTest, WhereThereIsNoRoomForAWholeChunkUnitsDo) {
  FakeRoom little(Heap::kFewTotal + 2 * kMiB);
  const auto small = Heap::Make(driver.Functions(), 0, kGiB, false, little);
  CUdeviceptr address = 0;
  for (std::uint64_t bytes = 0; bytes < Heap::kFewTotal + 2 * kMiB; bytes += 2 * kMiB)
    ASSERT_EQ(small->Allocate(2 * kMiB, kContext, &address), CUDA_SUCCESS) << bytes;
  EXPECT_EQ(small->Allocate(2 * kMiB, kContext, &address), CUDA_ERROR_OUT_OF_MEMORY);
  small->FreeAllOf(kContext, [](std::uint64_t) { return std::uint64_t{0}; });
  small->Trim(kNever);
  EXPECT_EQ(little.Taken(), 0u);
}

TEST_F(HeapTest, ABlockMayBeginInTheChunkOfAnotherOne) {
  Allocate(18 * kMiB);
  const CUdeviceptr large = Allocate(2 * kChunk);
  EXPECT_EQ(heap->Figures().resident, 3 * kChunk);
  for (std::uint64_t at = 0; at < 2 * kChunk; at += kMiB) ASSERT_TRUE(driver.Valid(large + at));
  EXPECT_FALSE(driver.Valid(large + 3 * kChunk));
}

TEST_F(HeapTest, TheSmallestGapThatNeedsNoNewMemoryIsBest) {
  const CUdeviceptr wide = Allocate(8 * kMiB);
  Allocate(2 * kMiB);
  const CUdeviceptr narrow = Allocate(4 * kMiB);
  Allocate(2 * kMiB);
  heap->Free(wide);
  heap->Free(narrow);
  EXPECT_EQ(Allocate(4 * kMiB), narrow);
  EXPECT_EQ(Allocate(6 * kMiB), wide);
}

TEST_F(HeapTest, WhatIsFreedIsKeptForTheNextOne) {
  const CUdeviceptr first = Allocate(3 * kChunk);
  heap->Free(first);
  EXPECT_EQ(heap->Figures().empty, 3 * kChunk);
  const std::uint64_t taken = room.Taken();
  driver.FailCall(1, 100);  // none is needed
  EXPECT_EQ(Allocate(3 * kChunk), first);
  EXPECT_EQ(room.Taken(), taken);
  EXPECT_EQ(driver.Calls(), 0u);
}

TEST_F(HeapTest, TrimGivesBackWhatHasBeenEmptyForLong) {
  const CUdeviceptr first = Allocate(kChunk);
  Allocate(kChunk);
  EXPECT_EQ(heap->Trim(kNever), kNever);  // none is empty
  heap->Free(first);
  const Nanos since = heap->Trim(0);
  EXPECT_LE(since, MonotonicNow());
  EXPECT_EQ(heap->Figures().empty, kChunk);
  EXPECT_EQ(heap->Trim(since), since);  // not before
  EXPECT_EQ(heap->Trim(since + 1), kNever);
  EXPECT_EQ(heap->Figures().empty, 0u);
  EXPECT_FALSE(driver.Valid(first));
  ExpectRightFigures();
}

TEST_F(HeapTest, ItsOwnEmptyChunksAreUsedBeforeTheDaemonIsAsked) {
  const CUdeviceptr first = Allocate(kChunk);
  Allocate(kChunk);
  const CUdeviceptr third = Allocate(2 * kChunk);
  heap->Free(first);
  heap->Free(third);
  Allocate(4 * kChunk);  // nowhere without new chunks: what is empty goes for it
  EXPECT_EQ(room.Taken(), 5 * kChunk);
  ExpectRightFigures();
}

TEST_F(HeapTest, WithoutRoomThereIsNoMemory) {
  FakeRoom little(2 * kChunk);
  const auto small = Heap::Make(driver.Functions(), 0, kGiB, false, little);
  CUdeviceptr address = 0;
  EXPECT_EQ(small->Allocate(2 * kChunk + 1, kContext, &address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(little.Taken(), 0u);
  ASSERT_EQ(small->Allocate(2 * kChunk, kContext, &address), CUDA_SUCCESS);
  CUdeviceptr other = 0;
  EXPECT_EQ(small->Allocate(1, kContext, &other), CUDA_ERROR_OUT_OF_MEMORY);
  small->Free(address);
  EXPECT_EQ(small->Allocate(1, kContext, &other), CUDA_SUCCESS);
  small->Free(other);
  small->Trim(kNever);
  EXPECT_EQ(little.Taken(), 0u);
}

TEST_F(HeapTest, WhoeverWaitsForRoomHoldsUpNobodyElse) {
  FakeRoom little(kChunk);
  const auto small = Heap::Make(driver.Functions(), 0, kGiB, false, little);
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(small->Allocate(18 * kMiB, kContext, &first), CUDA_SUCCESS);
  little.SetWaits(true);
  CUdeviceptr waited = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread waiter([&] { result = small->Allocate(2 * kChunk, kContext, &waited); });
  little.UntilSomebodyWaits();
  ASSERT_EQ(small->Allocate(2 * kMiB, kContext, &second), CUDA_SUCCESS);  // beside the first one
  EXPECT_TRUE(small->Find(second));
  EXPECT_TRUE(small->Free(first));
  little.Add(2 * kChunk);
  waiter.join();
  EXPECT_EQ(result, CUDA_SUCCESS);
  small->Free(second);
  small->Free(waited);
  small->Trim(kNever);
  EXPECT_EQ(little.Taken(), 0u);
}

TEST_F(HeapTest, SizesThatNoGpuHasAreRefused) {
  CUdeviceptr address = 0;
  for (const std::uint64_t bytes : {65 * kGiB, std::uint64_t{1} << 62, std::numeric_limits<std::uint64_t>::max(),
                                    std::numeric_limits<std::uint64_t>::max() - 511}) {
    EXPECT_EQ(heap->Allocate(bytes, kContext, &address), CUDA_ERROR_OUT_OF_MEMORY) << bytes;
  }
  EXPECT_EQ(room.Taken(), 0u);
}

TEST_F(HeapTest, EveryCallOfTheDriverMayFail) {
  Allocate(2 * kMiB);
  for (const std::uint64_t bytes : {std::uint64_t{1}, 5 * kChunk}) {
    for (std::uint64_t number = 1;; ++number) {
      const std::uint64_t mappings = driver.Mappings(), handles = driver.Handles();
      driver.FailCall(number);
      CUdeviceptr address = 0;
      const CUresult result = heap->Allocate(bytes, kContext, &address);
      if (driver.Calls() < number) {
        EXPECT_EQ(result, CUDA_SUCCESS);
        break;
      }
      EXPECT_EQ(result, CUDA_ERROR_UNKNOWN);
      EXPECT_EQ(driver.Mappings(), mappings);
      EXPECT_EQ(driver.Handles(), handles);
      ExpectRightFigures();
    }
    heap->Trim(kNever);
  }
}

TEST_F(HeapTest, EmptyChunksThatGoForABlockMayHaveBeenAPartOfItsPlace) {
  FakeRoom little(6 * kChunk);
  const auto small = Heap::Make(driver.Functions(), 0, kGiB, false, little);
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(small->Allocate(2 * kChunk, kContext, &first), CUDA_SUCCESS);
  small->Free(first);
  ASSERT_EQ(small->Allocate(5 * kChunk, kContext, &second), CUDA_SUCCESS);
  EXPECT_EQ(little.Taken(), small->Figures().resident);
  EXPECT_EQ(driver.DeviceBytes(), 5 * kChunk);
  small->Free(second);
  small->Trim(kNever);
  EXPECT_EQ(little.Taken(), 0u);
}

TEST_F(HeapTest, RoomIsAskedForAsAWhole) {
  struct : FakeRoom {
    bool Take(std::uint64_t bytes) override {
      most = std::max(most, bytes);
      return FakeRoom::Take(bytes);
    }
    std::uint64_t most = 0;
  } asked;
  const auto small = Heap::Make(driver.Functions(), 0, kGiB, false, asked);
  CUdeviceptr address = 0;
  ASSERT_EQ(small->Allocate(4 * kChunk, kContext, &address), CUDA_SUCCESS);
  small->Free(address);
  ASSERT_EQ(small->Allocate(7 * kChunk, kContext, &address), CUDA_SUCCESS);  // four of them were its own
  EXPECT_EQ(asked.most, 7 * kChunk);
  small->Free(address);
  small->Trim(kNever);
  EXPECT_EQ(asked.Taken(), 0u);
}

TEST_F(HeapTest, WithoutAddressesThereIsNoHeap) {
  for (const std::uint64_t number : {1, 2}) {
    driver.FailCall(number);
    EXPECT_EQ(Heap::Make(driver.Functions(), 0, kGiB, false, room), nullptr);
  }
}

TEST_F(HeapTest, FindsTheBlockAroundAnAddress) {
  const CUdeviceptr address = Allocate(3 * kMiB, kOtherContext);
  const CUdeviceptr next = Allocate(2 * kMiB);
  for (const CUdeviceptr inside : {address, address + 1, address + 3 * kMiB - 1}) {
    const auto block = heap->Find(inside);
    ASSERT_TRUE(block);
    EXPECT_EQ(block->begin, address);
    EXPECT_EQ(block->bytes, 3 * kMiB);
    EXPECT_EQ(block->context, kOtherContext);
  }
  EXPECT_FALSE(heap->Find(address + 3 * kMiB));  // padding
  EXPECT_TRUE(heap->Owns(address + 3 * kMiB));
  EXPECT_NE(heap->Find(next)->id, heap->Find(address)->id);
  EXPECT_FALSE(heap->Find(0));
  EXPECT_FALSE(heap->Owns(0));
  EXPECT_FALSE(heap->Find(~CUdeviceptr{0}));
}

TEST_F(HeapTest, FreesABlockByItsBeginningOnlyAndOnce) {
  const CUdeviceptr address = Allocate(2 * kMiB);
  EXPECT_FALSE(heap->Free(address + 512));
  EXPECT_FALSE(heap->Free(0));
  const auto block = heap->Free(address);
  ASSERT_TRUE(block);
  EXPECT_EQ(block->bytes, 2 * kMiB);
  EXPECT_FALSE(heap->Free(address));
}

TEST_F(HeapTest, AContextTakesItsBlocksAlong) {
  Allocate(kMiB, kOtherContext);
  Allocate(100, kOtherContext);
  const CUdeviceptr stays = Allocate(kMiB);
  EXPECT_EQ(heap->FreeAllOf(kOtherContext, [](std::uint64_t bytes) { return 2 * bytes; }), 2 * (kMiB + 100));
  EXPECT_EQ(heap->FreeAllOf(kOtherContext, [](std::uint64_t bytes) { return bytes; }), 0u);
  EXPECT_TRUE(heap->Find(stays));
}

// Another thread may have been given the address, or made a context where the old one was, in the meantime.
TEST_F(HeapTest, FreesNoBlockThatCameLater) {
  const CUdeviceptr before = Allocate(kMiB, kOtherContext);
  const std::uint64_t below = heap->NextId();
  const CUdeviceptr after = Allocate(kMiB, kOtherContext);
  EXPECT_EQ(heap->FreeAllOf(kOtherContext, [](std::uint64_t bytes) { return bytes; }, below), kMiB);
  EXPECT_FALSE(heap->Find(before));
  const std::uint64_t id = heap->Find(after)->id;
  EXPECT_FALSE(heap->Free(after, id - 1));
  EXPECT_TRUE(heap->Find(after));
  EXPECT_TRUE(heap->Free(after, id));
}

TEST_F(HeapTest, PeersReachWhatIsThereAndWhatComes) {
  const CUdeviceptr before = Allocate(kChunk), small = Allocate(1), out = Allocate(kChunk);
  heap->Heat().Touch(before, MonotonicNow() + UseHistory::kInterval);
  ASSERT_EQ(mover.Evict(1), 1u);
  EXPECT_EQ(heap->AddPeer(3), CUDA_SUCCESS);
  EXPECT_EQ(heap->AddPeer(3), CUDA_SUCCESS);
  const CUdeviceptr after = Allocate(kChunk);
  for (const CUdeviceptr address : {before, small, after}) EXPECT_TRUE(driver.Valid(address, {0, 3}));
  EXPECT_FALSE(driver.Valid(out, {0, 3}));
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_TRUE(driver.Valid(out, {0, 3}));
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_TRUE(driver.Valid(out, {0, 3}));
}

TEST_F(HeapTest, APeerThatCannotBeAddedIsNone) {
  Allocate(kChunk);
  driver.FailCall(1);
  EXPECT_EQ(heap->AddPeer(3), CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(driver.Valid(Allocate(kChunk), {0}));
}

TEST_F(HeapTest, OneThatIsStoppedCallsTheDriverNoMore) {
  FakeRoom other;
  const auto stopped = Heap::Make(driver.Functions(), 0, kGiB, false, other);
  CUdeviceptr address = 0, more = 0;
  ASSERT_EQ(stopped->Allocate(kChunk, kContext, &address), CUDA_SUCCESS);
  const std::uint64_t mappings = driver.Mappings();
  stopped->Stop();
  EXPECT_EQ(stopped->Allocate(kChunk, kContext, &more), CUDA_ERROR_DEINITIALIZED);
  EXPECT_TRUE(stopped->Free(address));
  stopped->Trim(kNever);
  EXPECT_EQ(driver.Mappings(), mappings);
  driver.Functions().Unmap(address, kChunk);
  for (Driver::Handle handle = 0x10000; driver.Handles() > 0; ++handle) {
    if (!driver.WordsOf(handle).empty()) driver.DropForMover(handle);
  }
}

}  // namespace
}  // namespace tessera::pager
