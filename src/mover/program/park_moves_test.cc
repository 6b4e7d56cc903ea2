// Programs that are parked, and come back. With real memory: mover_park_test.cc.
#include <set>

#include "mover/testing/conversation.h"
#include "wire/swap_table.h"

namespace tessera::mover {
namespace {

using Marks = wire::SwapEntry;

// The daemon, the program and the disk are the test.
class ParkMovesTest : public Conversation {
 protected:
  explicit ParkMovesTest(std::optional<SwapFile> file = {}) : Conversation(std::move(file)) {}

  void Park() { Tell({.type = MoverType::kPark, .program = 1}); }
  // Chunks 1 to `count` are parked; the keys that they have.
  std::map<std::uint64_t, std::uint64_t> ParkChunks(std::uint64_t count) {
    StoreChunks(count);
    Park();
    std::map<std::uint64_t, std::uint64_t> keys;
    while (keys.size() < count) {
      const LineMessage filed = Hear();
      EXPECT_EQ(filed.type, LineType::kFiled);
      for (std::uint32_t n = 0; n < filed.count; ++n) keys[filed.chunk[n]] = filed.key[n];
      Say(LineType::kReleased, {filed.chunk, filed.chunk + filed.count});
    }
    SayHeld(0);
    const MoverMessage end = End(MoverType::kParked);
    EXPECT_EQ(end.error, 0);
    EXPECT_EQ(end.bytes, 0u);
    return keys;
  }
  // The program's answer to the last question.
  void SayHeld(std::uint32_t chunks) {
    EXPECT_EQ(Hear().type, LineType::kPark);
    const LineMessage message = {.type = LineType::kParked, .room = chunks};
    EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(message)));
  }
  void SayAway(std::uint64_t chunk, std::uint64_t key) {
    const LineMessage message = {.type = LineType::kAdoptFiled, .count = 1, .chunk = {chunk}, .key = {key}};
    EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(message)));
  }
  // The program gets another line to the same mover, and is 2 there.
  void NewLine() {
    auto [line, far] = Pair();
    line_ = std::move(line);
    Tell({.type = MoverType::kGone, .program = 1});
    Tell({.type = MoverType::kProgram, .program = 2, .bytes = static_cast<std::uint64_t>(process_), .other = 7},
         far.Get());
  }
  static std::set<std::uint64_t> ChunksIn(const LineMessage& message) {
    return {message.chunk, message.chunk + message.count};
  }
};

TEST_F(ParkMovesTest, WhatIsParkedStaysInItsSlotAndComesToTheGpuFromThere) {
  ParkChunks(11);
  ExpectInUse(11);
  EXPECT_TRUE(HearsNothing());
  Move(MoverType::kLoad, 2);
  EXPECT_EQ(Hear().type, LineType::kLoad);
  Say(LineType::kWant, {4, 11});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {4, 11});
  EXPECT_EQ(End(MoverType::kLoaded).error, 0);
  ExpectInUse(9);
}

TEST_F(ParkMovesTest, WhatDoesNotComeIsStillParked) {
  ParkChunks(2);
  Move(MoverType::kLoad, 2);
  Hear();
  Say(LineType::kWant, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {1, 2}, /*error=*/1);
  EXPECT_EQ(End(MoverType::kLoaded).error, EIO);
  Park();
  SayHeld(0);
  EXPECT_EQ(End(MoverType::kParked).error, 0);
}

// ---- lent ----

// Of another mover: chunks 1 and 2, under these keys.
class LentTest : public ParkMovesTest {
 protected:
  int Take(std::uint64_t chunk) {
    Tell({.type = MoverType::kSlotFor,
          .program = static_cast<std::uint64_t>(process_),
          .bytes = 1000 + chunk,
          .other = 100 + chunk,
          .domain = 7},
         Memory(0).Get());
    return End(MoverType::kSlotTaken).error;
  }
  void TakeBoth() {
    for (const std::uint64_t chunk : {1, 2}) {
      EXPECT_EQ(Take(chunk), 0);
      SayAway(chunk, 100 + chunk);
    }
    ExpectInUse(2);
    Until([&] { return gpu_.freed == 2; });  // of its own 16, for which there is no more room
    EXPECT_EQ(gpu_.hosts, 14 + 1) << "the first one shows that the driver takes them";
  }
  void Load() {
    Move(MoverType::kLoad, 2);
    EXPECT_EQ(Hear().type, LineType::kLoad);
    Say(LineType::kWant, {1, 2});
  }
};

