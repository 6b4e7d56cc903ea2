#include "pager/chunks/chunk_table.h"

#include <gtest/gtest.h>

#include "base/uncancelled.h"
#include "pager/testing/fake_driver.h"
#include "pager/testing/fake_room.h"
#include "wire/line.h"

namespace tessera::pager {
namespace {

using wire::kChunkBytes;

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
  EXPECT_EQ(Put({.backing = Backing::kDevice, .blocks = 1}), (HeapFigures{.resident = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kDevice}), (HeapFigures{.resident = kChunkBytes, .empty = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kDevice, .blocks = 1, .pins = 1}),
            (HeapFigures{.resident = kChunkBytes, .pinned = kChunkBytes, .exported = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kDevice, .blocks = 1, .pins = 2, .devices = 1}),
            (HeapFigures{.resident = kChunkBytes, .pinned = kChunkBytes, .registered = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kDevice, .offered = true, .blocks = 1}),
            (HeapFigures{.resident = kChunkBytes, .unsafe = kChunkBytes}));
}

TEST_F(ChunkTableTest, SmallChunksArePinned) {
  const UncancelledLock lock(chunks_.mutex());
  chunks_.Put(chunks_.small(), 0, {.backing = Backing::kDevice, .blocks = 1});
  EXPECT_EQ(chunks_.figures(), (HeapFigures{.resident = 2u << 20, .pinned = 2u << 20}));
}

TEST_F(ChunkTableTest, Out) {
  EXPECT_EQ(Put({.backing = Backing::kHost, .blocks = 1}),
            (HeapFigures{.swapped = kChunkBytes, .unsafe = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kFile, .blocks = 1}),
            (HeapFigures{.swapped = kChunkBytes, .unsafe = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kHostMapped, .blocks = 1}), (HeapFigures{.swapped = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kHostMapped, .blocks = 1, .pins = 1}),
            (HeapFigures{.swapped = kChunkBytes, .recalled = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kHostMapped, .wanted = true, .blocks = 1, .coming = 1}),
            (HeapFigures{.swapped = kChunkBytes, .unsafe = kChunkBytes, .coming = kChunkBytes}));
  EXPECT_EQ(Put({.backing = Backing::kNone}), HeapFigures{});
}

TEST_F(ChunkTableTest, MovesAreCountedAndFreeingIsNone) {
  Put({.backing = Backing::kDevice, .blocks = 1});
  EXPECT_EQ(Put({.backing = Backing::kHost, .blocks = 1}).moved_out, kChunkBytes);
  EXPECT_EQ(Put({.backing = Backing::kFile, .blocks = 1}).moved_out, kChunkBytes);
  EXPECT_EQ(Put({.backing = Backing::kHostMapped, .blocks = 1}).moved_in, 0u);
  EXPECT_EQ(Put({.backing = Backing::kDevice, .blocks = 1}).moved_in, kChunkBytes);
  EXPECT_EQ(Put({}), (HeapFigures{.moved_out = kChunkBytes, .moved_in = kChunkBytes}));
}

TEST_F(ChunkTableTest, ChunksAreBackedAllOrNone) {
  cuda::CUdeviceptr begin = 0;
  ASSERT_EQ(driver_.Functions().AddressReserve(&begin, 1u << 30, kChunkBytes, 0, 0), cuda::CUDA_SUCCESS);
  ChunkTable chunks(ChunkMemory(driver_.Functions(), 0, false), room_, {.begin = 1, .bytes = 0, .chunk_bytes = 1},
                    {.begin = begin, .bytes = 1u << 30, .chunk_bytes = kChunkBytes});
  const UncancelledLock lock(chunks.mutex());
  ASSERT_EQ(chunks.Back(chunks.large(), {1, 2}), cuda::CUDA_SUCCESS);
  for (std::uint64_t number = 1; number <= 6; ++number) {  // of the calls that make, map and let reach two runs
    driver_.FailCall(number);
    EXPECT_EQ(chunks.Back(chunks.large(), {0, 3}), cuda::CUDA_ERROR_UNKNOWN) << number;
    EXPECT_EQ(chunks.large().backed(), 1u);
    EXPECT_EQ(chunks.figures().resident, kChunkBytes);
    EXPECT_EQ(driver_.DeviceBytes(), kChunkBytes);
  }
  driver_.FailCall(0, 0);
  ASSERT_EQ(chunks.Back(chunks.large(), {0, 3}), cuda::CUDA_SUCCESS);
  for (const std::size_t i : {0, 1, 2}) {
    EXPECT_TRUE(driver_.Valid(begin + i * kChunkBytes));
    chunks.Unback(chunks.large(), i);
  }
  EXPECT_EQ(chunks.figures(), HeapFigures{});
  EXPECT_EQ(driver_.Handles(), 0u);
  EXPECT_TRUE(driver_.Complaints().empty());
}

}  // namespace
}  // namespace tessera::pager
