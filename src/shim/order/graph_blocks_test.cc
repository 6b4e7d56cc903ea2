#include "shim/order/graph_blocks.h"

#include <thread>

#include "shim/memory/paging.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using namespace cuda;

class GraphBlocksTest : public ShimFixture {
 protected:
  GraphBlocksTest() {
    Swap();
    blocks = &Kept(new GraphBlocks(Attached().Pager()->Ordered()));
  }
  pager::Block Block(CUdeviceptr begin, std::uint64_t id) const {
    return {.begin = begin, .bytes = 512, .id = id, .owner = &blocks->Pool()};
  }
  std::vector<std::uint64_t> Dropped() const {
    std::vector<std::uint64_t> ids;
    for (const UnsettledFree& each : blocks->TakeDropped()) ids.push_back(each.block.id);
    return ids;
  }

  GraphBlocks* blocks = nullptr;
};

TEST_F(GraphBlocksTest, ABlockGoesWithItsHold) {
  GraphBlocks::Hold* hold = blocks->Add(Block(0x1000, 1));
  EXPECT_TRUE(blocks->Has(0x1000, 1));
  EXPECT_EQ(blocks->Free(Block(0x1000, 1), nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Dropped(), testing::IsEmpty());
  GraphBlocks::Drop(hold);
  EXPECT_TRUE(GraphBlocks::AnyDropped());
  EXPECT_THAT(Dropped(), testing::ElementsAre(1));
  EXPECT_THAT(Dropped(), testing::IsEmpty());
  EXPECT_FALSE(blocks->Has(0x1000, 1));
}

TEST_F(GraphBlocksTest, OrWithTheProgramsFree) {
  GraphBlocks::Hold* hold = blocks->Add(Block(0x1000, 1));
  blocks->Leave(0x1000);
  EXPECT_TRUE(blocks->Left(0x1000));
  GraphBlocks::Drop(hold);
  EXPECT_THAT(Dropped(), testing::IsEmpty());
  EXPECT_TRUE(blocks->Has(0x1000, 1));
  EXPECT_EQ(blocks->Free(Block(0x1000, 1), nullptr), std::nullopt);  // as any other block
  EXPECT_FALSE(blocks->Has(0x1000, 1));
}

TEST_F(GraphBlocksTest, WhatTheProgramFreedIsWaitedForAtTheEnd) {
  const auto context = reinterpret_cast<CUcontext>(0x10);
  GraphBlocks::Hold* hold = blocks->Add(Block(0x1000, 1));
  blocks->Leave(0x1000);
  EXPECT_EQ(blocks->Free(Block(0x1000, 1), context), CUDA_SUCCESS);
  EXPECT_EQ(blocks->Free(Block(0x1000, 1), context), CUDA_ERROR_INVALID_VALUE);
  GraphBlocks::Drop(hold);
  const auto dropped = blocks->TakeDropped();
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].context, context);
}

TEST_F(GraphBlocksTest, OfAnotherBlockAtTheAddressNothingIsKnown) {
  GraphBlocks::Hold* hold = blocks->Add(Block(0x1000, 1));
  blocks->Forget();
  GraphBlocks::Hold* next = blocks->Add(Block(0x1000, 2));
  GraphBlocks::Drop(hold);
  EXPECT_THAT(Dropped(), testing::IsEmpty());
  EXPECT_TRUE(blocks->Has(0x1000, 2));
  GraphBlocks::Drop(next);
  EXPECT_THAT(Dropped(), testing::ElementsAre(2));
}

TEST_F(GraphBlocksTest, HoldsEndOnAnyThread) {
  constexpr std::uint64_t kEach = 1000;
  std::vector<GraphBlocks::Hold*> holds;
  for (std::uint64_t id = 1; id <= 2 * kEach; ++id) holds.push_back(blocks->Add(Block(id * 0x1000, id)));
  const auto drop = [&](std::size_t from) {
    for (std::size_t i = from; i < from + kEach; ++i) GraphBlocks::Drop(holds[i]);
  };
  std::size_t found = 0;
  std::thread first(drop, 0), second(drop, kEach);
  while (found < 2 * kEach) found += Dropped().size();
  first.join();
  second.join();
  EXPECT_EQ(found, 2 * kEach);
}

}  // namespace
}  // namespace tessera::shim
