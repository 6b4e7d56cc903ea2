// Chunks with holes: what they cost, how a move takes the holes away, and blocks that are larger than the GPU.
#include <unistd.h>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using wire::kUnitBytes;
using wire::LineType;

class HeapSparseTest : public HeapFixture {
 protected:
  // A whole chunk of three blocks, of which the one in the middle, half of it, is freed. The others have words in them.
  std::pair<CUdeviceptr, CUdeviceptr> MakeHole() {
    const CUdeviceptr first = Allocate(kPart), middle = Allocate(2 * kPart), last = Allocate(kPart);
    EXPECT_EQ(last - first, 3 * kPart);
    driver.Write(first, 1);
    driver.Write(last + kMiB, 2);
    heap->Free(middle);
    return {first, last};
  }
  static constexpr std::uint64_t kPart = kChunk / 4;
};

TEST_F(HeapSparseTest, LittleMemoryTakesNoWholeChunk) {
  Allocate(8 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 8 * kMiB);
  EXPECT_EQ(heap->Figures().pinned, 0u) << "it moves";
  Allocate(3 * kMiB);
  EXPECT_EQ(heap->Figures().resident, 12 * kMiB);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, FreedUnitsAreKeptForAWhileAndGivenBack) {
  const CUdeviceptr first = Allocate(8 * kMiB);
  Allocate(2 * kMiB);
  heap->Free(first);
  EXPECT_EQ(heap->Figures().empty, 8 * kMiB);
  EXPECT_EQ(heap->Trim(kNever), kNever);
  EXPECT_EQ(heap->Figures().resident, 2 * kMiB);
  EXPECT_FALSE(driver.Valid(first + 4 * kMiB));
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, APartOfAPieceIsAHole) {
  const CUdeviceptr first = Allocate(8 * kMiB), other = Allocate(2 * kMiB);
  driver.Write(other, 4);
  heap->Free(first);
  EXPECT_EQ(Allocate(4 * kMiB), first);
  driver.Write(first, 3);
  EXPECT_EQ(heap->Figures().empty, 0u);
  EXPECT_EQ(heap->Figures().holes, 4 * kMiB);
  heap->Trim(kNever);
  EXPECT_EQ(heap->Figures().resident, 10 * kMiB);
  ASSERT_EQ(mover.Squeeze(1), 1u);
  EXPECT_EQ(heap->Figures().resident, 6 * kMiB);
  EXPECT_EQ(heap->Figures().holes, 0u);
  EXPECT_EQ(driver.Read(first), 3u);
  EXPECT_EQ(driver.Read(other), 4u);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, ChunksComeBackWhole) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Evict(8), 1u);
  EXPECT_EQ(heap->Figures().swapped, 2 * kPart);
  EXPECT_EQ(heap->Figures().holes_out, 2 * kPart);
  ASSERT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(mover.CameIn(), 1u);
  EXPECT_EQ(heap->Figures().resident, kChunk);
  EXPECT_EQ(heap->Figures().moved_in, kChunk);
  EXPECT_EQ(heap->Figures().holes, 2 * kPart);
  EXPECT_EQ(driver.Read(first), 1u);
  EXPECT_EQ(driver.Read(last + kMiB), 2u);
  EXPECT_EQ(Allocate(2 * kPart), first + kPart) << "its hole has memory";
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, WhatWasSqueezedComesBackWholeFromItsNextMove) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Squeeze(1), 1u);
  EXPECT_EQ(heap->Figures().resident, 2 * kPart);
  EXPECT_EQ(mover.CameIn(), 2u) << "a piece for each run of units";
  ASSERT_EQ(mover.Evict(8), 1u);
  ASSERT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(mover.CameIn(), 3u);
  EXPECT_EQ(heap->Figures().resident, kChunk);
  EXPECT_EQ(driver.Read(first), 1u);
  EXPECT_EQ(driver.Read(last + kMiB), 2u);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, ThoseWithFewestHolesComeBackWholeWhereNotAllMay) {
  std::vector<CUdeviceptr> ends;
  for (const std::uint64_t end : {32 * kMiB, 2 * kMiB, 8 * kMiB}) {
    Allocate(kChunk - end);
    ends.push_back(Allocate(end));
  }
  for (const CUdeviceptr end : ends) heap->Free(end);
  ASSERT_EQ(mover.Evict(8), 3u);
  ASSERT_EQ(heap->Figures().holes_out, 42 * kMiB);
  ASSERT_EQ(mover.Load(8, UINT32_MAX, 20), 3u);
  EXPECT_EQ(mover.CameSparse(), 1u);
  EXPECT_EQ(heap->Figures().resident, 3 * kChunk - 32 * kMiB);
  EXPECT_EQ(heap->Figures().holes, 10 * kMiB);
  EXPECT_EQ(mover.CameIn(), 3u);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, SettledInHostMemoryItIsAllThere) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Evict(8), 1u);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(first), 1u);
  EXPECT_EQ(driver.Read(last + kMiB), 2u);
  ASSERT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(driver.Read(first), 1u);
  EXPECT_TRUE(driver.Valid(last));
}

