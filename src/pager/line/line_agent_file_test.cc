// Memory that goes on to the mover's file.
#include <gmock/gmock.h>

#include "pager/testing/line_agent_test.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using LineAgentFileTest = LineAgentTest;
using testing::ElementsAre;
using wire::LineType;

TEST_F(LineAgentFileTest, MemoryGoesOnToTheFileAndComesBack) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(3);
  EXPECT_TRUE(mover.File(blocks[0]));
  EXPECT_TRUE(mover.File(blocks[2]));
  EXPECT_EQ(heap->Figures().swapped, 3 * kChunk);
  ExpectRightFigures();
  EXPECT_EQ(mover.Settle(), CUDA_ERROR_NOT_READY) << "it must not run";
  EXPECT_FALSE(driver.Valid(blocks[0]));
  EXPECT_TRUE(driver.Valid(blocks[1]));
  EXPECT_EQ(mover.Load(8), 1u) << "what is in the file comes by host memory";
  EXPECT_TRUE(mover.ReadBack(blocks[2]));
  EXPECT_TRUE(mover.ReadBack(blocks[0]));
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(blocks[0]), 100u);
  EXPECT_EQ(mover.Load(8), 2u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  ExpectRightFigures();
}

TEST_F(LineAgentFileTest, WhatWasReachedInHostMemoryGoesToTheFileAsWell) {
  const auto blocks = AllocateChunks(1);
  mover.Evict(1);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  driver.Write(blocks[0], 7);
  EXPECT_TRUE(mover.File(blocks[0]));
  EXPECT_FALSE(driver.Valid(blocks[0]));
  EXPECT_TRUE(mover.ReadBack(blocks[0]));
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(blocks[0]), 7u);
}

TEST_F(LineAgentFileTest, WhatIsFreedInTheFileIsDropped) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  EXPECT_TRUE(mover.File(blocks[0]));
  heap->Free(blocks[0]);
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  mover.HearDropped();
  EXPECT_EQ(mover.Filed(), 0u);
  EXPECT_EQ(mover.Stored(), 1u);
  // A chunk that was freed on its way: the mover hears of that before the answer, which does not name the chunk.
  heap->Free(blocks[1]);
  EXPECT_FALSE(Say(Naming(LineType::kFiled, {blocks[1]})) && answers.back().message.count > 0);
  EXPECT_THAT(Types(), ElementsAre(LineType::kDropped, LineType::kReleased));
}

TEST_F(LineAgentFileTest, TheNextMoverFindsWhatIsInTheFile) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(3);
  EXPECT_TRUE(mover.File(blocks[0]));
  EXPECT_TRUE(mover.File(blocks[1]));
  mover.Restart();
  EXPECT_EQ(mover.Filed(), 2u);
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_TRUE(mover.ReadBack(blocks[0]));
  EXPECT_TRUE(mover.ReadBack(blocks[1]));
  EXPECT_EQ(mover.Load(8), 3u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
}

TEST_F(LineAgentFileTest, NothingElseGoesToTheFileOrComesFromThere) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(1);
  EXPECT_FALSE(mover.File(blocks[1])) << "it is on the GPU";
  EXPECT_FALSE(mover.File(blocks[0] + 1));
  EXPECT_FALSE(mover.ReadBack(blocks[0])) << "it is in host memory";
  EXPECT_TRUE(mover.File(blocks[0]));
  EXPECT_FALSE(mover.File(blocks[0])) << "twice";
  driver.FailCall(1, 1);
  EXPECT_FALSE(mover.ReadBack(blocks[0])) << "it cannot be imported";
  driver.FailCall(0, 0);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 1), 0u);
  EXPECT_TRUE(mover.ReadBack(blocks[0]));
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(driver.Read(blocks[0]), 100u);
}

}  // namespace
}  // namespace tessera::pager
