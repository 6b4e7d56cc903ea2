#include "pager/line/line_agent.h"

#include "pager/testing/line_agent_test.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using testing::ElementsAre;
using testing::IsEmpty;
using wire::LineMessage;
using wire::LineType;

TEST_F(LineAgentTest, MemoryGoesAndComesBackWithWhatIsInIt) {
  const auto blocks = AllocateChunks(3);
  EXPECT_EQ(mover.Evict(2), 2u);
  EXPECT_FALSE(driver.Valid(blocks[0]));
  EXPECT_FALSE(driver.Valid(blocks[1]));
  EXPECT_TRUE(driver.Valid(blocks[2]));
  EXPECT_EQ(heap->Figures().swapped, 2 * kChunk);
  ExpectRightFigures();
  EXPECT_EQ(mover.Load(8), 2u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  EXPECT_EQ(mover.Stored(), 0u);
  ExpectRightFigures();
}

// A program may run while nothing of its memory is without an address, or being copied.
TEST_F(LineAgentTest, TellsWhatIsUnsafeNow) {
  const auto unsafe = [&] {
    ExpectRightFigures();
    return heap->Figures().unsafe / kChunk;
  };
  const auto blocks = AllocateChunks(3);
  EXPECT_EQ(unsafe(), 0u);
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 2}));
  EXPECT_EQ(unsafe(), 2u);
  ASSERT_TRUE(Say(Naming(LineType::kKeep, {blocks[0], blocks[1]})));
  EXPECT_EQ(unsafe(), 0u);
  mover.Evict(2);
  EXPECT_EQ(unsafe(), 2u);
  mover.Settle();
  EXPECT_EQ(unsafe(), 0u);
  ASSERT_TRUE(Say({.type = LineType::kLoad, .count = 1, .room = UINT32_MAX}));
  EXPECT_EQ(unsafe(), 1u);
  ASSERT_TRUE(Say(Naming(LineType::kStay, Chunks(answers[0]))));
  EXPECT_EQ(unsafe(), 0u);
  mover.Load(1);
  EXPECT_EQ(unsafe(), 0u);
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 1}));
  ASSERT_TRUE(Say({.type = LineType::kLoad, .count = 1, .room = UINT32_MAX}));
  EXPECT_EQ(unsafe(), 2u);
  agent.Lost();
  EXPECT_EQ(unsafe(), 0u);
  mover.Evict(8);
  EXPECT_EQ(unsafe(), 2u);
  for (const CUdeviceptr block : blocks) heap->Free(block);
  EXPECT_EQ(unsafe(), 0u);
}

// While the chunks go the program must never look safe: it would run, and touch memory that is gone.
TEST_F(LineAgentTest, ChunksCountAsUnsafeBeforeTheyLoseTheirAddress) {
  const auto blocks = AllocateChunks(3);
  int unmaps = 0;
  driver.OnUnmap([&] {
    ++unmaps;
    EXPECT_GT(room.Told().unsafe, 0u);
  });
  ASSERT_EQ(mover.Evict(3), 3u);
  ASSERT_EQ(mover.Settle(), CUDA_SUCCESS);
  ASSERT_TRUE(mover.File(blocks[0]));
  ASSERT_EQ(mover.Load(8), 2u);
  EXPECT_GT(unmaps, 2);
  ASSERT_TRUE(mover.ReadBack(blocks[0]));
  ASSERT_EQ(mover.Load(8), 1u);
  ExpectRightFigures();
  EXPECT_EQ(room.Told().unsafe, 0u);
  driver.OnUnmap({});
}

TEST_F(LineAgentTest, NothingMovesOnceSomebodyLetsTheProgramRun) {
  const auto blocks = AllocateChunks(2);
  ASSERT_EQ(mover.Evict(1), 1u);
  ASSERT_EQ(mover.Settle(), CUDA_SUCCESS);
  room.SetReleased(true);
  EXPECT_FALSE(Say(Naming(LineType::kFiled, {blocks[0]})));
  EXPECT_FALSE(Say({.type = LineType::kEvict, .count = 1}));
  EXPECT_FALSE(Say({.type = LineType::kLoad, .count = 1, .room = UINT32_MAX}));
  agent.Lost();
  EXPECT_EQ(room.Told().unsafe, 0u);
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
  room.SetReleased(false);
}

