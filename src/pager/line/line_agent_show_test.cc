// Chunks that the mover is shown before they go.
#include <gmock/gmock.h>

#include "pager/testing/line_agent_test.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using LineAgentShowTest = LineAgentTest;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::LineType;

constexpr std::uint32_t kRound = 7;

TEST_F(LineAgentShowTest, WhatWasShownGoesWithoutItsMemory) {
  const auto blocks = AllocateChunks(3);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 2, .room = kRound}));
  ASSERT_THAT(Types(), ElementsAre(LineType::kShown));
  const auto shown = Chunks(answers[0]);
  EXPECT_THAT(shown, SizeIs(2));
  EXPECT_THAT(answers[0].fds, SizeIs(2));
  EXPECT_EQ(driver.Read(blocks[0]), 100u) << "it goes on meanwhile";
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 3, .room = kRound}));
  ASSERT_THAT(Types(), ElementsAre(LineType::kOffer));
  EXPECT_EQ(answers[0].message.count, 3u);
  EXPECT_THAT(answers[0].fds, SizeIs(1)) << "of the one that was not shown";
  for (std::uint32_t n = 0; n < 3; ++n) {
    const bool was = std::ranges::find(shown, answers[0].message.chunk[n]) != shown.end();
    EXPECT_EQ(answers[0].message.key[n], was ? wire::kAsShown : 0);
  }
  EXPECT_EQ(wire::DescriptorsOf(answers[0].message), 1u);
}

TEST_F(LineAgentShowTest, EachChunkIsShownOnceInARound) {
  AllocateChunks(3);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 8, .room = kRound}));
  EXPECT_EQ(answers[0].message.count, 3u);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 8, .room = kRound}));
  EXPECT_EQ(answers[0].message.count, 0u);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 8, .room = kRound + 1}));
  EXPECT_EQ(answers[0].message.count, 3u);
}

TEST_F(LineAgentShowTest, WithOtherMemoryItWasNotShown) {
  const auto blocks = AllocateChunks(1);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 1, .room = kRound}));
  heap->Free(blocks[0]);
  heap->Trim(kNever);
  AllocateChunks(1);
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 1, .room = kRound}));
  ASSERT_EQ(answers[0].message.count, 1u);
  EXPECT_EQ(answers[0].message.key[0], 0u);
  EXPECT_THAT(answers[0].fds, SizeIs(1));
}

TEST_F(LineAgentShowTest, InAnotherRoundOrToAnotherMoverItWasNotShown) {
  AllocateChunks(2);
  ASSERT_TRUE(Say({.type = LineType::kShow, .count = 2, .room = kRound}));
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 1, .room = kRound + 1}));
  EXPECT_THAT(answers[0].fds, SizeIs(1));
  agent.Lost();
  answers.clear();
  agent.Adopt(&answers);
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 2, .room = kRound}));
  EXPECT_THAT(answers[0].fds, SizeIs(2));
}

TEST_F(LineAgentShowTest, ARoundHasANumber) {
  AllocateChunks(1);
  EXPECT_FALSE(Say({.type = LineType::kShow, .count = 1}));
}

}  // namespace
}  // namespace tessera::pager
