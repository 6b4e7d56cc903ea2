#include "pager/line/line_agent.h"

#include <sys/mman.h>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using testing::ElementsAre;
using testing::IsEmpty;
using wire::LineMessage;
using wire::LineType;

class LineAgentTest : public HeapFixture {
 protected:
  // The answers to a message with so many descriptors of nothing.
  bool Say(const LineMessage& message, std::size_t descriptors = 0) {
    std::vector<UniqueFd> fds(descriptors);
    for (UniqueFd& fd : fds) fd.Reset(memfd_create("nothing", MFD_CLOEXEC));
    answers.clear();
    return agent.On(message, fds, &answers);
  }
  LineMessage Naming(LineType type, std::vector<std::uint64_t> chunks) {
    LineMessage message{.type = type, .count = static_cast<std::uint32_t>(chunks.size())};
    std::ranges::copy(chunks, message.chunk);
    return message;
  }
  // A mover that finds all that it is shown.
  LineMessage Adopted(const LineAgent::Answer& adopt) {
    LineMessage message = adopt.message;
    message.type = LineType::kAdopted;
    return message;
  }
  std::vector<LineType> Types() const {
    std::vector<LineType> types;
    for (const auto& answer : answers) types.push_back(answer.message.type);
    return types;
  }
  static std::vector<std::uint64_t> Chunks(const LineAgent::Answer& answer) {
    return {answer.message.chunk, answer.message.chunk + answer.message.count};
  }

  std::vector<LineAgent::Answer> answers;
};

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

// ---- a line that is lost ----

TEST_F(LineAgentTest, ANewMoverIsToldOfAllThatIsOut) {
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

TEST_F(LineAgentTest, ANewMoverHearsNothingOfWhatItWasNotGiven) {
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

TEST_F(LineAgentTest, WhatANewMoverDoesNotFindStaysOut) {
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

TEST_F(LineAgentTest, WhatIsFreedBeforeItIsAdoptedIsDroppedThen) {
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

TEST_F(LineAgentTest, AWantedChunkThatIsFreedGoesWithTheLine) {
  const auto blocks = AllocateChunks(2);
  mover.Evict(2);
  mover.Ask(LineType::kLoad, 2);
  heap->Free(blocks[0]);
  mover.Restart();
  EXPECT_EQ(mover.Stored(), 1u);
  EXPECT_EQ(heap->Figures().swapped, kChunk);
  ExpectRightFigures();
}

// ---- the mover's file ----

TEST_F(LineAgentTest, MemoryGoesOnToTheFileAndComesBack) {
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

TEST_F(LineAgentTest, WhatWasReachedInHostMemoryGoesToTheFileAsWell) {
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

TEST_F(LineAgentTest, WhatIsFreedInTheFileIsDropped) {
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

TEST_F(LineAgentTest, TheNextMoverFindsWhatIsInTheFile) {
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

TEST_F(LineAgentTest, NothingElseGoesToTheFileOrComesFromThere) {
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