TEST_F(LineAgentTest, WhatStaysOutCanBeReachedOnceItIsSettled) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(8);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
  EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);  // all is right already
  EXPECT_EQ(driver.Read(blocks[1]), 101u);
  driver.Write(blocks[1], 7);
  EXPECT_EQ(heap->Figures().swapped, 3 * kChunk);
  EXPECT_EQ(mover.Load(8), 3u);
  EXPECT_EQ(driver.Read(blocks[1]), 7u);
}

TEST_F(LineAgentTest, TheColdestGoFirstAndTheHottestComeFirst) {
  const auto blocks = AllocateChunks(3);
  const Nanos now = MonotonicNow();
  heap->Heat().Touch(blocks[0], now + UseHistory::kInterval);
  heap->Heat().Touch(blocks[2] + 5, now + 2 * UseHistory::kInterval);
  heap->Heat().Touch(123, now);  // nobody's
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 2}));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[1], blocks[0]));
  ASSERT_TRUE(Say(Naming(LineType::kKeep, {blocks[0], blocks[1]})));
  EXPECT_THAT(answers, IsEmpty());
  mover.Evict(8);
  ASSERT_TRUE(Say({.type = LineType::kLoad, .count = 2, .room = UINT32_MAX}));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[2], blocks[0]));
  ASSERT_TRUE(Say(Naming(LineType::kStay, {blocks[0], blocks[2]})));
}

TEST_F(LineAgentTest, SmallEmptyAndPinnedChunksAreNotOffered) {
  Allocate(100);
  heap->Free(Allocate(kChunk));
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 8}));
  EXPECT_THAT(Types(), ElementsAre(LineType::kOffer));
  EXPECT_EQ(answers[0].message.count, 0u);
  ASSERT_TRUE(Say({.type = LineType::kLoad, .count = 8, .room = UINT32_MAX}));
  EXPECT_EQ(answers[0].message.count, 0u);
}

TEST_F(LineAgentTest, NothingIsOfferedOrWantedTwice) {
  AllocateChunks(3);
  EXPECT_EQ(mover.Ask(LineType::kEvict, 2), 2u);
  EXPECT_EQ(mover.Ask(LineType::kEvict, 2), 1u);
  EXPECT_EQ(mover.Ask(LineType::kEvict, 2), 0u);
  mover.FinishOut();
  mover.FinishOut();
  EXPECT_EQ(mover.Ask(LineType::kLoad, 2), 2u);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 2), 1u);
  EXPECT_EQ(mover.Ask(LineType::kLoad, 2), 0u);
  mover.FinishIn();
  mover.FinishIn();
  ExpectRightFigures();
}

TEST_F(LineAgentTest, OneMessageNamesNoMoreThanItHasPlaceFor) {
  AllocateChunks(wire::kMostChunks + 2);
  EXPECT_EQ(mover.Evict(1000), wire::kMostChunks);
  EXPECT_EQ(mover.Evict(1000), 2u);
  EXPECT_EQ(mover.Load(1000), wire::kMostChunks);
}

// ---- what is freed meanwhile ----

TEST_F(LineAgentTest, AnOfferedChunkThatIsFreedGoesWhenItIsStored) {
  const auto blocks = AllocateChunks(2);
  ASSERT_EQ(mover.Ask(LineType::kEvict, 2), 2u);
  heap->Free(blocks[0]);
  EXPECT_EQ(heap->Trim(kNever), kNever);  // it is under way: nobody takes it away
  EXPECT_TRUE(driver.Valid(blocks[0]));
  mover.FinishOut();
  mover.HearDropped();
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  ExpectRightFigures();
}

TEST_F(LineAgentTest, AnOfferedChunkThatIsFreedAndKeptIsTrimmed) {
  const auto blocks = AllocateChunks(1);
  ASSERT_EQ(mover.Ask(LineType::kEvict, 1), 1u);
  heap->Free(blocks[0]);
  mover.FinishOut(0);
  heap->Trim(kNever);
  EXPECT_EQ(heap->Figures().resident, 0u);
}

