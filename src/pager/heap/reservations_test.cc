// Memory that a program maps at addresses of its own: it moves as allocations do, and its pieces stay its own.
#include "pager/heap/reservations.h"

#include <set>

#include "base/uncancelled.h"
#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class ReservationsTest : public HeapFixture {
 protected:
  void TearDown() override {
    for (const CUdeviceptr block : blocks) Give(reserved.Vacate(block));
    HeapFixture::TearDown();
  }
  void Give(std::uint64_t bytes) {
    if (bytes > 0) room.Give(bytes);
  }
  CUdeviceptr Reserve(std::uint64_t bytes, std::uint64_t alignment = 0) {
    CUdeviceptr address = 0;
    std::uint64_t freed = 0;
    EXPECT_EQ(reserved.Reserve(bytes, alignment, &address, &freed), CUDA_SUCCESS);
    Give(freed);
    return address;
  }
  // A block with a word at its begin and at its end.
  void Map(CUdeviceptr begin, std::uint64_t bytes) {
    for (const auto& part : reserved.PartsOf({begin, bytes})) {
      EXPECT_TRUE(room.Take(part.bytes));
      EXPECT_EQ(reserved.Hold(part.begin), CUDA_SUCCESS);
      std::uint64_t freed = 0;
      EXPECT_EQ(reserved.Back(part, &freed), CUDA_SUCCESS);
      Give(freed);
      reserved.LetGo(part.begin);
    }
    reserved.Join({begin, bytes});
    blocks.push_back(begin);
    driver.Write(begin, begin + 1);
    driver.Write(begin + bytes - 8, begin + 2);
  }
  void ExpectRight(CUdeviceptr begin, std::uint64_t bytes) {
    EXPECT_EQ(driver.Read(begin), begin + 1);
    EXPECT_EQ(driver.Read(begin + bytes - 8), begin + 2);
  }
  void Unmap(CUdeviceptr begin) {
    Give(reserved.Vacate(begin));
    std::erase(blocks, begin);
  }

  Reservations& reserved = heap->Reserved();
  std::vector<CUdeviceptr> blocks;
};

TEST_F(ReservationsTest, AreWholeChunksThatNoAllocationGets) {
  const CUdeviceptr first = Allocate(kMiB * 20);
  const CUdeviceptr own = Reserve(100 * kMiB);
  EXPECT_EQ(own % Reservations::kAlignment, 0u);
  EXPECT_TRUE(heap->Owns(own));
  const CUdeviceptr second = Allocate(200 * kMiB);
  EXPECT_TRUE(second + 200 * kMiB <= own || second >= own + 128 * kMiB);
  EXPECT_EQ(reserved.Around(own + 100 * kMiB - 1)->begin, own);
  EXPECT_FALSE(reserved.Around(own + 100 * kMiB));
  std::uint64_t freed = 0;
  EXPECT_FALSE(reserved.Free({own, 64 * kMiB}, &freed));
  EXPECT_TRUE(reserved.Free({own, 100 * kMiB}, &freed));
  EXPECT_FALSE(reserved.Free({own, 100 * kMiB}, &freed));
  EXPECT_FALSE(reserved.Around(own));
  EXPECT_EQ(Reserve(128 * kMiB), own);
  EXPECT_TRUE(heap->Find(first));
}

TEST_F(ReservationsTest, MemoryOfAllocationsBeforeIsTakenAway) {
  const CUdeviceptr freed = Allocate(64 * kMiB), moved = Allocate(64 * kMiB);
  EXPECT_EQ(mover.Ask(wire::LineType::kEvict, 1), 1u);
  heap->Free(freed);
  heap->Free(moved);
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 64 * kMiB);
  ExpectRightFigures();
  Unmap(own);
  EXPECT_EQ(driver.Mappings(), 1u) << "what is being copied";
  mover.FinishOut();
  EXPECT_EQ(heap->Figures().resident, 0u);
}

TEST_F(ReservationsTest, SmallOnesShareAChunk) {
  const CUdeviceptr one = Reserve(20 * kMiB), two = Reserve(20 * kMiB), three = Reserve(62 * kMiB);
  EXPECT_EQ(one / Reservations::kAlignment, two / Reservations::kAlignment);
  EXPECT_NE(one / Reservations::kAlignment, three / Reservations::kAlignment);
  Map(one, 20 * kMiB);
  Map(two, 20 * kMiB);
  EXPECT_EQ(mover.Evict(2), 1u);
  std::uint64_t freed = 0;
  Unmap(one);
  EXPECT_TRUE(reserved.Free({one, 20 * kMiB}, &freed));
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(Reserve(4 * kMiB), one);
  Map(one, 4 * kMiB);
  ExpectRight(two, 20 * kMiB);
}

TEST_F(ReservationsTest, SmallOnesAreAlignedToo) {
  Reserve(2 * kMiB);
  for (const std::uint64_t alignment : {4 * kMiB, 32 * kMiB, 64 * kMiB, std::uint64_t{4096}})
    EXPECT_EQ(Reserve(4 * kMiB, alignment) % alignment, 0u) << alignment;
}

