#include "pager/chunks/chunk_table.h"

#include <gtest/gtest.h>

#include "base/uncancelled.h"
#include "pager/testing/fake_driver.h"
#include "pager/testing/fake_room.h"
#include "wire/line.h"

namespace tessera::pager {
namespace {

using wire::kAllUnits;
using wire::kChunkBytes;
using wire::kUnitBytes;

// The figures of one chunk of each state.
class ChunkTableTest : public testing::Test {
 protected:
  ChunkTableTest() {
    const UncancelledLock lock(chunks_.mutex());
    chunks_.large().Grow(1);
    chunks_.small().Grow(1);
  }
  HeapFigures Put(const Chunk& chunk) {
    const UncancelledLock lock(chunks_.mutex());
    chunks_.Put(chunks_.large(), 0, chunk);
    EXPECT_EQ(room_.Told(), chunks_.figures());
    return chunks_.figures();
  }

  FakeDriver driver_;
  FakeRoom room_;
  ChunkTable chunks_{ChunkMemory(driver_.Functions(), 0, false),
                     room_,
                     {.begin = 1ull << 40, .bytes = 1u << 30, .chunk_bytes = 2u << 20},
                     {.begin = 2ull << 40, .bytes = 1u << 30, .chunk_bytes = kChunkBytes}};
};

TEST_F(ChunkTableTest, WithoutMemoryAChunkIsNothing) { EXPECT_EQ(Put({.blocks = 1, .pins = 1}), HeapFigures{}); }

TEST_F(ChunkTableTest, OnTheGpu) {
  const Chunk full{.backing = Backing::kDevice, .blocks = 1, .units = kAllUnits, .live = kAllUnits};
  EXPECT_EQ(Put(full), (HeapFigures{.resident = kChunkBytes, .live = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kDevice, .units = kAllUnits}),
            (HeapFigures{.resident = kChunkBytes, .empty = kChunkBytes}));
  Chunk pinned = full;
  pinned.pins = 1;
  EXPECT_EQ(
      Put(pinned),
      (HeapFigures{.resident = kChunkBytes, .pinned = kChunkBytes, .exported = kChunkBytes, .live = kChunkBytes}));
  pinned.pins = 2;
  pinned.devices = 1;
  EXPECT_EQ(
      Put(pinned),
      (HeapFigures{.resident = kChunkBytes, .pinned = kChunkBytes, .registered = kChunkBytes, .live = kChunkBytes}));
  Chunk offered = full;
  offered.offered = true;
  EXPECT_EQ(Put(offered), (HeapFigures{.resident = kChunkBytes, .live = kChunkBytes, .unsafe = kChunkBytes}));
}

TEST_F(ChunkTableTest, PinnedIsWhatHasMemory) {
  Chunk pinned{.backing = Backing::kDevice, .blocks = 1, .pins = 1, .units = 0b111, .live = 0b111};
  pinned.sparse = SparsePointer::Make();
  EXPECT_EQ(Put(pinned), (HeapFigures{.resident = 3 * kUnitBytes,
                                      .pinned = 3 * kUnitBytes,
                                      .exported = 3 * kUnitBytes,
                                      .live = 3 * kUnitBytes,
                                      .sparse = 3 * kUnitBytes}));
  Put({});
}

TEST_F(ChunkTableTest, HolesAreThoseOfChunksThatMayGo) {
  Chunk holed{.backing = Backing::kDevice, .blocks = 1, .units = kAllUnits, .live = 0b11};
  EXPECT_EQ(
      Put(holed),
      (HeapFigures{.resident = kChunkBytes, .holes = 30 * kUnitBytes, .holed = kChunkBytes, .live = 2 * kUnitBytes}));
  holed.pins = 1;
  EXPECT_EQ(Put(holed), (HeapFigures{.resident = kChunkBytes,
                                     .pinned = kChunkBytes,
                                     .exported = kChunkBytes,
                                     .stuck = 30 * kUnitBytes,
                                     .live = 2 * kUnitBytes}));
  holed.pins = 0;
  holed.units = 0b111;
  holed.sparse = SparsePointer::Make();
  EXPECT_EQ(Put(holed), (HeapFigures{.resident = 3 * kUnitBytes,
                                     .holes = kUnitBytes,
                                     .holed = 3 * kUnitBytes,
                                     .live = 2 * kUnitBytes,
                                     .sparse = 3 * kUnitBytes}))
      << "no piece of it is empty";
  Put({});
}

TEST_F(ChunkTableTest, SmallChunksArePinned) {
  const UncancelledLock lock(chunks_.mutex());
  chunks_.Put(chunks_.small(), 0, {.backing = Backing::kDevice, .blocks = 1, .units = 1, .live = 1});
  EXPECT_EQ(chunks_.figures(), (HeapFigures{.resident = 2u << 20, .pinned = 2u << 20, .live = 2u << 20}));
}

TEST_F(ChunkTableTest, Out) {
  const std::uint64_t two = 2 * kUnitBytes, holes = 30 * kUnitBytes;
  Chunk out{.backing = Backing::kHost, .blocks = 1, .units = 0b11, .live = 0b11, .key = 1};
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .holes_out = holes, .live = two, .unsafe = two, .held = two}));
  out.backing = Backing::kAway;
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .holes_out = holes, .live = two, .unsafe = two}));
  out.backing = Backing::kHostMapped;
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .holes_out = holes, .live = two, .held = two}));
  out.squeezed = true;
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .squeezed = two, .live = two, .held = two}))
      << "it comes back without";
  out.squeezed = false;
  out.pins = 1;
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .holes_out = holes, .live = two, .recalled = two, .held = two}));
  out.pins = 0;
  out.wanted = true;
  out.coming = 1;
  out.moving = 0b11;
  HeapFigures coming{
      .swapped = two, .holes_out = holes, .live = two, .unsafe = two, .coming = kChunkBytes, .held = two};
  EXPECT_EQ(Put(out), coming);
  out.coming = 0;
  out.coming_sparse = SparsePointer::Make();
  coming.coming = two;
  EXPECT_EQ(Put(out), coming);
  EXPECT_EQ(Put({.backing = Backing::kNone}), HeapFigures{});
}