TEST_F(LineAgentTest, AnOfferedChunkThatIsFreedAndUsedAnewIsTheNewOnes) {
  const auto blocks = AllocateChunks(1);
  ASSERT_EQ(mover.Ask(LineType::kEvict, 1), 1u);
  heap->Free(blocks[0]);
  ASSERT_EQ(Allocate(kChunk), blocks[0]);
  mover.FinishOut();
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  EXPECT_EQ(mover.Load(1), 1u);
  EXPECT_TRUE(driver.Valid(blocks[0]));
}

TEST_F(LineAgentTest, AWantedChunkThatIsFreedArrivesEmpty) {
  const auto blocks = AllocateChunks(1);
  mover.Evict(1);
  ASSERT_EQ(mover.Ask(LineType::kLoad, 1), 1u);
  heap->Free(blocks[0]);
  mover.HearDropped();  // nothing: it is on its way
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_EQ(mover.FinishIn().error, CUDA_SUCCESS);
  EXPECT_EQ(heap->Figures().empty, kChunk);
  ExpectRightFigures();
}

TEST_F(LineAgentTest, AWantedChunkThatIsFreedAndStaysIsDropped) {
  const auto blocks = AllocateChunks(1);
  mover.Evict(1);
  ASSERT_EQ(mover.Ask(LineType::kLoad, 1), 1u);
  heap->Free(blocks[0]);
  mover.FinishIn(0);
  mover.HearDropped();
  EXPECT_EQ(mover.Stored(), 0u);
  ExpectRightFigures();
}

TEST_F(LineAgentTest, AStoredChunkThatIsFreedIsDroppedAtOnce) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  mover.Settle();
  heap->Free(blocks[1]);
  EXPECT_FALSE(driver.Valid(blocks[1]));
  ASSERT_EQ(heap->Figures().swapped, kChunk);
  mover.HearDropped();
  EXPECT_EQ(mover.Stored(), 1u);
}

TEST_F(LineAgentTest, WhatWasDroppedIsSaidBeforeItIsOfferedAnew) {
  const auto blocks = AllocateChunks(1);
  mover.Evict(1);
  heap->Free(blocks[0]);
  ASSERT_EQ(Allocate(kChunk), blocks[0]);
  ASSERT_TRUE(Say({.type = LineType::kEvict, .count = 1}));
  EXPECT_THAT(Types(), ElementsAre(LineType::kDropped, LineType::kOffer));
  EXPECT_THAT(Chunks(answers[0]), ElementsAre(blocks[0]));
  EXPECT_THAT(Chunks(answers[1]), ElementsAre(blocks[0]));
  ASSERT_TRUE(Say(Naming(LineType::kKeep, {blocks[0]})));
}

TEST_F(LineAgentTest, ManyThatAreDroppedTakeSeveralMessages) {
  const auto blocks = AllocateChunks(wire::kMostChunks + 1);
  mover.Evict(8);
  mover.Evict(8);
  for (const CUdeviceptr block : blocks) heap->Free(block);
  std::vector<LineAgent::Answer> dropped;
  agent.TakeDropped(&dropped);
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(dropped[0].message.count, wire::kMostChunks);
  EXPECT_EQ(dropped[1].message.count, 1u);
  dropped.clear();
  agent.TakeDropped(&dropped);
  EXPECT_THAT(dropped, IsEmpty());
}

// ---- what goes wrong ----

