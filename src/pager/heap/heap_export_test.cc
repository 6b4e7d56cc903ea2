// Memory of the heap that others get, or that a device has: it stays where it is.
#include <fcntl.h>
#include <unistd.h>

#include "pager/heap/heap.h"
#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class ExportTest : public HeapFixture {
 protected:
  void TearDown() override {
    Close();
    HeapFixture::TearDown();
  }
  // Pins the block around `address` and takes descriptors of all its chunks.
  CUresult Export(CUdeviceptr address) {
    Close();
    CUresult result = heap->Pins().Pin(address, &exported);
    if (result != CUDA_SUCCESS) return result;
    fds.resize(exported.chunks);
    result = heap->Pins().Share(exported, 0, fds);
    if (result != CUDA_SUCCESS) fds.clear();
    return result;
  }
  void Close() {
    for (const int fd : fds) close(fd);
    fds.clear();
  }

  std::vector<int> fds;
  Exported exported;
};

TEST_F(ExportTest, WhatIsExportedStays) {
  Allocate(18 * kMiB);
  const CUdeviceptr address = Allocate(kChunk);
  AllocateChunks(1);
  EXPECT_EQ(Export(address + 5), CUDA_SUCCESS);
  EXPECT_EQ(fds.size(), 2u);
  EXPECT_EQ(exported.block.begin, address);
  EXPECT_EQ(exported.chunk_bytes, kChunk);
  EXPECT_EQ(exported.offset, 18 * kMiB);
  EXPECT_EQ(heap->Figures().pinned, 2 * kChunk);
  ExpectRightFigures();
  EXPECT_EQ(mover.Evict(8), 1u);
  EXPECT_EQ(Export(address), CUDA_SUCCESS);  // a second time pins nothing more
  EXPECT_EQ(heap->Figures().pinned, 2 * kChunk);
  heap->Free(address);
  EXPECT_EQ(heap->Figures().pinned, 0u);
  ExpectRightFigures();
}

TEST_F(ExportTest, WhatOthersGetIsTheBlocksMemory) {
  const CUdeviceptr address = Allocate(2 * kChunk);
  driver.Write(address, 7);
  driver.Write(address + kChunk, 8);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  EXPECT_EQ(driver.WordsOf(UniqueFd(dup(fds[0]))), (FakeDriver::Words{{0, 7}}));
  EXPECT_EQ(driver.WordsOf(UniqueFd(dup(fds[1]))), (FakeDriver::Words{{0, 8}}));
}

TEST_F(ExportTest, SmallBlocksArePinnedAnyway) {
  const CUdeviceptr address = Allocate(100);
  Allocate(100);
  EXPECT_EQ(Export(address), CUDA_SUCCESS);
  EXPECT_EQ(exported.chunk_bytes, Heap::kSmallChunk);
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallChunk);
  ExpectRightFigures();
  heap->Free(address);
  EXPECT_EQ(heap->Figures().pinned, Heap::kSmallChunk);
  ExpectRightFigures();
}

