// Parked programs whose memory goes to a file of their own. With real memory: mover_save_test.cc.
#include <fcntl.h>
#include <sys/stat.h>

#include <map>

#include "mover/suspended/suspended_file.h"
#include "mover/testing/conversation.h"

namespace tessera::mover {
namespace {

// The daemon and the program are the test.
class SaveMovesTest : public Conversation {
 protected:
  void Named() {
    Say(LineType::kAdopt, {});
    EXPECT_TRUE(HearsNothing());
  }
  // Chunks 1 to `count` are parked; notes the keys that they have.
  void ParkChunks(std::uint64_t count) {
    Named();
    StoreChunks(count);
    Tell({.type = MoverType::kPark, .program = 1});
    while (keys_.size() < count) {
      const LineMessage filed = Hear();
      EXPECT_EQ(filed.type, LineType::kFiled);
      for (std::uint32_t n = 0; n < filed.count; ++n) keys_[filed.chunk[n]] = filed.key[n];
      Say(LineType::kReleased, {filed.chunk, filed.chunk + filed.count});
    }
    EXPECT_EQ(Hear().type, LineType::kPark);
    Say(LineType::kParked, {});
    EXPECT_EQ(End(MoverType::kParked).error, 0);
  }
  void Save(int fd) { Tell({.type = MoverType::kSave, .program = program_, .bytes = 77}, fd); }
  int Saved() {
    Save(file_.Get());
    return End(MoverType::kSaved).error;
  }
  int Unsaved() {
    Tell({.type = MoverType::kUnsave, .program = program_});
    return End(MoverType::kUnsaved).error;
  }
  // The program gets another line, and says that this is away.
  void NewLine(const std::map<std::uint64_t, std::uint64_t>& away, bool with_file) {
    auto [line, far] = Pair();
    line_ = std::move(line);
    Tell({.type = MoverType::kGone, .program = program_++});
    if (with_file) Tell({.type = MoverType::kFileOf, .program = program_}, file_.Get());
    Tell({.type = MoverType::kProgram, .program = program_, .bytes = static_cast<std::uint64_t>(process_), .other = 7},
         far.Get());
    for (const auto& [chunk, key] : away) {
      const LineMessage message = {.type = LineType::kAdoptFiled, .count = 1, .chunk = {chunk}, .key = {key}};
      EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(message)));
    }
  }
  // All of it comes back to the program, under the keys that it knows.
  void ExpectBack(std::uint64_t count) {
    Tell({.type = MoverType::kSettle, .program = program_});
    std::map<std::uint64_t, std::uint64_t> keys;
    while (keys.size() < count) {
      const LineMessage read = Hear();
      ASSERT_EQ(read.type, LineType::kRead);
      for (std::uint32_t n = 0; n < read.count; ++n) keys[read.chunk[n]] = read.key[n];
      Say(LineType::kHeld, {read.chunk, read.chunk + read.count});
    }
    for (const auto& [chunk, key] : keys) EXPECT_EQ(key, keys_.at(chunk));
    EXPECT_EQ(Hear().type, LineType::kSettle);
    Say(LineType::kSettled, {});
    EXPECT_EQ(End(MoverType::kSettled).error, 0);
  }
  std::size_t Size() const {
    struct stat status{};
    EXPECT_EQ(fstat(file_.Get(), &status), 0);
    return static_cast<std::size_t>(status.st_size);
  }

  UniqueFd file_{memfd_create("suspended", MFD_CLOEXEC)};
  std::map<std::uint64_t, std::uint64_t> keys_;
  std::uint64_t program_ = 1;
};

TEST_F(SaveMovesTest, SlotsAreFreeWhileItIsInTheFile) {
  ParkChunks(11);
  ExpectInUse(11);
  EXPECT_EQ(Saved(), 0);
  ExpectInUse(0);
  const auto file = SuspendedFile::Open(UniqueFd(dup(file_.Get())));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->Table().size(), 11u);
  EXPECT_EQ(file->Header().start, 77u);
  EXPECT_EQ(file->Header().pid, static_cast<std::uint32_t>(process_));
  EXPECT_TRUE(HearsNothing()) << "the program has no part in it";
  EXPECT_EQ(Saved(), 0) << "it is there already";
  EXPECT_EQ(Unsaved(), 0);
  ExpectInUse(11);
  EXPECT_EQ(Size(), 0u);
  EXPECT_TRUE(HearsNothing());
  ExpectBack(11);
}

TEST_F(SaveMovesTest, ComesBackFromTheFileWhenItIsSettled) {
  ParkChunks(3);
  EXPECT_EQ(Saved(), 0);
  ExpectBack(3);
  EXPECT_EQ(Size(), 0u);
}

TEST_F(SaveMovesTest, SaysHowMuchIsLeft) {
  ParkChunks(2);
  EXPECT_EQ(Saved(), 0);
  EXPECT_EQ(End(MoverType::kSaveLeft).bytes, kChunkBytes) << "before the last one";
  EXPECT_EQ(Unsaved(), 0);
  EXPECT_EQ(End(MoverType::kSaveLeft).bytes, kChunkBytes);
}

