// The conversation on a GPU whose copies and room the test decides. With real memory: mover_process_test.cc.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "cuda/cuda_abi.h"
#include "mover/testing/conversation.h"

namespace tessera::mover {
namespace {

using MoverTest = Conversation;

TEST_F(MoverTest, ProgramWithoutMemoryForMoreLoadsWhatFits) {
  StoreChunks(2);
  EXPECT_EQ(told_[MoverType::kMoved].bytes, 2 * kChunkBytes);
  Move(MoverType::kLoad, 2);
  EXPECT_EQ(Hear().count, 2u);
  Say(LineType::kWant, {1});
  const LineMessage loaded = Hear();
  EXPECT_EQ(loaded.type, LineType::kLoaded);
  EXPECT_EQ(loaded.count, 1u);
  Say(LineType::kTaken, {1});
  EXPECT_EQ(Hear().type, LineType::kLoad);
  Say(LineType::kWant, {}, cuda::CUDA_ERROR_OUT_OF_MEMORY);
  const MoverMessage end = End(MoverType::kLoaded);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, kChunkBytes);
  EXPECT_EQ(told_[MoverType::kMoved].bytes, 2 * kChunkBytes);
  EXPECT_EQ(told_[MoverType::kMoved].other, kChunkBytes);
  EXPECT_EQ(gpu_.windows, 0);
  ExpectInUse(1);
}

TEST_F(MoverTest, WhatCannotBeMappedIsKept) {
  gpu_.import_error = ENOMEM;
  Move(MoverType::kEvict, 2);
  Hear();
  Say(LineType::kOffer, {1, 2});
  const LineMessage keep = Hear();
  EXPECT_EQ(keep.type, LineType::kKeep);
  EXPECT_EQ(keep.count, 2u);
  const MoverMessage end = End(MoverType::kEvicted);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 2 * kChunkBytes);
  ExpectInUse(0);
}

TEST_F(MoverTest, WhatHasNoPlaceToGoStays) {
  StoreChunks(2);
  gpu_.import_error = EIO;
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {2, 1});
  EXPECT_EQ(Hear().type, LineType::kStay);
  EXPECT_EQ(End(MoverType::kLoaded).error, EIO);
  gpu_.import_error = 0;
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {2, 1});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
}

TEST_F(MoverTest, BrokenGpuEndsTheMover) {
  gpu_.copies_fail = true;
  Move(MoverType::kEvict, 1);
  Hear();
  Say(LineType::kOffer, {1});
  Result<bool> turn = true;
  for (int i = 0; turn && i < 1000; ++i) turn = mover_->RunOnce(kMillisecond);
  ASSERT_FALSE(turn);
  EXPECT_EQ(turn.error().code, EIO);
}

TEST_F(MoverTest, AnswersMayLeaveChunksOut) {
  StoreChunks(1);
  Move(MoverType::kEvict, 2);
  Hear();
  Say(LineType::kOffer, {2, 3});
  Hear();
  Say(LineType::kFreed, {3});
  EXPECT_EQ(Hear().count, 1u);  // the one that is missing
  Say(LineType::kOffer, {});
  MoverMessage end = End(MoverType::kEvicted);
  EXPECT_EQ(end.error, ENODATA);
  EXPECT_EQ(end.bytes, kChunkBytes);
  ExpectInUse(2);
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {1, 3});
  Hear();
  Say(LineType::kTaken, {3});
  EXPECT_EQ(Hear().count, 1u);
  Say(LineType::kWant, {});
  EXPECT_EQ(End(MoverType::kLoaded).error, ENODATA);
  ExpectInUse(1);
}

TEST_F(MoverTest, ChunkDroppedOnItsWayOut) {
  gpu_.copies_end = false;
  Move(MoverType::kEvict, 2);
  Hear();
  Say(LineType::kOffer, {1, 2});
  Until([&] { return gpu_.copies == 1; });
  Say(LineType::kDropped, {1});
  ExpectInUse(2);
  gpu_.copies_end = true;
  EXPECT_EQ(Hear().type, LineType::kStored);
  Say(LineType::kFreed, {1, 2});
  EXPECT_EQ(End(MoverType::kEvicted).error, 0);
  ExpectInUse(1);
}

TEST_F(MoverTest, ChunkDroppedOnItsWayIn) {
  StoreChunks(2);
  gpu_.copies_end = false;
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {1, 2});
  Until([&] { return gpu_.copies == 2; });
  Say(LineType::kDropped, {1, 2});
  gpu_.copies_end = true;
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {2});
  EXPECT_EQ(Hear().count, 1u);
  Say(LineType::kWant, {});
  EXPECT_EQ(End(MoverType::kLoaded).error, ENODATA);
  ExpectInUse(0);
  // The name is free for another chunk.
  Move(MoverType::kEvict, 1);
  Hear();
  Say(LineType::kOffer, {1});
  EXPECT_EQ(Hear().type, LineType::kStored);
}