TEST_F(LentTest, ItsMemoryIsMappedWhenItIsNeeded) {
  TakeBoth();
  Load();
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  EXPECT_EQ(gpu_.hosts, 14 + 2);
  Say(LineType::kTaken, {1, 2});
  EXPECT_EQ(End(MoverType::kLoaded).error, 0);
  Until([&] { return gpu_.freed == 2 + 2; });
}

TEST_F(LentTest, WhatCannotBeMappedStays) {
  TakeBoth();
  gpu_.reach_error = ENOMEM;
  Load();
  EXPECT_EQ(Hear().type, LineType::kStay);
  EXPECT_EQ(End(MoverType::kLoaded).error, ENOMEM);
  EXPECT_EQ(gpu_.hosts, 14 + 1);
  gpu_.reach_error = 0;
  Load();
  EXPECT_EQ(Hear().type, LineType::kLoaded);
}

TEST_F(LentTest, WhatTheDriverDoesNotTakeIsRefusedAtOnce) {
  gpu_.reach_error = EINVAL;
  EXPECT_EQ(Take(1), EINVAL);
}

TEST_F(LentTest, WhatWasNeverMappedIsFreedLikeTheRest) {
  TakeBoth();
  Tell({.type = MoverType::kGone, .program = 1});
  EndProcess();
  ExpectInUse(0);
  Until([&] { return gpu_.freed == 2 + 1 && gpu_.hosts == 16; });
}

// ---- away from the start ----

// As a program does that was restored on another GPU than it knows.
TEST_F(ParkMovesTest, AProgramThatRefusesHostMemoryNeverGetsAnyAgain) {
  Move(MoverType::kEvict, 2);
  Hear();
  Say(LineType::kOffer, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kStored);
  Say(LineType::kFreed, {}, /*error=*/101);
  EXPECT_EQ(Hear().type, LineType::kEvict) << "once more";
  EXPECT_EQ(End(MoverType::kNoHostMemory).program, 1u) << "before anything of it is out";
  Say(LineType::kOffer, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kStoredAway);
  Say(LineType::kFreed, {1, 2});
  EXPECT_EQ(End(MoverType::kEvicted).error, 0);
  ExpectInUse(2);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(End(MoverType::kSettled).error, EOPNOTSUPP);
  Move(MoverType::kLoad, 2);
  EXPECT_EQ(Hear().type, LineType::kLoad);
  Say(LineType::kWant, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {1, 2});
  EXPECT_EQ(End(MoverType::kLoaded).error, 0);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(Hear().type, LineType::kSettle) << "nothing is out";
}

TEST_F(ParkMovesTest, WhatIsRefusedStaysParkedAndComesToTheGpu) {
  ParkChunks(2);
  Tell({.type = MoverType::kSettle, .program = 1});
  Hear();
  Say(LineType::kHeld, {}, /*error=*/101);
  EXPECT_EQ(End(MoverType::kSettled).error, EOPNOTSUPP);
  EXPECT_EQ(End(MoverType::kNoHostMemory).program, 1u);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(End(MoverType::kSettled).error, EOPNOTSUPP) << "it is not asked again";
  Move(MoverType::kLoad, 2);
  EXPECT_EQ(Hear().type, LineType::kLoad);
}

TEST_F(ParkMovesTest, AProgramShortOfMemoryIsNoneThatRefuses) {
  Move(MoverType::kEvict, 1);
  Hear();
  Say(LineType::kOffer, {1});
  EXPECT_EQ(Hear().type, LineType::kStored);
  Say(LineType::kFreed, {}, /*error=*/2);
  EXPECT_EQ(End(MoverType::kEvicted).error, ENOMEM);
  StoreChunks(1);
}

TEST_F(ParkMovesTest, ComesBackBeforeItIsSettled) {
  ParkChunks(2);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(ChunksIn(Hear()), (std::set<std::uint64_t>{1, 2}));
  EXPECT_TRUE(HearsNothing());
  Say(LineType::kHeld, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kSettle);
  Say(LineType::kSettled, {});
  EXPECT_EQ(End(MoverType::kSettled).error, 0);
}