TEST_F(HeapSparseTest, TheChunkWithMostHolesGoesFirst) {
  const auto [few, few_last] = MakeHole();
  Allocate(2 * kPart);  // there is no hole in the way of the next one
  const auto [most, most_last] = MakeHole();
  heap->Free(most_last);
  heap->Free(few_last);
  Allocate(kPart / 2);
  ASSERT_EQ(mover.Evict(1, LineType::kSqueeze), 1u);
  EXPECT_TRUE(driver.Valid(few));
  EXPECT_FALSE(driver.Valid(most));
  ASSERT_EQ(mover.Load(1), 1u);
}

TEST_F(HeapSparseTest, WhatWasSqueezedComesBackFirst) {
  const CUdeviceptr other = AllocateChunks(1)[0];
  ASSERT_EQ(mover.Evict(1), 1u);
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Evict(8, LineType::kSqueeze), 1u);
  heap->Heat().Touch(other, MonotonicNow() + 10 * UseHistory::kInterval);
  ASSERT_EQ(mover.Load(1), 1u);
  EXPECT_TRUE(driver.Valid(first));
  EXPECT_FALSE(driver.Valid(other));
  EXPECT_EQ(heap->Figures().holes, 0u) << "and without its holes, though there is room";
}

TEST_F(HeapSparseTest, NoMoreComesInThanThereIsRoomFor) {
  MakeHole();
  const auto chunks = AllocateChunks(1);
  ASSERT_EQ(mover.Evict(8), 2u);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 8, 1), 0u);
  EXPECT_EQ(mover.Load(8, 31), 0u) << "no whole one";
  EXPECT_EQ(mover.Load(8, 31, 0), 1u) << "the one with holes is small enough without them";
  EXPECT_EQ(heap->Figures().resident, 2 * kPart);
  EXPECT_EQ(mover.Load(8, 32), 1u);
}

TEST_F(HeapSparseTest, SparseChunksGoOutAgain) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Squeeze(1), 1u);
  const CUdeviceptr next = Allocate(4 * kMiB);
  driver.Write(next, 3);
  EXPECT_LT(next - first, kChunk) << "its units are missing there, and nowhere less";
  ASSERT_EQ(mover.Evict(8), 1u);
  EXPECT_EQ(driver.DeviceBytes(), 0u);
  ASSERT_GE(mover.Load(8, UINT32_MAX, 0), 1u);
  EXPECT_EQ(driver.Read(first), 1u);
  EXPECT_EQ(driver.Read(next), 3u);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, EveryCallOfTheDriverMayFailOnTheWay) {
  const auto [first, last] = MakeHole();
  for (const LineType type : {LineType::kSqueeze, LineType::kLoad}) {
    for (std::uint64_t number = 1;; ++number) {
      driver.FailCall(number);
      const std::uint32_t moved = type == LineType::kLoad ? mover.Load(1) : mover.Evict(1, type);
      const bool failed = driver.Calls() >= number;
      driver.FailCall(0, 0);
      while (mover.OutUnderWay()) mover.FinishOut();
      while (mover.InUnderWay()) mover.FinishIn();
      ExpectRightFigures();
      EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
      EXPECT_EQ(driver.Read(first), 1u);
      EXPECT_EQ(driver.Read(last + kMiB), 2u);
      ASSERT_LT(number, 80u);
      if (moved > 0) break;
      EXPECT_TRUE(failed);
    }
  }
}

TEST_F(HeapSparseTest, WhatIsFreedOnTheWayIsNotMissed) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Ask(LineType::kSqueeze, 1), 1u);
  heap->Free(first);
  mover.FinishOut();
  EXPECT_EQ(heap->Figures().swapped, kPart);
  ASSERT_EQ(mover.Ask(LineType::kLoad, 1), 1u);
  EXPECT_EQ(heap->Figures().coming, kPart);
  heap->Free(last);
  mover.FinishIn();
  EXPECT_EQ(heap->Figures().empty, heap->Figures().resident);
  ExpectRightFigures();
}

TEST_F(HeapSparseTest, NoBlockComesToAHoleOnItsWay) {
  const auto [first, last] = MakeHole();
  ASSERT_EQ(mover.Ask(LineType::kSqueeze, 1), 1u);
  const CUdeviceptr other = Allocate(20 * kMiB);
  EXPECT_GE(other, last + kPart);
  mover.FinishOut();
  const CUdeviceptr third = Allocate(20 * kMiB);
  EXPECT_GE(third, last + kPart);
  EXPECT_TRUE(driver.Valid(third));
}

