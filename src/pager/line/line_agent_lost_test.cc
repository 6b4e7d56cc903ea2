// A line that is lost, and the next mover.
#include <gmock/gmock.h>

#include "pager/testing/line_agent_test.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using LineAgentLostTest = LineAgentTest;
using testing::ElementsAre;
using testing::IsEmpty;
using wire::LineMessage;
using wire::LineType;

TEST_F(LineAgentLostTest, ANewMoverIsToldOfAllThatIsOut) {
  const auto blocks = AllocateChunks(12);
  mover.Evict(8);
  mover.Evict(2);
  mover.Settle();
  mover.Ask(LineType::kLoad, 3);
  mover.Ask(LineType::kEvict, 1);
  mover.Restart();
  EXPECT_EQ(mover.Stored(), 10u);
  EXPECT_EQ(mover.Load(8), 8u);
  EXPECT_EQ(mover.Load(8), 2u);
  EXPECT_EQ(mover.Evict(8), 8u);
  EXPECT_EQ(mover.Load(8), 8u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
}

TEST_F(LineAgentLostTest, ANewMoverHearsNothingOfWhatItWasNotGiven) {
  const auto blocks = AllocateChunks(4);
  mover.Evict(4);
  heap->Free(blocks[0]);  // before the line is lost
  agent.Lost();
  heap->Free(blocks[1]);  // between
  answers.clear();
  agent.Adopt(&answers);
  ASSERT_THAT(Types(), ElementsAre(LineType::kAdopt));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[2], blocks[3]));
  ASSERT_TRUE(Say(Adopted(answers[0])));
  answers.clear();
  agent.TakeDropped(&answers);
  EXPECT_THAT(answers, IsEmpty());
  heap->Free(blocks[2]);  // afterwards
  agent.TakeDropped(&answers);
  ASSERT_THAT(Types(), ElementsAre(LineType::kDropped));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[2]));
}

TEST_F(LineAgentLostTest, WhatANewMoverDoesNotFindStaysOut) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(2);
  mover.LoseSlots();
  mover.Evict(1);
  mover.Settle();
  mover.Restart();
  EXPECT_EQ(mover.Stored(), 1u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  EXPECT_EQ(heap->Figures().swapped, 3 * kChunk);
  EXPECT_EQ(heap->Figures().stranded, 2 * kChunk);
  EXPECT_EQ(mover.Load(8), 1u) << "of the others it does not speak";
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  mover.Restart();
  EXPECT_EQ(mover.Stored(), 0u) << "nor to the one after that";
  agent.Lost();
  answers.clear();
  agent.Adopt(&answers);
  ASSERT_THAT(Types(), ElementsAre(LineType::kAdopt));
  EXPECT_EQ(answers[0].message.count, 0u) << "it has no key any more";
  heap->Free(blocks[0]);
  heap->Free(blocks[1]);
  mover.HearDropped();
  EXPECT_EQ(heap->Figures().swapped, 0u);
  EXPECT_EQ(heap->Figures().stranded, 0u);
  EXPECT_EQ(driver.Read(blocks[2]), 102u);
  ExpectRightFigures();
}

TEST_F(LineAgentLostTest, WhatIsFreedBeforeItIsAdoptedIsDroppedThen) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  agent.Lost();
  answers.clear();
  agent.Adopt(&answers);
  ASSERT_THAT(Types(), ElementsAre(LineType::kAdopt));
  const LineMessage adopted = Adopted(answers[0]);
  EXPECT_FALSE(std::ranges::count(adopted.key, 0u) == wire::kMostChunks);
  heap->Free(blocks[0]);
  const auto again = AllocateChunks(1);
  ASSERT_EQ(again[0], blocks[0]);
  answers.clear();
  agent.TakeDropped(&answers);
  EXPECT_THAT(answers, IsEmpty()) << "nobody knows it";
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 8}));
  EXPECT_EQ(answers[0].message.count, 0u) << "the mover may take it for the old one";
  ASSERT_TRUE(Say(adopted));
  answers.clear();
  agent.TakeDropped(&answers);
  ASSERT_THAT(Types(), ElementsAre(LineType::kDropped));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[0]));
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 8}));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[0]));
  EXPECT_FALSE(Say(adopted)) << "it was asked once";
}

TEST_F(LineAgentLostTest, AWantedChunkThatIsFreedGoesWithTheLine) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  mover.Ask(LineType::kLoad, 2);
  heap->Free(blocks[0]);
  mover.Restart();
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  ExpectRightFigures();
}

}  // namespace
}  // namespace tessera::pager