TEST_F(SaveMovesTest, AFileThatCannotBeWrittenLeavesAllInItsSlots) {
  ParkChunks(3);
  const UniqueFd read_only(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Save(read_only.Get());
  EXPECT_NE(End(MoverType::kSaved).error, 0);
  ExpectInUse(3);
  EXPECT_EQ(Saved(), 0) << "another file";
  ExpectInUse(0);
  EXPECT_EQ(Unsaved(), 0);
  ExpectBack(3);
}

TEST_F(SaveMovesTest, AProgramWithNothingOutHasAnEmptyFile) {
  Named();
  EXPECT_EQ(Saved(), 0);
  EXPECT_EQ(Unsaved(), 0);
  EXPECT_EQ(Unsaved(), 0) << "without a file";
}

TEST_F(SaveMovesTest, NothingComesBackWithoutHostMemory) {
  ParkChunks(3);
  EXPECT_EQ(Saved(), 0);
  Tell({.type = MoverType::kPool, .bytes = 2 * kChunkBytes, .other = 2 * kChunkBytes});
  Until([&] { return Pool().bytes == 2 * kChunkBytes; });
  EXPECT_EQ(Unsaved(), ENOMEM);
  ExpectInUse(0);
  Tell({.type = MoverType::kPool, .bytes = 3 * kChunkBytes, .other = 3 * kChunkBytes});
  EXPECT_EQ(Unsaved(), 0);
  ExpectBack(3);
}

TEST_F(SaveMovesTest, AnotherLineFindsTheFile) {
  ParkChunks(3);
  EXPECT_EQ(Saved(), 0);
  NewLine(keys_, true);
  Tell({.type = MoverType::kUnsave, .program = program_});
  EXPECT_TRUE(HearsNothing());
  EXPECT_FALSE(told_.contains(MoverType::kUnsaved)) << "the program has not named all that it has";
  Named();
  EXPECT_EQ(End(MoverType::kUnsaved).error, 0);
  ExpectInUse(3);
  ExpectBack(3);
}

TEST_F(SaveMovesTest, WithoutTheFileItIsLost) {
  ParkChunks(1);
  EXPECT_EQ(Saved(), 0);
  NewLine(keys_, false);
  Named();
  Tell({.type = MoverType::kSettle, .program = program_});
  EXPECT_EQ(End(MoverType::kSettled).error, ESTALE);
}

TEST_F(SaveMovesTest, AKeyThatIsNotInTheFileFindsNothing) {
  ParkChunks(2);
  EXPECT_EQ(Saved(), 0);
  NewLine({{1, keys_.at(1)}, {2, keys_.at(2) + 1}}, true);
  Named();
  EXPECT_EQ(Unsaved(), 0);
  ExpectInUse(1);
}

TEST_F(SaveMovesTest, ALineThatEndsWhileTheDiskWritesLosesNothing) {
  ParkChunks(3);
  gpu_.disk_waits = true;
  Save(file_.Get());
  Until([&] { return gpu_.disk_moves == 1; });
  line_.Reset();
  EXPECT_EQ(End(MoverType::kSaved).error, EPIPE);
  NewLine(keys_, true);
  Named();
  Say(LineType::kDropped, {1});  // the disk may read its slot still
  EXPECT_TRUE(HearsNothing());
  ExpectInUse(3);
  gpu_.LetDiskGoOn();
  ExpectInUse(2);
  ExpectBack(2);
}

TEST_F(SaveMovesTest, ALineThatEndsWhileTheDiskReadsLosesNothing) {
  ParkChunks(3);
  EXPECT_EQ(Saved(), 0);
  gpu_.disk_waits = true;
  gpu_.disk_moves = 0;
  Tell({.type = MoverType::kUnsave, .program = program_});
  Until([&] { return gpu_.disk_moves == 1; });
  line_.Reset();
  EXPECT_EQ(End(MoverType::kUnsaved).error, EPIPE);
  gpu_.LetDiskGoOn();
  ExpectInUse(0);
  NewLine(keys_, true);
  Named();
  EXPECT_EQ(Unsaved(), 0);
  ExpectBack(3);
}

TEST_F(SaveMovesTest, ChunksThatAreDroppedLeaveTheirSlots) {
  ParkChunks(3);
  gpu_.disk_waits = true;
  Save(file_.Get());
  Until([&] { return gpu_.disk_moves == 1; });
  Say(LineType::kDropped, {1, 3});
  ExpectInUse(2);  // the disk reads the slot of one of them
  gpu_.LetDiskGoOn();
  EXPECT_EQ(End(MoverType::kSaved).error, 0);
  ExpectInUse(0);
  Say(LineType::kDropped, {2});
  EXPECT_EQ(Unsaved(), 0);
  ExpectInUse(0);
}

TEST_F(SaveMovesTest, AFileThatWasChangedLeavesAllInIt) {
  ParkChunks(2);
  EXPECT_EQ(Saved(), 0);
  ASSERT_EQ(ftruncate(file_.Get(), static_cast<off_t>(Size()) + 1), 0);  // before the next line looks at it
  NewLine(keys_, true);
  Named();
  Tell({.type = MoverType::kSettle, .program = program_});
  EXPECT_EQ(End(MoverType::kSettled).error, ESTALE);
  ASSERT_EQ(ftruncate(file_.Get(), static_cast<off_t>(Size()) - 1), 0);
  NewLine(keys_, true);
  Named();
  EXPECT_EQ(Unsaved(), 0) << "as it was";
  ExpectBack(2);
}

}  // namespace
}  // namespace tessera::mover