TEST_F(LineAgentTest, WhatIsNoMessageOfAMoverIsRefusedAndChangesNothing) {
  const auto blocks = AllocateChunks(3);
  mover.Ask(LineType::kEvict, 1);  // the first one
  const CUdeviceptr offered = blocks[0], other = blocks[1];
  for (const LineType type : {LineType::kStored, LineType::kKeep, LineType::kLoaded, LineType::kStay}) {
    const bool with_memory = type == LineType::kStored;
    for (const auto& chunks : std::vector<std::vector<std::uint64_t>>{{other},
                                                                      {offered, offered},
                                                                      {offered, other},
                                                                      {offered + 512},
                                                                      {0},
                                                                      {~std::uint64_t{0}},
                                                                      {blocks[2] + 100 * kChunk}}) {
      EXPECT_FALSE(Say(Naming(type, chunks), with_memory ? chunks.size() : 0));
      EXPECT_THAT(answers, IsEmpty());
    }
  }
  EXPECT_FALSE(Say(Naming(LineType::kStored, {offered}), 0));
  EXPECT_FALSE(Say(Naming(LineType::kStored, {offered}), 2));
  EXPECT_FALSE(Say({.type = LineType::kEvict, .count = 1}, 1));
  for (const int type : {0, 10, 64, 65, 71, 72, 73, 74, 65535})
    EXPECT_FALSE(Say({.type = static_cast<LineType>(type)}));
  for (const CUdeviceptr block : blocks) EXPECT_TRUE(driver.Valid(block));
  EXPECT_EQ(heap->Figures().swapped, 0u);
}

TEST_F(LineAgentTest, ChunksAreStoredAllOrNone) {
  const auto blocks = AllocateChunks(3);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    ASSERT_EQ(mover.Ask(LineType::kEvict, 3), 3u);
    driver.FailCall(number);
    EXPECT_NE(mover.FinishOut().error, CUDA_SUCCESS);
    for (const CUdeviceptr block : blocks) EXPECT_TRUE(driver.Valid(block));
    EXPECT_EQ(heap->Figures().swapped, 0u);
    ExpectRightFigures();
  }
  EXPECT_EQ(mover.Evict(3), 3u);
}

TEST_F(LineAgentTest, OffersWhatItHasDescriptorsFor) {
  AllocateChunks(3);
  driver.FailCall(3);
  EXPECT_EQ(mover.Evict(3), 2u);
}

// Whether they were only stored, or mapped there already: whatever fails, it is again so afterwards.
class LoadFailure : public LineAgentTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Mapped, LoadFailure, testing::Bool());

TEST_P(LoadFailure, ChunksAreLoadedAllOrNone) {
  const auto blocks = AllocateChunks(4);
  heap->Heat().Touch(blocks[2], MonotonicNow() + UseHistory::kInterval);  // stays: two runs of neighbours
  EXPECT_EQ(mover.Evict(3), 3u);
  bool failed = true;
  for (std::uint64_t number = 1; failed; ++number) {
    if (GetParam()) {
      EXPECT_EQ(mover.Settle(), CUDA_SUCCESS);
    }
    ASSERT_EQ(mover.Ask(LineType::kLoad, 3), 3u);
    driver.FailCall(number);
    failed = mover.FinishIn().error != CUDA_SUCCESS;
    driver.FailCall(0, 0);
    EXPECT_EQ(heap->Figures().swapped, failed ? 3 * kChunk : 0);
    for (const std::size_t i : {0, 1, 3}) EXPECT_EQ(driver.Valid(blocks[i]), GetParam() || !failed) << number;
    ExpectRightFigures();
    ASSERT_LT(number, 100u);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
}

TEST_F(LineAgentTest, WhatCannotBeSettledIsSaidAndCanBeTriedAgain) {
  const auto blocks = AllocateChunks(3);
  mover.Evict(3);
  for (std::uint64_t number = 1; number <= 6; ++number) {
    driver.FailCall(number);
    if (mover.Settle() == CUDA_SUCCESS) break;
    ASSERT_LT(number, 6u);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(driver.Read(blocks[i]), 100 + i);
}

TEST_F(LineAgentTest, OneThatIsStoppedMovesNothing) {
  const auto blocks = AllocateChunks(1);
  FakeRoom other;
  const auto stopped = Heap::Make(driver.Functions(), 0, kGiB, false, other);
  LineAgent line(*stopped);
  stopped->Stop();
  EXPECT_FALSE(line.On({.type = LineType::kEvict, .count = 1}, {}, &answers));
}

}  // namespace
}  // namespace tessera::pager