TEST_F(ChunkTableTest, WhatNoMoverHasIsNeitherToComeBackNorToTakeRoom) {
  const std::uint64_t two = 2 * kUnitBytes;
  Chunk out{.backing = Backing::kHost, .blocks = 1, .pins = 1, .units = 0b11, .live = 0b11, .key = 0};
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .stranded = two, .live = two, .unsafe = two, .held = two}));
  out.backing = Backing::kHostMapped;
  EXPECT_EQ(Put(out), (HeapFigures{.swapped = two, .stranded = two, .live = two, .held = two}));
  EXPECT_EQ(Put({}), HeapFigures{});
}

TEST_F(ChunkTableTest, MovesAreCountedByGpuMemoryAndFreeingIsNone) {
  const Chunk here{.backing = Backing::kDevice, .blocks = 1, .units = kAllUnits, .live = 1};
  Chunk out{.backing = Backing::kHost, .blocks = 1, .units = 1, .live = 1};
  Put(here);
  EXPECT_EQ(Put(out).moved_out, kChunkBytes);
  out.backing = Backing::kAway;
  EXPECT_EQ(Put(out).moved_out, kChunkBytes);
  out.backing = Backing::kHostMapped;
  EXPECT_EQ(Put(out).moved_in, 0u);
  EXPECT_EQ(Put({.backing = Backing::kDevice, .blocks = 1, .units = 1, .live = 1}).moved_in, kUnitBytes);
  EXPECT_EQ(Put({}), (HeapFigures{.moved_out = kChunkBytes, .moved_in = kUnitBytes}));
}

