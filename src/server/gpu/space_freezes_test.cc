// Memory of programs in spaces that move: Freezes::MindSpaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/space_gpu.h"

namespace tessera::server {
namespace {

using testing::IsEmpty;

class SpaceFreezesTest : public SpaceGpuTest {
 protected:
  void Move(Member& member, MemoryHold hold) {
    gpu_.Freezes().SetByResidency(member.process, hold, Now());
    gpu_.Freezes().MindSpaces();
  }
  FreezeReason Reasons() { return channels_.Freezer().StatusOf(kServer, 0).reasons; }
};

TEST_F(SpaceFreezesTest, AMemberDrainsAtItsGateAndTheSpaceGoesOn) {
  StartServer();
  Member& one = Running(InSpaceOf(50));
  Member& two = Running(InSpaceOf(50));
  Move(one, MemoryHold::kFrozen);
  EXPECT_FALSE(Open(one));
  EXPECT_TRUE(Open(two));
  EXPECT_THAT(control_->frozen, IsEmpty());
  Move(one, MemoryHold::kNone);
  Drains(one);
  Works(one);
  EXPECT_TRUE(Open(one));
}

TEST_F(SpaceFreezesTest, ASpaceThatStandsStandsUntilTheMemoryHasMoved) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Member& high = Running(high_);
  ASSERT_TRUE(ServerFrozen());
  ASSERT_FALSE(Frozen(one, 20));
  Move(one, MemoryHold::kFrozen);
  EXPECT_EQ(Reasons(), FreezeReason::kPolicy | FreezeReason::kMove);
  EXPECT_TRUE(Frozen(one, 20)) << "its copies, too";
  Rests(high);
  gpu_.Freezes().MindSpaces();
  EXPECT_TRUE(ServerFrozen());
  EXPECT_EQ(Reasons(), FreezeReason::kMove);
  Move(one, MemoryHold::kNone);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(control_->twice);
}

TEST_F(SpaceFreezesTest, AnyMemberThatMovesKeepsTheSpaceStanding) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Member& two = Running(InSpaceOf(50, {.priority = 12}));
  Member& high = Running(high_);
  Move(one, MemoryHold::kFrozen);
  Move(two, MemoryHold::kFrozen);
  Rests(high);
  Move(one, MemoryHold::kNone);
  EXPECT_EQ(Reasons(), FreezeReason::kMove);
  Move(two, MemoryHold::kNone);
  EXPECT_EQ(Reasons(), FreezeReason::kNone);
}

TEST_F(SpaceFreezesTest, WithoutAServerNothingIsDone) {
  Member& one = Running(InSpaceOf(50));
  Move(one, MemoryHold::kFrozen);
  EXPECT_THAT(control_->frozen, IsEmpty());
  Move(one, MemoryHold::kNone);
}

TEST_F(SpaceFreezesTest, AFailureIsTriedAgain) {
  StartServer();
  Member& one = Running(InSpaceOf(50, {.priority = 12}));
  Running(high_);
  control_->fails_for = kServer;
  Move(one, MemoryHold::kFrozen);
  EXPECT_FALSE(Frozen(one, 20));
  control_->fails_for = 0;
  Move(one, MemoryHold::kNone);
  Move(one, MemoryHold::kFrozen);
  EXPECT_TRUE(Frozen(one, 20));
  Move(one, MemoryHold::kNone);
}

}  // namespace
}  // namespace tessera::server