TEST_F(ParkMovesTest, WhatCannotComeBackStaysParked) {
  ParkChunks(2);
  Tell({.type = MoverType::kSettle, .program = 1});
  Hear();
  Say(LineType::kHeld, {2});
  EXPECT_EQ(End(MoverType::kSettled).error, EIO);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(ChunksIn(Hear()), std::set<std::uint64_t>{1});
  Say(LineType::kHeld, {1});
  EXPECT_EQ(Hear().type, LineType::kSettle);
}

TEST_F(ParkMovesTest, ItIsBusyWithWhatItDoesNotGiveUp) {
  StoreChunks(3);
  Park();
  EXPECT_EQ(Hear().count, 3u);
  Say(LineType::kReleased, {2});
  SayHeld(3);  // one of another mover as well
  const MoverMessage end = End(MoverType::kParked);
  EXPECT_EQ(end.error, EBUSY);
  EXPECT_EQ(end.bytes, 3 * kChunkBytes);
  Park();
  EXPECT_EQ(ChunksIn(Hear()), (std::set<std::uint64_t>{1, 3})) << "what is parked already is not named";
  Say(LineType::kReleased, {1, 3});
  SayHeld(0);
  EXPECT_EQ(End(MoverType::kParked).error, 0);
}

TEST_F(ParkMovesTest, AProgramWithNothingOutIsAskedOnly) {
  Park();
  SayHeld(0);
  EXPECT_EQ(End(MoverType::kParked).error, 0);
}

TEST_F(ParkMovesTest, AMoveUnderWayEndsBefore) {
  gpu_.copies_end = false;
  Move(MoverType::kEvict, 2);
  Hear();
  Say(LineType::kOffer, {1, 2});
  Until([&] { return gpu_.copies == 1; });
  Park();
  EXPECT_TRUE(HearsNothing());
  gpu_.copies_end = true;
  EXPECT_EQ(Hear().type, LineType::kStored);
  EXPECT_TRUE(HearsNothing());
  Say(LineType::kFreed, {1, 2});
  EXPECT_EQ(ChunksIn(Hear()), (std::set<std::uint64_t>{1, 2}));
  EXPECT_EQ(End(MoverType::kEvicted).error, 0);
}

TEST_F(ParkMovesTest, WhatIsParkedCannotGoOutAgain) {
  ParkChunks(1);
  Move(MoverType::kEvict, 1);
  EXPECT_EQ(Hear().type, LineType::kEvict);
  Say(LineType::kOffer, {1});
  EXPECT_EQ(End(MoverType::kEvicted).error, EPIPE) << "it has that out already";
}

TEST_F(ParkMovesTest, SlotOfAChunkThatIsDroppedIsFreeAtOnce) {
  ParkChunks(2);
  Say(LineType::kDropped, {1});
  ExpectInUse(1);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(ChunksIn(Hear()), std::set<std::uint64_t>{2});
  Say(LineType::kDropped, {2});  // while it is to come back
  Say(LineType::kHeld, {});
  EXPECT_EQ(Hear().type, LineType::kSettle);
  ExpectInUse(0);
}

TEST_F(ParkMovesTest, ChunkDroppedWhileItIsToBeParked) {
  StoreChunks(2);
  Park();
  Hear();
  Say(LineType::kDropped, {1});
  Say(LineType::kReleased, {2});
  SayHeld(0);
  EXPECT_EQ(End(MoverType::kParked).error, 0);
  ExpectInUse(1);
}

TEST_F(ParkMovesTest, SlotsOfAProgramThatEndsAreFree) {
  ParkChunks(2);
  line_.Reset();
  EndProcess();
  Tell({.type = MoverType::kGone, .program = 1});
  ExpectInUse(0);
  EXPECT_EQ(gpu_.freed, 0) << "they can be used again";
}

TEST_F(ParkMovesTest, ALineThatEndsMeanwhileEndsIt) {
  StoreChunks(1);
  Park();
  Hear();
  line_.Reset();
  EXPECT_EQ(End(MoverType::kParked).error, EPIPE);
  Park();
  EXPECT_EQ(End(MoverType::kParked).error, EPIPE);
}