TEST_F(MoverTest, OneWishAfterTheOther) {
  StoreChunks(1);
  Move(MoverType::kEvict, 1);
  Move(MoverType::kLoad, 1);
  EXPECT_EQ(Hear().type, LineType::kEvict);
  EXPECT_TRUE(HearsNothing());
  Say(LineType::kOffer, {});
  EXPECT_EQ(End(MoverType::kEvicted).error, ENODATA);
  EXPECT_EQ(Hear().type, LineType::kLoad);
}

TEST_F(MoverTest, AsksForSomeAtATime) {
  Tell({.type = MoverType::kPool, .bytes = 100 * kChunkBytes, .other = 100 * kChunkBytes});
  Until([&] { return Pool().bytes == 100 * kChunkBytes; });
  gpu_.copies_end = false;
  Move(MoverType::kEvict, 100);
  std::uint64_t chunk = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Hear().count, kAtATime);
  EXPECT_TRUE(HearsNothing());
  for (int i = 0; i < 6; ++i) {
    std::vector<std::uint64_t> chunks;
    for (std::uint32_t k = 0; k < kAtATime; ++k) chunks.push_back(chunk++);
    Say(LineType::kOffer, chunks);
    if (i < 3) EXPECT_EQ(Hear().type, LineType::kEvict);
  }
  EXPECT_TRUE(HearsNothing());
  EXPECT_EQ(gpu_.windows, 6);
  gpu_.copies_end = true;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Hear().type, LineType::kStored);
  EXPECT_EQ(gpu_.windows, 0);
}

TEST_F(MoverTest, SettlesInItsTurn) {
  Move(MoverType::kEvict, 1);
  Hear();
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(Hear().type, LineType::kSettle);
  Say(LineType::kOffer, {});
  Say(LineType::kSettled, {}, 1);
  EXPECT_EQ(End(MoverType::kSettled).error, EIO);
}

TEST_F(MoverTest, CopiesOutliveTheirProgram) {
  StoreChunks(2);
  gpu_.copies_end = false;
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {1, 2});
  Until([&] { return gpu_.copies == 2; });
  line_.Reset();
  EndProcess();
  EXPECT_EQ(End(MoverType::kLoaded).error, EPIPE);
  Tell({.type = MoverType::kGone, .program = 1});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(mover_->RunOnce(kMillisecond));
  EXPECT_EQ(gpu_.windows, 1);
  ExpectInUse(2);
  gpu_.copies_end = true;
  ExpectInUse(0);
  EXPECT_EQ(gpu_.windows, 0);
  EXPECT_EQ(gpu_.freed, 0);
}

// To a program that says so, nothing of what others have in slots.
TEST_F(MoverTest, WhatIsInNoFileIsInNoSlotEither) {
  StoreChunks(1);
  Say(LineType::kAdoptFiled, {9});
  Move(MoverType::kLoad, 1);
  EXPECT_EQ(Hear().type, LineType::kLoad);
  Say(LineType::kWant, {9});
  EXPECT_EQ(Hear().type, LineType::kStay);
  EXPECT_EQ(End(MoverType::kLoaded).error, ESTALE);
  EXPECT_EQ(gpu_.copies, 1);
  ExpectInUse(1);
}

TEST_F(MoverTest, AProgramWithoutWhatIsLostIsSettled) {
  Say(LineType::kAdoptFiled, {8, 9});
  Say(LineType::kDropped, {9});
  EXPECT_TRUE(HearsNothing());
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(End(MoverType::kSettled).error, ESTALE);
  Say(LineType::kDropped, {8});
  EXPECT_TRUE(HearsNothing());
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(Hear().type, LineType::kSettle);
  Say(LineType::kDropped, {8});
  Say(LineType::kSettled, {});
  EXPECT_EQ(End(MoverType::kSettled).error, EPIPE) << "it has no more that is lost";
}

// It may still write to the host memory that it has, though nobody hears of it any more.
TEST_F(MoverTest, MemoryOfALivingProgramIsNotUsedAgain) {
  StoreChunks(2);
  line_.Reset();
  Tell({.type = MoverType::kGone, .program = 1});
  EXPECT_TRUE(HearsNothing());
  ReadDaemon();
  told_.clear();  // what is said from now on
  ExpectInUse(2);
  EndProcess();
  ExpectInUse(0);
  EXPECT_EQ(gpu_.freed, 0);
}

TEST_F(MoverTest, MemoryOfAnEndedProgramIsKeptUntilTheDaemonKnows) {
  StoreChunks(2);
  line_.Reset();
  EndProcess();
  EXPECT_TRUE(HearsNothing());
  ExpectInUse(2);
  Tell({.type = MoverType::kGone, .program = 1});
  ExpectInUse(0);
  EXPECT_EQ(gpu_.freed, 0);
}

