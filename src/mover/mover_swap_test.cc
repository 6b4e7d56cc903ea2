// The conversation where there is a swap file, with a disk that takes its time. With real memory: mover_file_test.cc.
#include "mover/testing/conversation.h"

namespace tessera::mover {
namespace {

// Four slots, of which the last is for what comes back. Another program needs more than there are.
class MoverSwapTest : public Conversation {
 protected:
  explicit MoverSwapTest(Nanos patience = kPatience, UniqueFd table = Memory(8 * wire::kTableEntryBytes))
      : Conversation(*SwapFile::Open(Memory(8 * kChunkBytes), UniqueFd(dup(table.Get()))), patience),
        table_(*KeyTable::Open(std::move(table))) {
    Tell({.type = MoverType::kPool, .bytes = 4 * kChunkBytes, .other = 4 * kChunkBytes});
    Until([&] { return Pool().bytes == 4 * kChunkBytes; });
    auto [line, far] = Pair();
    other_line_ = std::move(line);
    Tell({.type = MoverType::kProgram, .program = 2, .other = 7}, far.Get());
  }
  ~MoverSwapTest() override { gpu_.LetDiskGoOn(); }
  void EvictOther(std::uint64_t chunks) {
    Tell({.type = MoverType::kEvict, .program = 2, .bytes = chunks * kChunkBytes});
  }
  // The disk is at the oldest of two chunks.
  void FileSome() {
    StoreChunks(2);
    gpu_.disk_waits = true;
    EvictOther(2);
    Until([&] { return gpu_.disk_moves == 1; });
  }

  // Places of the file that are in use.
  int Places() const {
    int places = 0;
    for (Place place = 0; place < table_.size(); ++place) places += table_[place].key != 0 ? 1 : 0;
    return places;
  }

  UniqueFd other_line_;
  const KeyTable table_;  // of the file
};

TEST_F(MoverSwapTest, LoadsNothingWhileTheDiskWrites) {
  FileSome();
  Move(MoverType::kLoad, 2);
  EXPECT_TRUE(HearsNothing());
  gpu_.LetDiskGoOn();
  const LineMessage load = Hear();
  EXPECT_EQ(load.type, LineType::kLoad);
  EXPECT_EQ(load.count, 2u);
  Say(LineType::kWant, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {1, 2});
  EXPECT_EQ(End(MoverType::kLoaded).error, 0);
  ExpectInUse(0);
}

TEST_F(MoverSwapTest, FilesNothingWhileItLoads) {
  StoreChunks(2);
  Move(MoverType::kLoad, 1);
  EXPECT_EQ(Hear().type, LineType::kLoad);
  Move(MoverType::kEvict, 0);
  EvictOther(2);
  EXPECT_TRUE(HearsNothing());
  EXPECT_EQ(gpu_.disk_moves, 0);
  Say(LineType::kWant, {1});
  EXPECT_EQ(Hear().type, LineType::kLoaded);
  Say(LineType::kTaken, {1});
  EXPECT_EQ(End(MoverType::kLoaded).error, 0);
}

TEST_F(MoverSwapTest, ChunkDroppedWhileTheDiskWrites) {
  FileSome();
  Say(LineType::kDropped, {1});
  ExpectInUse(2);
  gpu_.LetDiskGoOn();
  ExpectInUse(1);
}

TEST_F(MoverSwapTest, APlaceIsInUseFromTheFirstWriteUntilTheProgramHasTheChunkAgain) {
  StoreChunks(3);
  gpu_.disk_waits = true;
  EvictOther(1);
  Until([&] { return gpu_.disk_moves == 1; });
  EXPECT_EQ(Places(), 1);
  gpu_.LetDiskGoOn();
  EXPECT_EQ(Hear().type, LineType::kFiled);
  Say(LineType::kReleased, {1});
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(Hear().type, LineType::kRead);
  EXPECT_EQ(Places(), 1) << "the program has it nowhere else";
  Say(LineType::kHeld, {1});
  EXPECT_EQ(Hear().type, LineType::kSettle);
  EXPECT_EQ(Places(), 0);
}

// Or nothing could come back from the file for as long as the program runs.
TEST_F(MoverSwapTest, ASettledChunkDoesNotTakeTheLastSlot) {
  StoreChunks(2);
  Move(MoverType::kEvict, 2);
  std::uint64_t next = 3;
  Until([&] {
    LineMessage message;
    while (recv(line_.Get(), &message, sizeof message, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof message)) {
      if (message.type == LineType::kEvict) Say(LineType::kOffer, {next++});
      if (message.type == LineType::kStored) Say(LineType::kFreed, {message.chunk[0]});
      if (message.type == LineType::kFiled) Say(LineType::kReleased, {message.chunk[0]});
    }
    return told_.contains(MoverType::kEvicted);
  });
  EXPECT_EQ(Places(), 1) << "three of the four are in slots";
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(End(MoverType::kSettled).error, ENOMEM);
}

// Stopped by a debugger, say.
class MoverSwapSilent : public MoverSwapTest {
 protected:
  MoverSwapSilent() : MoverSwapTest(2 * kSecond) {}
};

TEST_F(MoverSwapSilent, OthersDoNotWaitForWhatItKeeps) {
  StoreChunks(3);
  EvictOther(2);
  EXPECT_EQ(Hear().type, LineType::kFiled);
  EXPECT_EQ(Hear().type, LineType::kFiled);
  EXPECT_EQ(End(MoverType::kEvicted).error, ENOMEM);
  Say(LineType::kReleased, {1});
  Say(LineType::kReleased, {2});
  EvictOther(1);
  LineMessage ask;
  Until([&] { return recv(other_line_.Get(), &ask, sizeof ask, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof ask); });
  EXPECT_EQ(ask.type, LineType::kEvict) << "a late answer is as good as any";
}

TEST_F(MoverSwapSilent, ItsLineEnds) {
  Move(MoverType::kEvict, 1);
  EXPECT_EQ(Hear().type, LineType::kEvict);
  EXPECT_EQ(End(MoverType::kEvicted).error, EPIPE);
}

}  // namespace
}  // namespace tessera::mover
