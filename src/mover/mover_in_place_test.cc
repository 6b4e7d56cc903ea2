// Memory that a program leaves in place, and that goes on to host memory. With real memory: mover_park_test.cc.
#include "mover/testing/conversation.h"

namespace tessera::mover {
namespace {

class LeavesInPlace : public Conversation {
 protected:
  LineMessage Leave() {
    Tell({.type = MoverType::kEvict, .program = 1, .bytes = 2 * kChunkBytes, .other = wire::kEvictInPlace});
    Hear();
    Say(LineType::kOffer, {1, 2});
    const LineMessage stored = Hear();
    EXPECT_EQ(stored.type, LineType::kStoredAway);
    EXPECT_TRUE(stored.key[0] != 0 && stored.key[1] != 0 && stored.key[0] != stored.key[1]);
    Say(LineType::kFreed, {1, 2});
    EXPECT_EQ(End(MoverType::kEvicted).error, 0);
    Tell({.type = MoverType::kPark, .program = 1});
    EXPECT_EQ(Hear().type, LineType::kPark);
    const LineMessage none = {.type = LineType::kParked};
    EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(none)));
    EXPECT_EQ(End(MoverType::kParked).error, 0);
    return stored;
  }
  void Relocate() { Tell({.type = MoverType::kRelocate, .program = 1}); }
  // Copies are under way until the test lets them end.
  void BeginToRelocate() {
    Leave();
    gpu_.copies_end = false;
    Relocate();
    Until([&] { return gpu_.copies > 0; });
  }
};

TEST_F(LeavesInPlace, AndNothingOfItIsCopied) {
  Leave();
  EXPECT_EQ(gpu_.copies, 0);
  ExpectInUse(0);
  Tell({.type = MoverType::kSettle, .program = 1});
  EXPECT_EQ(End(MoverType::kSettled).error, EOPNOTSUPP) << "it cannot hold that";
}

TEST_F(LeavesInPlace, AndItGoesOnToHostMemoryUnderTheSameKeys) {
  const LineMessage stored = Leave();
  told_.erase(MoverType::kSlotGone);
  Relocate();
  ExpectInUse(2);
  Until([&] { return told_.contains(MoverType::kSlotGone); });
  EXPECT_EQ(gpu_.windows, 0);
  Tell({.type = MoverType::kSettle, .program = 1});
  const LineMessage read = Hear();
  EXPECT_EQ(read.type, LineType::kRead);
  EXPECT_EQ(read.key[0], stored.key[0]);
  EXPECT_EQ(read.key[1], stored.key[1]);
  Say(LineType::kHeld, {1, 2});
  EXPECT_EQ(Hear().type, LineType::kSettle);
}

TEST_F(LeavesInPlace, WhatIsOnItsWayIsLentAndComesBackWhenItIsThere) {
  BeginToRelocate();
  Tell({.type = MoverType::kLend, .bytes = static_cast<std::uint64_t>(process_)});
  Move(MoverType::kLoad, 2);
  EXPECT_TRUE(HearsNothing());
  EXPECT_FALSE(told_.contains(MoverType::kLent));
  gpu_.copies_end = true;
  EXPECT_EQ(End(MoverType::kLent).other, 2u);
  EXPECT_EQ(Hear().type, LineType::kLoad);
}

TEST_F(LeavesInPlace, WhatIsDroppedOnItsWayLeavesNothing) {
  BeginToRelocate();
  Say(LineType::kDropped, {1});
  EXPECT_TRUE(HearsNothing());
  gpu_.copies_end = true;
  ExpectInUse(1);
}

TEST_F(LeavesInPlace, AProgramThatEndsOnItsWayLeavesNothing) {
  BeginToRelocate();
  Tell({.type = MoverType::kGone, .program = 1});
  EndProcess();
  gpu_.copies_end = true;
  Until([&] { return gpu_.windows == 0; });
  ExpectInUse(0);
}

TEST_F(LeavesInPlace, WhatCannotBeReachedStays) {
  Leave();
  gpu_.import_error = EINVAL;
  Relocate();
  EXPECT_TRUE(HearsNothing());
  ExpectInUse(0);
  gpu_.import_error = 0;
  Tell({.type = MoverType::kLend, .bytes = static_cast<std::uint64_t>(process_)});
  EXPECT_EQ(End(MoverType::kLent).other, 2u) << "nothing is on its way";
}

TEST_F(LeavesInPlace, NotWhatTheDaemonCannotKeep) {
  keeps_ = false;
  Tell({.type = MoverType::kEvict, .program = 1, .bytes = 2 * kChunkBytes, .other = wire::kEvictInPlace});
  Hear();
  Say(LineType::kOffer, {1, 2});
  const std::uint64_t second = End(MoverType::kSlotLeft).bytes;
  EXPECT_TRUE(HearsNothing());
  Tell({.type = MoverType::kSlotKept, .error = EMFILE, .bytes = second});
  const LineMessage keep = Hear();
  EXPECT_TRUE(keep.type == LineType::kKeep && keep.count == 1 && keep.chunk[0] == 2);
}

}  // namespace
}  // namespace tessera::mover
