// Memory that is away: in the mover's file, or in its slots without the program.
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

// ---- parked ----

TEST_F(LineAgentFileTest, AParkedProgramHoldsNothingAndGetsTheSameMemoryAgain) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(3);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  driver.Write(blocks[1], 7);
  EXPECT_TRUE(mover.File(blocks[2]));
  EXPECT_EQ(mover.Held(), 2u);
  HeapFigures before = heap->Figures();
  EXPECT_TRUE(mover.Park(blocks[0]));
  EXPECT_EQ(mover.Held(), 1u);
  EXPECT_TRUE(mover.Park(blocks[1]));
  EXPECT_EQ(mover.Held(), 0u);
  EXPECT_EQ(driver.Mappings(), 0u);
  EXPECT_EQ(before.held, 2 * kChunk);
  before.held = 0;
  before.unsafe = 3 * kChunk;  // what was reached in host memory is reached no more
  EXPECT_EQ(heap->Figures(), before);
  ExpectRightFigures();
  EXPECT_EQ(mover.Settle(), CUDA_ERROR_NOT_READY) << "it must not run";
  EXPECT_TRUE(mover.Unpark(blocks[0]) && mover.Unpark(blocks[1]) && mover.ReadBack(blocks[2]));
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(driver.Read(blocks[1]), 7u);
  EXPECT_EQ(mover.Load(8), 3u);
  EXPECT_EQ(driver.Read(blocks[0]), 100u);
  EXPECT_EQ(driver.Read(blocks[2]), 102u);
}

TEST_F(LineAgentFileTest, TheNextMoverFindsWhatIsParkedAndWhatIsNot) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(3);
  EXPECT_TRUE(mover.Park(blocks[0]) && mover.Park(blocks[1]));
  mover.Restart();
  EXPECT_EQ(mover.Parked(), 2u);
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_TRUE(mover.Unpark(blocks[1]));
  mover.Restart();
  EXPECT_EQ(mover.Parked(), 1u);
  EXPECT_EQ(mover.Stored(), 2u);
  EXPECT_TRUE(mover.Unpark(blocks[0]));
  EXPECT_EQ(mover.Load(8), 3u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
}

// The mover frees what a program left and did not name, when it has heard the last of what is in host memory.
TEST_F(LineAgentFileTest, WhatIsAwayIsNamedFirst) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  EXPECT_TRUE(mover.Park(blocks[0]));
  agent.Lost();
  agent.Adopt(&answers);
  EXPECT_THAT(Types(), ElementsAre(LineType::kAdoptFiled, LineType::kAdopt));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[0]));
  EXPECT_THAT(Chunks(answers[1]), ElementsAre(blocks[1]));
}

TEST_F(LineAgentFileTest, WhatNoMoverHasIsHeld) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 2), 2u);
  EXPECT_FALSE(mover.Park(blocks[1])) << "it is on its way";
  EXPECT_EQ(mover.FinishIn(0).count, 0u);
  EXPECT_TRUE(mover.Park(blocks[0]));
  const auto more = AllocateChunks(1);
  mover.Restart();
  EXPECT_EQ(mover.Held(), 1u);
  mover.LoseSlots();
  EXPECT_TRUE(Say({.type = LineType::kPark}));
  EXPECT_EQ(answers.back().message.room, 1u);
}

TEST_F(LineAgentFileTest, WhatIsFreedWhileItIsParkedIsDropped) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  EXPECT_TRUE(mover.Park(blocks[0]) && mover.Park(blocks[1]));
  heap->Free(blocks[0]);
  mover.HearDropped();
  EXPECT_EQ(mover.Parked(), 1u);
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  EXPECT_TRUE(mover.Unpark(blocks[1]));
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_EQ(driver.Read(blocks[1]), 101u);
}

// ---- without host memory in the program ----

TEST_F(LineAgentFileTest, MemoryGoesAwayAtOnceAndComesFromThereToTheGpu) {
  const auto blocks = AllocateChunks(3);
  mover.StoreAway(true);
  EXPECT_EQ(mover.Evict(2), 2u);
  mover.StoreAway(false);
  EXPECT_EQ(mover.Evict(1), 1u);
  EXPECT_EQ(mover.Parked(), 2u);
  EXPECT_EQ(mover.Held(), 1u);
  EXPECT_EQ(heap->Figures().swapped, 3 * kChunk);
  EXPECT_EQ(heap->Figures().moved_out, 3 * kChunk);
  ExpectRightFigures();
  EXPECT_EQ(mover.Settle(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(mover.Load(8), 3u) << "at once, from wherever it is";
  EXPECT_EQ(mover.Parked(), 0u);
  EXPECT_EQ(heap->Figures().moved_in, 3 * kChunk);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  ExpectRightFigures();
}

TEST_F(LineAgentFileTest, ADriverThatImportsNothingIsNotNeeded) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  EXPECT_TRUE(mover.File(blocks[0]));
  EXPECT_TRUE(mover.Park(blocks[1]));
  driver.FailCall(1, 1);
  EXPECT_FALSE(mover.Unpark(blocks[1]));
  driver.FailCall(1, 1);
  EXPECT_FALSE(mover.ReadBack(blocks[0]));
  driver.FailCall(0, 0);
  EXPECT_TRUE(mover.ReadAway(blocks[0]));
  EXPECT_EQ(mover.Filed(), 0u);
  EXPECT_EQ(mover.Held(), 0u);
  EXPECT_EQ(mover.Load(8), 2u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  ExpectRightFigures();
}

TEST_F(LineAgentFileTest, WhatCouldNotBeMappedIsStillAway) {
  const auto blocks = AllocateChunks(1);
  mover.StoreAway(true);
  mover.Evict(1);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 1), 1u);
  mover.Restart();
  EXPECT_EQ(mover.Parked(), 1u) << "the next mover finds it";
  EXPECT_EQ(mover.Ask(LineType::kLoad, 1), 1u);
  heap->Free(blocks[0]);  // on its way
  mover.FinishIn();
  mover.HearDropped();
  EXPECT_EQ(mover.Parked(), 0u);
  ExpectRightFigures();
}

}  // namespace
}  // namespace tessera::pager