TEST_F(HeapSparseTest, OthersGetASparseBlockInPieces) {
  MakeHole();
  ASSERT_EQ(mover.Squeeze(1), 1u);
  const CUdeviceptr before = Allocate(8 * kMiB);
  heap->Free(before);
  ASSERT_EQ(Allocate(4 * kMiB), before);
  // In a part of a piece, and one that is made for it.
  const CUdeviceptr block = Allocate(8 * kMiB);
  ASSERT_EQ(block, before + 4 * kMiB);
  driver.Write(block, 10);
  driver.Write(block + 4 * kMiB, 11);
  driver.Write(block + 6 * kMiB, 12);
  Exported exported;
  ASSERT_EQ(heap->Pins().Pin(block + 5, &exported), CUDA_SUCCESS);
  ASSERT_EQ(exported.chunks, 2u);
  EXPECT_EQ(exported.offset, 4 * kMiB);
  std::vector<int> fds(2);
  ASSERT_EQ(heap->Pins().Share(exported, 0, fds), CUDA_SUCCESS);
  EXPECT_EQ(driver.WordsOf(UniqueFd(fds[0])).at(4 * kMiB), 10u);
  const auto rest = driver.WordsOf(UniqueFd(fds[1]));
  EXPECT_EQ(rest.at(0), 11u);
  EXPECT_EQ(rest.at(2 * kMiB), 12u);
}

TEST_F(HeapSparseTest, ASharedBlockMayBeginInAPiece) {
  const auto [first, last] = MakeHole();
  const CUdeviceptr inside = first + kPart - 4 * kMiB;
  heap->Free(first);
  ASSERT_EQ(Allocate(kPart - 4 * kMiB), first);
  ASSERT_EQ(Allocate(4 * kMiB), inside);
  driver.Write(inside, 7);
  ASSERT_EQ(mover.Squeeze(1), 1u);
  Exported exported;
  ASSERT_EQ(heap->Pins().Pin(inside, &exported), CUDA_SUCCESS);
  ASSERT_EQ(exported.chunks, 1u);
  EXPECT_EQ(exported.offset, kPart - 4 * kMiB);
  std::vector<int> fds(1);
  ASSERT_EQ(heap->Pins().Share(exported, 0, fds), CUDA_SUCCESS);
  EXPECT_EQ(driver.WordsOf(UniqueFd(fds[0])).at(exported.offset), 7u);
}

TEST_F(HeapSparseTest, ABlockMayBeLargerThanTheRoom) {
  struct Evicting : FakeRoom {
    bool Take(std::uint64_t bytes) override {
      if (bytes > 4 * kChunk) return false;
      while (Taken() + bytes > 4 * kChunk) {
        if (mover->Evict(1) == 0) return false;
      }
      return FakeRoom::Take(bytes);
    }
    FakeMover* mover = nullptr;
  } little;
  const auto own = Heap::Make(driver.Functions(), 0, 64 * kGiB, false, little);
  LineAgent line(*own);
  FakeMover moves(driver, little, line);
  little.mover = &moves;
  CUdeviceptr first = 0, large = 0, other = 0;
  ASSERT_EQ(own->Allocate(kChunk, kContext, &first), CUDA_SUCCESS);
  driver.Write(first, 5);
  ASSERT_EQ(own->Allocate(10 * kChunk + 5 * kMiB, kContext, &large), CUDA_SUCCESS);
  EXPECT_EQ(own->Find(large + 10 * kChunk)->begin, large);
  EXPECT_EQ(moves.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(first), 5u);
  for (std::uint64_t at = 0; at < 10 * kChunk + 5 * kMiB; at += kMiB) ASSERT_TRUE(driver.Valid(large + at)) << at;
  EXPECT_EQ(little.Taken(), own->Figures().resident);
  EXPECT_LE(own->Figures().resident, 4 * kChunk);
  EXPECT_EQ(own->Figures().live, own->Figures().used);
  ASSERT_TRUE(own->Free(large));

  // Where some of it gets no place, none of it stays.
  little.mover = nullptr;
  struct Refusing : FakeRoom {
    bool Take(std::uint64_t bytes) override { return bytes <= kChunk && left-- > 0 && FakeRoom::Take(bytes); }
    int left = 3;
  } none;
  const auto poor = Heap::Make(driver.Functions(), 0, 64 * kGiB, false, none);
  EXPECT_EQ(poor->Allocate(9 * kChunk, kContext, &other), CUDA_ERROR_OUT_OF_MEMORY);
  poor->Trim(kNever);
  EXPECT_EQ(none.Taken(), 0u);
  EXPECT_EQ(poor->Figures().live, 0u);
  EXPECT_EQ(poor->Figures().used, 0u);
  own->Free(first);
  moves.HearDropped();
  own->Trim(kNever);
  EXPECT_EQ(little.Taken(), 0u);
}

}  // namespace
}  // namespace tessera::pager