TEST_F(ChunkTableTest, ChunksAreBackedAllOrNone) {
  cuda::CUdeviceptr begin = 0;
  ASSERT_EQ(driver_.Functions().AddressReserve(&begin, 1u << 30, kChunkBytes, 0, 0), cuda::CUDA_SUCCESS);
  ChunkTable chunks(ChunkMemory(driver_.Functions(), 0, false), room_, {.begin = 1, .bytes = 0, .chunk_bytes = 1},
                    {.begin = begin, .bytes = 1u << 30, .chunk_bytes = kChunkBytes});
  const UncancelledLock lock(chunks.mutex());
  ASSERT_EQ(chunks.Back(chunks.large(), begin + kChunkBytes, kChunkBytes, true), cuda::CUDA_SUCCESS);
  for (std::uint64_t number = 1; number <= 6; ++number) {  // of the calls that make, map and let reach two runs
    driver_.FailCall(number);
    EXPECT_EQ(chunks.Back(chunks.large(), begin, 3 * kChunkBytes, true), cuda::CUDA_ERROR_UNKNOWN) << number;
    EXPECT_EQ(chunks.large().WithMemory().size(), 1u);
    EXPECT_EQ(chunks.figures().resident, kChunkBytes);
    EXPECT_EQ(driver_.DeviceBytes(), kChunkBytes);
  }
  driver_.FailCall(0, 0);
  ASSERT_EQ(chunks.Back(chunks.large(), begin, 3 * kChunkBytes, true), cuda::CUDA_SUCCESS);
  for (const std::size_t i : {0, 1, 2}) {
    EXPECT_TRUE(driver_.Valid(begin + i * kChunkBytes));
    chunks.Unback(chunks.large(), i);
  }
  EXPECT_EQ(chunks.figures(), HeapFigures{});
  EXPECT_EQ(driver_.Handles(), 0u);
  EXPECT_TRUE(driver_.Complaints().empty());
}

TEST_F(ChunkTableTest, UnitsAreBackedAllOrNone) {
  cuda::CUdeviceptr begin = 0;
  ASSERT_EQ(driver_.Functions().AddressReserve(&begin, 1u << 30, kChunkBytes, 0, 0), cuda::CUDA_SUCCESS);
  ChunkTable chunks(ChunkMemory(driver_.Functions(), 0, false), room_, {.begin = 1, .bytes = 0, .chunk_bytes = 1},
                    {.begin = begin, .bytes = 1u << 30, .chunk_bytes = kChunkBytes});
  const UncancelledLock lock(chunks.mutex());
  ASSERT_EQ(chunks.Back(chunks.large(), begin + kUnitBytes, kUnitBytes, false), cuda::CUDA_SUCCESS);
  EXPECT_EQ(chunks.figures().sparse, kUnitBytes);
  for (std::uint64_t number = 1; number <= 6; ++number) {  // two units are made and mapped, and reached one by one
    driver_.FailCall(number);
    EXPECT_EQ(chunks.Back(chunks.large(), begin, 3 * kUnitBytes, false), cuda::CUDA_ERROR_UNKNOWN) << number;
    EXPECT_EQ(chunks.figures().resident, kUnitBytes);
    EXPECT_EQ(driver_.DeviceBytes(), kUnitBytes);
    EXPECT_EQ(driver_.Mappings(), 1u);
  }
  driver_.FailCall(0, 0);
  ASSERT_EQ(chunks.Back(chunks.large(), begin, 3 * kUnitBytes, false), cuda::CUDA_SUCCESS);
  chunks.Fill(chunks.large(), begin + kUnitBytes, kUnitBytes);
  EXPECT_EQ(chunks.TrimUnits(chunks.large(), 0), 2 * kUnitBytes);
  EXPECT_FALSE(driver_.Valid(begin));
  EXPECT_TRUE(driver_.Valid(begin + kUnitBytes));
  chunks.Unback(chunks.large(), 0);
  EXPECT_EQ(driver_.Handles(), 0u);
  EXPECT_TRUE(driver_.Complaints().empty());
}

}  // namespace
}  // namespace tessera::pager