TEST_F(MoverTest, WaitingProgramGetsWhatIsFreed) {
  StoreChunks(14);
  auto [line, far] = Pair();
  Tell({.type = MoverType::kProgram, .program = 2, .other = 8}, far.Get());
  far.Reset();
  // 2 of 16 are free and nobody's; more there is when the first one ends.
  Tell({.type = MoverType::kEvict, .program = 2, .bytes = 3 * kChunkBytes});
  EXPECT_TRUE(HearsNothing());
  LineMessage ask;
  EXPECT_EQ(recv(line.Get(), &ask, sizeof ask, MSG_DONTWAIT), static_cast<ssize_t>(sizeof ask));
  EXPECT_EQ(ask.count, 2u);
  ExpectInUse(14);
  EndProcess();
  Tell({.type = MoverType::kGone, .program = 1});
  ExpectInUse(0);
  Tell({.type = MoverType::kEvict, .program = 2, .bytes = 1});
  Until([&] { return recv(line.Get(), &ask, sizeof ask, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof ask); });
  Until([&] { return gpu_.freed >= 1; });  // made anew for the other domain
}

TEST_F(MoverTest, GrowsAgainWhenThereIsRoom) {
  gpu_.hosts_left = 2;
  Tell({.type = MoverType::kPool, .bytes = 20 * kChunkBytes, .other = 20 * kChunkBytes});
  Until([&] { return Pool().error == ENOMEM; });
  EXPECT_EQ(Pool().bytes, 18 * kChunkBytes);
  gpu_.hosts_left = 10;
  Until([&] { return Pool().bytes == 20 * kChunkBytes && Pool().error == 0; });
  Tell({.type = MoverType::kPool, .bytes = 3 * kChunkBytes, .other = 20 * kChunkBytes});
  Until([&] { return Pool().bytes == 3 * kChunkBytes; });
  EXPECT_EQ(gpu_.hosts, 3);
}

TEST_F(MoverTest, PreparesSlotsWhileNothingElseIsToBeDone) {
  Tell({.type = MoverType::kPool, .bytes = 16 * kChunkBytes, .other = 32 * kChunkBytes});
  Move(MoverType::kEvict, 2);
  EXPECT_EQ(Hear().type, LineType::kEvict);
  Tell({.type = MoverType::kPrepare, .bytes = 20 * kChunkBytes});
  EXPECT_TRUE(HearsNothing());
  EXPECT_EQ(gpu_.hosts, 16) << "a program is to answer";
  gpu_.copies_end = false;
  Say(LineType::kOffer, {1, 2});
  Until([&] { return gpu_.copies == 1; });
  EXPECT_TRUE(HearsNothing());
  EXPECT_EQ(gpu_.hosts, 16) << "a copy is under way";
  gpu_.copies_end = true;
  EXPECT_EQ(Hear().type, LineType::kStored);
  Say(LineType::kFreed, {1, 2});
  EXPECT_EQ(End(MoverType::kEvicted).error, 0);
  Until([&] { return Pool().bytes == 20 * kChunkBytes; });
  // Given back, but for what is in use.
  Tell({.type = MoverType::kPrepare, .bytes = kChunkBytes});
  Until([&] { return Pool().bytes == 2 * kChunkBytes; });
  EXPECT_EQ(Pool().other, 2 * kChunkBytes);
}

TEST_F(MoverTest, TellsWhatTheMachineHasForThePool) {
  EXPECT_EQ(told_[MoverType::kMachineIs].bytes, UINT64_MAX / kChunkBytes * kChunkBytes);
  machine_free_ = 5 * kChunkBytes + 77;
  Until([&] { return told_[MoverType::kMachineIs].bytes == 21 * kChunkBytes; });
}

// Who dies next must not take with it what was put there.
TEST_F(MoverTest, NothingIsPutIntoASlotBeforeItIsKept) {
  keeps_ = false;
  told_.erase(MoverType::kSlotMade);
  Tell({.type = MoverType::kPool, .bytes = 17 * kChunkBytes, .other = 17 * kChunkBytes});
  StoreChunks(16);
  Until([&] { return told_.contains(MoverType::kSlotMade); });
  Move(MoverType::kEvict, 1);
  EXPECT_TRUE(HearsNothing());
  Tell({.type = MoverType::kSlotKept, .bytes = told_[MoverType::kSlotMade].bytes + 1});  // no such slot
  EXPECT_TRUE(HearsNothing());
  Tell({.type = MoverType::kSlotKept, .bytes = told_[MoverType::kSlotMade].bytes});
  EXPECT_EQ(Hear().type, LineType::kEvict);
  ExpectInUse(16);
}

}  // namespace
}  // namespace tessera::mover