// Nothing can be mapped into a chunk that no mover brings back.
TEST_F(ReservationsTest, SmallOnesDoNotGoIntoAStrandedChunk) {
  const CUdeviceptr one = Reserve(20 * kMiB);
  Map(one, 20 * kMiB);
  EXPECT_EQ(mover.Evict(1), 1u);
  mover.LoseSlots();
  mover.Restart();
  ASSERT_EQ(heap->Figures().stranded, 20 * kMiB);
  const CUdeviceptr two = Reserve(20 * kMiB);
  EXPECT_NE(one / Reservations::kAlignment, two / Reservations::kAlignment);
  Map(two, 20 * kMiB);
}

TEST_F(ReservationsTest, SomeAddressesAreKeptForAllocations) {
  CUdeviceptr address = 0;
  std::uint64_t freed = 0;
  EXPECT_EQ(reserved.Reserve(48 * kGiB, 0, &address, &freed), CUDA_SUCCESS);
  EXPECT_EQ(reserved.Reserve(kGiB, 0, &address, &freed), CUDA_ERROR_OUT_OF_MEMORY);
  Allocate(15 * kGiB);
}

// Whoever looks for chunks to move or to give back looks at these.
TEST_F(ReservationsTest, AddressesWithoutMemoryAreNotLookedAt) {
  Reserve(2 * kGiB);
  const CUdeviceptr far = Reserve(wire::kChunkBytes);
  Map(far, 2 * kMiB);
  const UncancelledLock lock(heap->Chunks().mutex());
  const Region& region = heap->Chunks().large();
  EXPECT_GE(region.size(), 33u);
  EXPECT_EQ(region.WithMemory(), std::set<std::size_t>{region.range.IndexOf(far)});
}

TEST_F(ReservationsTest, MoreThanThereIsIsRefused) {
  CUdeviceptr address = 0;
  std::uint64_t freed = 0;
  EXPECT_EQ(reserved.Reserve(65 * kGiB, 0, &address, &freed), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ReservationsTest, WhatIsMappedMovesAndKeepsItsPieces) {
  const CUdeviceptr own = Reserve(256 * kMiB);
  for (std::uint64_t at = 0; at < 120 * kMiB; at += 20 * kMiB) Map(own + at, 20 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 120 * kMiB);
  ExpectRightFigures();
  EXPECT_EQ(mover.Evict(2), 2u);
  EXPECT_EQ(heap->Figures().resident, 0u);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  for (std::uint64_t at = 0; at < 120 * kMiB; at += 20 * kMiB) ExpectRight(own + at, 20 * kMiB);
  EXPECT_EQ(mover.Load(2), 2u);
  for (std::uint64_t at = 0; at < 120 * kMiB; at += 20 * kMiB) ExpectRight(own + at, 20 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 120 * kMiB) << "it never comes back with holes";
  ExpectRightFigures();
  // The fourth lies in two chunks: each of its parts has a piece of its own again.
  Unmap(own + 20 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 100 * kMiB);
  Unmap(own + 60 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 80 * kMiB);
  EXPECT_FALSE(driver.Valid(own + 20 * kMiB));
  ExpectRight(own + 40 * kMiB, 20 * kMiB);
  ExpectRight(own + 80 * kMiB, 20 * kMiB);
}

TEST_F(ReservationsTest, WhatSlotsWouldHoldBesideThemIsTold) {
  const CUdeviceptr own = Reserve(256 * kMiB);
  EXPECT_EQ(reserved.BlankWith({own, 130 * kMiB}), 62 * kMiB);
  Map(own, 130 * kMiB);
  EXPECT_EQ(heap->Figures().blank, 62 * kMiB);
  EXPECT_EQ(reserved.BlankWith({own + 130 * kMiB, 20 * kMiB}), 0u) << "a chunk that takes a slot already";
  Map(own + 130 * kMiB, 20 * kMiB);
  EXPECT_EQ(heap->Figures().blank, 42 * kMiB);
  EXPECT_EQ(reserved.Hold(own + 130 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().blank, 0u) << "it stays on the GPU";
  reserved.LetGo(own + 130 * kMiB);
  mover.Evict(3);
  EXPECT_EQ(heap->Figures().blank, 42 * kMiB);
  Unmap(own);
  EXPECT_EQ(heap->Figures().blank, 44 * kMiB);
  Unmap(own + 130 * kMiB);
  EXPECT_EQ(heap->Figures().blank, 0u);
}

TEST_F(ReservationsTest, AddressesAreMappedAgain) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 2 * kMiB);
  Map(own + 2 * kMiB, 4 * kMiB);
  Unmap(own);
  Map(own, 2 * kMiB);
  ExpectRight(own, 2 * kMiB);
  ExpectRight(own + 2 * kMiB, 4 * kMiB);
  Unmap(own);
  Unmap(own + 2 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 0u);
  EXPECT_EQ(driver.Mappings(), 0u) << "memory is given back at once";
}