TEST_F(ExportTest, WhatIsOutComesBackFirstAndStays) {
  const CUdeviceptr address = Allocate(2 * kChunk);
  AllocateChunks(2);
  ASSERT_EQ(mover.Evict(4), 4u);
  EXPECT_EQ(heap->Pins().Pin(address, &exported), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(heap->Figures().recalled, 2 * kChunk);
  heap->Heat().Touch(address + 3 * kChunk, MonotonicNow());  // hot, but nobody needs it there
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(heap->Figures().recalled, kChunk);
  EXPECT_EQ(Export(address), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(heap->Figures().recalled, 0u);
  EXPECT_EQ(heap->Figures().pinned, 2 * kChunk);
  EXPECT_EQ(Export(address), CUDA_SUCCESS);
  EXPECT_EQ(mover.Evict(4), 0u);
  ExpectRightFigures();
}

TEST_F(ExportTest, WhatNoMoverHasIsRefusedAtOnceAndNotPinned) {
  const CUdeviceptr lost = Allocate(2 * kChunk), other = Allocate(2 * kChunk);
  ASSERT_EQ(mover.Evict(4), 4u);
  EXPECT_EQ(heap->Pins().Pin(lost, &exported), CUDA_ERROR_NOT_READY) << "a mover may come and have it";
  mover.LoseSlots();
  mover.Restart();
  EXPECT_EQ(heap->Figures().stranded, 4 * kChunk);
  EXPECT_EQ(heap->Figures().recalled, 0u) << "nothing can bring it back";
  EXPECT_EQ(heap->Pins().Pin(lost, &exported), CUDA_ERROR_OUT_OF_MEMORY);
  heap->Pins().Unpin(exported.block);
  EXPECT_FALSE(heap->Find(lost)->exported);
  EXPECT_EQ(heap->Pins().Pin(other + kChunk, &exported), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(heap->Pins().PinForDevice(other, 4096), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(heap->Find(other)->exported);
  ExpectRightFigures();
}

TEST_F(ExportTest, WhatIsOnItsWayOutGoesAndComesBack) {
  const CUdeviceptr address = Allocate(kChunk);
  driver.Write(address, 5);
  ASSERT_EQ(mover.Ask(wire::LineType::kEvict, 1), 1u);
  EXPECT_EQ(Export(address), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(heap->Pins().Share(exported, 0, std::span(fds = {-1})), CUDA_ERROR_NOT_READY);
  fds.clear();
  mover.FinishOut();
  EXPECT_EQ(heap->Figures().recalled, kChunk);
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(Export(address), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(address), 5u);
}

TEST_F(ExportTest, WhatIsUnpinnedMovesAgain) {
  const CUdeviceptr address = Allocate(kChunk);
  ASSERT_EQ(heap->Pins().Pin(address, &exported), CUDA_SUCCESS);
  EXPECT_EQ(mover.Evict(1), 0u);
  heap->Pins().Unpin(exported.block);
  heap->Pins().Unpin(exported.block);
  EXPECT_EQ(heap->Figures().pinned, 0u);
  EXPECT_EQ(mover.Evict(1), 1u);
  EXPECT_EQ(heap->Figures().recalled, 0u);
  ExpectRightFigures();
}

TEST_F(ExportTest, WhatADeviceHasStaysWhereItIs) {
  const CUdeviceptr first = Allocate(kChunk), second = Allocate(2 * kChunk);
  driver.Write(second, 5);
  ASSERT_EQ(mover.Evict(3), 3u);
  ASSERT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(heap->Pins().PinForDevice(second + 4096, kMiB), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(heap->Figures().recalled, 2 * kChunk);
  ASSERT_EQ(mover.Load(2), 2u);
  EXPECT_EQ(heap->Pins().PinForDevice(second + 4096, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().registered, 2 * kChunk);
  EXPECT_EQ(heap->Figures().exported, 0u);
  EXPECT_EQ(mover.Load(8), 1u);
  EXPECT_EQ(mover.Evict(8), 1u);
  EXPECT_FALSE(driver.Valid(first));
  EXPECT_EQ(driver.Read(second), 5u);
  heap->Pins().Unpin(*heap->Find(second));  // as when it could not be exported as well
  EXPECT_EQ(mover.Evict(8), 0u);
  heap->Free(second);
  EXPECT_EQ(heap->Figures().resident, 0u) << "no other block gets it";
  ExpectRightFigures();
}

TEST_F(ExportTest, ADevicesMemoryMayBeSeveralBlocks) {
  const auto blocks = AllocateChunks(3);
  EXPECT_EQ(heap->Pins().PinForDevice(blocks[1] - 4096, 4096 + kChunk), CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().pinned, 2 * kChunk);
  EXPECT_EQ(heap->Figures().registered, 2 * kChunk);
  EXPECT_EQ(heap->Pins().PinForDevice(blocks[1], kChunk), CUDA_SUCCESS) << "once more";
  heap->Free(blocks[1]);
  EXPECT_EQ(heap->Figures().registered, kChunk);
  EXPECT_EQ(heap->Figures().pinned, kChunk);
  EXPECT_EQ(heap->Pins().PinForDevice(blocks[2] + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE) << "nothing is there";
  EXPECT_EQ(heap->Pins().PinForDevice(blocks[0], ~std::uint64_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(heap->Pins().PinForDevice(blocks[0], 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExportTest, WhatADeviceHasIsNotCountedAsExported) {
  const CUdeviceptr address = Allocate(kChunk);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().exported, kChunk);
  ASSERT_EQ(heap->Pins().PinForDevice(address, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().exported, 0u);
  EXPECT_EQ(heap->Figures().registered, kChunk);
  heap->Free(address);
  EXPECT_EQ(heap->Figures(), HeapFigures{});
}

TEST_F(ExportTest, MemoryThatOthersHaveServesNoOtherBlock) {
  const CUdeviceptr address = Allocate(kChunk);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  driver.Write(address, 5);
  heap->Free(address);
  EXPECT_EQ(heap->Figures(), HeapFigures{});  // gone at once, and not kept for the next
  ExpectRightFigures();
  EXPECT_NE(driver.Read(Allocate(kChunk)), 5u);
}

TEST_F(ExportTest, WhatWasExportedOfASharedChunkStaysUnusedUntilTheChunkGoes) {
  const CUdeviceptr before = Allocate(kChunk / 2), address = Allocate(kChunk / 2);
  ASSERT_EQ(before + kChunk / 2, address);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  heap->Free(address);
  EXPECT_NE(Allocate(kChunk / 2), address);
  EXPECT_EQ(heap->Figures().resident, 2 * kChunk);
  heap->Free(before);
  EXPECT_EQ(heap->Figures().resident, kChunk);
  const CUdeviceptr whole = Allocate(kChunk);
  EXPECT_EQ(whole, before);
  ExpectRightFigures();
}

TEST_F(ExportTest, AChunkThatHasMovedIsNobodyElsesAnyMore) {
  const CUdeviceptr before = Allocate(16 * kMiB), address = Allocate(16 * kMiB);
  driver.Write(before, 3);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  heap->Free(address);
  EXPECT_EQ(mover.Evict(1), 1u);
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(driver.Read(before), 3u);
  EXPECT_EQ(Allocate(8 * kMiB), address);
  heap->Free(before);
  heap->Free(address);
  EXPECT_EQ(heap->Figures().empty, kChunk) << "it came back whole";
}

TEST_F(ExportTest, AFailureLeavesNoDescriptors) {
  const CUdeviceptr address = Allocate(3 * kChunk);
  ASSERT_EQ(heap->Pins().Pin(address, &exported), CUDA_SUCCESS);
  driver.FailCall(2);
  std::vector<int> some(3, -1);
  EXPECT_EQ(heap->Pins().Share(exported, 0, some), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(fcntl(some[0], F_GETFD), -1);
  heap->Free(address);
  EXPECT_EQ(heap->Figures().empty, 3 * kChunk);  // nobody has got it
}

TEST_F(ExportTest, WhatIsNotThereIsInvalid) {
  const CUdeviceptr address = Allocate(kMiB);
  EXPECT_EQ(Export(address + kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Export(0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Export(address), CUDA_SUCCESS);
  std::vector<int> more(2, -1);
  EXPECT_EQ(heap->Pins().Share(exported, 0, more), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(heap->Pins().Share(exported, 2, {}), CUDA_ERROR_INVALID_VALUE);
  heap->Free(address);
  Allocate(kMiB);  // another one at that address
  EXPECT_EQ(heap->Pins().Share(exported, 0, std::span(more).first(1)), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace tessera::pager