TEST_F(ParkMovesTest, TheNextLineClaimsWhatIsParked) {
  const auto keys = ParkChunks(3);
  NewLine();
  SayAway(1, keys.at(1));
  SayAway(2, keys.at(2) + 1);  // a wrong one
  Say(LineType::kAdopt, {});
  Until([&] { return Pool().other == kChunkBytes; });  // the others are no chunk's any more
  Tell({.type = MoverType::kSettle, .program = 2});
  EXPECT_EQ(ChunksIn(Hear()), std::set<std::uint64_t>{1});
  EXPECT_EQ(End(MoverType::kSettled).error, ESTALE) << "the one with the wrong key is lost";
}

// It has heard nothing of that, and holds them.
TEST_F(ParkMovesTest, TheNextLineClaimsWhatWasToBeParked) {
  StoreChunks(1);
  Park();
  const LineMessage filed = Hear();
  NewLine();
  const LineMessage adopt = {.type = LineType::kAdopt, .count = 1, .chunk = {1}, .key = {filed.key[0]}};
  EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(adopt)));
  EXPECT_EQ(Hear().key[0], filed.key[0]);
  ExpectInUse(1);
}

// ---- with a file ----

// Four slots, and a disk that takes its time. Another program needs more than there are.
class ParkMovesFileTest : public ParkMovesTest {
 protected:
  ParkMovesFileTest() : ParkMovesTest(*SwapFile::Open(Memory(8 * kChunkBytes), Memory(8 * sizeof(Marks)))) {
    Tell({.type = MoverType::kPool, .bytes = 4 * kChunkBytes, .other = 4 * kChunkBytes});
    Until([&] { return Pool().bytes == 4 * kChunkBytes; });
    auto [line, far] = Pair();
    other_line_ = std::move(line);
    Tell({.type = MoverType::kProgram, .program = 2, .other = 7}, far.Get());
  }
  ~ParkMovesFileTest() override { gpu_.LetDiskGoOn(); }
  void EvictOther(std::uint64_t chunks) {
    Tell({.type = MoverType::kEvict, .program = 2, .bytes = chunks * kChunkBytes});
  }
  UniqueFd other_line_;
};

TEST_F(ParkMovesFileTest, WhatIsInTheFileStaysThere) {
  StoreChunks(3);
  EvictOther(1);
  const LineMessage filed = Hear();
  EXPECT_EQ(ChunksIn(filed), std::set<std::uint64_t>{1});
  Say(LineType::kReleased, {1});
  Park();
  EXPECT_EQ(ChunksIn(Hear()), (std::set<std::uint64_t>{2, 3}));
  Say(LineType::kReleased, {2, 3});
  SayHeld(0);
  const MoverMessage end = End(MoverType::kParked);
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(end.other, kChunkBytes);
  Tell({.type = MoverType::kSettle, .program = 1});
  std::set<std::uint64_t> read;
  while (read.size() < 3) {
    const LineMessage message = Hear();
    ASSERT_EQ(message.type, LineType::kRead);
    for (const std::uint64_t chunk : ChunksIn(message)) read.insert(chunk);
    Say(LineType::kHeld, {message.chunk, message.chunk + message.count});
  }
  EXPECT_EQ(Hear().type, LineType::kSettle);
}

TEST_F(ParkMovesFileTest, WhatTheDiskWritesIsParkedInItsSlot) {
  StoreChunks(2);
  gpu_.disk_waits = true;
  EvictOther(2);
  Until([&] { return gpu_.disk_moves == 1; });
  Park();
  EXPECT_TRUE(HearsNothing());
  gpu_.LetDiskGoOn();
  EXPECT_EQ(ChunksIn(Hear()), (std::set<std::uint64_t>{1, 2}));
  Say(LineType::kReleased, {1, 2});
  SayHeld(0);
  EXPECT_EQ(End(MoverType::kParked).other, 0u);
}

TEST_F(ParkMovesFileTest, WhatIsParkedDoesNotGoToTheFile) {
  ParkChunks(3);
  Move(MoverType::kEvict, 0);
  EvictOther(2);
  EXPECT_TRUE(HearsNothing());
  EXPECT_EQ(gpu_.disk_moves, 0);
}

}  // namespace
}  // namespace tessera::mover