TEST_F(ReservationsTest, MemoryThatEndsWhileItIsCopiedGivesWayToOther) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 20 * kMiB);
  Map(own + 20 * kMiB, 20 * kMiB);
  EXPECT_EQ(mover.Ask(wire::LineType::kEvict, 1), 1u);
  Unmap(own);
  EXPECT_EQ(heap->Figures().resident, 40 * kMiB) << "it is being copied";
  EXPECT_EQ(reserved.Hold(own), CUDA_ERROR_NOT_READY);
  mover.FinishOut(0);
  EXPECT_EQ(reserved.IsHere(own), CUDA_SUCCESS);
  EXPECT_TRUE(room.Take(10 * kMiB));
  std::uint64_t freed = 0;
  ASSERT_EQ(reserved.Back({own, 10 * kMiB}, &freed), CUDA_SUCCESS);
  EXPECT_EQ(freed, 20 * kMiB);
  Give(freed);
  blocks.push_back(own);
  reserved.LetGo(own);
  ExpectRightFigures();
  ExpectRight(own + 20 * kMiB, 20 * kMiB);
}

TEST_F(ReservationsTest, MemoryThatEndedWhileItWasCopiedMakesPlaceForAMapping) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 20 * kMiB);
  Map(own + 20 * kMiB, 20 * kMiB);
  EXPECT_EQ(mover.Ask(wire::LineType::kEvict, 1), 1u);
  Unmap(own);
  mover.FinishOut(0);
  EXPECT_EQ(reserved.Hold(own), CUDA_SUCCESS);
  EXPECT_TRUE(driver.Valid(own));
  Give(reserved.Clear(own));
  EXPECT_FALSE(driver.Valid(own));
  ExpectRight(own + 20 * kMiB, 20 * kMiB);
  reserved.LetGo(own);
  Unmap(own + 20 * kMiB);
  EXPECT_EQ(reserved.Hold(own), CUDA_SUCCESS);
  EXPECT_EQ(reserved.Clear(own), 0u) << "there is nothing";
  reserved.LetGo(own);
}

TEST_F(ReservationsTest, AChunkThatNoMoverHasIsNotWaitedFor) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 20 * kMiB);
  EXPECT_EQ(mover.Evict(1), 1u);
  mover.LoseSlots();
  mover.Restart();
  EXPECT_EQ(reserved.Hold(own + 20 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(heap->Figures().recalled, 0u);
  reserved.LetGo(own + 20 * kMiB);
  Unmap(own);
  EXPECT_EQ(reserved.Hold(own), CUDA_SUCCESS) << "it is freed";
  reserved.LetGo(own);
}

TEST_F(ReservationsTest, AChunkThatIsOutIsRecalled) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 20 * kMiB);
  EXPECT_EQ(mover.Evict(1), 1u);
  EXPECT_EQ(reserved.Hold(own + 20 * kMiB), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(heap->Figures().recalled, 20 * kMiB);
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(reserved.IsHere(own + 20 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(mover.Evict(1), 0u) << "it is held";
  reserved.LetGo(own + 20 * kMiB);
  EXPECT_EQ(mover.Evict(1), 1u);
}

TEST_F(ReservationsTest, MemoryIsTakenOutOfItsChunks) {
  const CUdeviceptr own = Reserve(256 * kMiB);
  Map(own, 20 * kMiB);
  Map(own + 20 * kMiB, 100 * kMiB);
  reserved.Hold(own + 20 * kMiB);
  reserved.Hold(own + 64 * kMiB);
  const auto pieces = reserved.Detach(own + 20 * kMiB, true);
  std::erase(blocks, own + 20 * kMiB);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].second, 44 * kMiB);
  EXPECT_EQ(pieces[1].second, 56 * kMiB);
  ExpectRight(own + 20 * kMiB, 100 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 20 * kMiB);
  EXPECT_FALSE(heap->Find(own + 20 * kMiB));
  EXPECT_EQ(mover.Evict(2), 0u) << "they are held";
  ExpectRight(own, 20 * kMiB);
  driver.Functions().Unmap(own + 20 * kMiB, 100 * kMiB);
  for (const auto& [handle, bytes] : pieces) {
    driver.Functions().Release(handle);
    Give(bytes);
  }
  reserved.LetGo(own + 20 * kMiB);
  reserved.LetGo(own + 64 * kMiB);
}

TEST_F(ReservationsTest, AddressesComeFreeWhenTheLastCopyHasEnded) {
  const CUdeviceptr own = Reserve(64 * kMiB);
  Map(own, 64 * kMiB);
  EXPECT_EQ(mover.Ask(wire::LineType::kEvict, 1), 1u);
  Unmap(own);
  std::uint64_t freed = 0;
  EXPECT_TRUE(reserved.Free({own, 64 * kMiB}, &freed));
  EXPECT_NE(Reserve(64 * kMiB), own);
  mover.FinishOut();
  EXPECT_EQ(Reserve(64 * kMiB), own);
}

}  // namespace
}  // namespace tessera::pager
