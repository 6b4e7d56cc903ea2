#include "sched/residency/room_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/planner_test.h"

namespace tessera::sched {
namespace {

using RoomAdmissionTest = PlannerTest;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

TEST_F(RoomAdmissionTest, RoomThatIsFreeIsGrantedWithSomeInAdvance) {
  Add(1, 0);
  const RoomAnswer answer = Allocate(1, 8);
  EXPECT_EQ(answer.kind, Answer::kGrant);
  EXPECT_EQ(answer.credit, kChunk) << "a sixteenth of 32 chunks would be two, but a GiB is enough";
  EXPECT_EQ(world_.state.Room(), 9 * kChunk);
}

TEST_F(RoomAdmissionTest, ARefusalNamesItsReason) {
  Add(1, 30).pinned = 30 * kChunk;
  Add(2, 0);
  Add(3, 0, 6);
  world_.Process(3).pinned = world_.Process(3).room = 5 * kChunk;
  EXPECT_EQ(Allocate(1, 11).reason, Reason::kPinned);
  EXPECT_EQ(Allocate(3, 2).reason, Reason::kPinned);
  EXPECT_EQ(Allocate(2, 6).reason, Reason::kKeptByOthers);
  EXPECT_EQ(world_.planner().Ask(world_.state, {9, kChunk}, world_.now).reason, Reason::kUnknown);
  world_.state.mover_hopeless = true;
  Add(4, 4);
  EXPECT_EQ(Allocate(2, 2).reason, Reason::kNoMover);
  world_.state.mover_hopeless = false;
  world_.state.pool.full_until = world_.now + 1;
  EXPECT_EQ(Allocate(2, 2).reason, Reason::kHostMemoryFull);
  Add(5, 20).no_host_memory = true;
  world_.Process(5).swapped = 10 * kChunk;
  EXPECT_EQ(Allocate(5, 11).reason, Reason::kNoHostMemory);
  for (int reason = 1; reason <= static_cast<int>(Reason::kNoMover); ++reason)
    EXPECT_NE(Text({.reason = static_cast<Reason>(reason)}), "");
}

TEST_F(RoomAdmissionTest, BeyondALimitASwapBoundRefuses) {
  Add(1, 6, 6);
  world_.VGpu(1).swap = 2 * kChunk;
  EXPECT_EQ(Allocate(1, 3).reason, Reason::kSwapBound) << "two may be out";
  EXPECT_EQ(Allocate(1, 2).kind, Answer::kWait);
  world_.Finish();
  EXPECT_EQ(Out(1), 2u);
  EXPECT_EQ(Process(1).allocated, 8 * kChunk);
}

TEST_F(RoomAdmissionTest, NobodyGetsRoomOutOfTurn) {
  AddBusy(1, 30);
  Add(2, 0);
  EXPECT_EQ(Allocate(2, 20).kind, Answer::kWait);
  Add(3, 0);
  EXPECT_EQ(Allocate(3, 1).kind, Answer::kWait) << "though there is room for it";
  world_.Run(kSecond);
  EXPECT_EQ(Process(3).allocated, kChunk);
}

TEST_F(RoomAdmissionTest, AWishIsForgottenIfItIsNotRepeated) {
  AddBusy(1, 30);
  ProcessResidence& second = Add(2, 0);
  second.wanted = 20 * kChunk;
  second.wanted_at = world_.now;
  world_.state.mover_ready = false;
  EXPECT_THAT(world_.PlanOnly().actions, IsEmpty());
  world_.now += 2 * kSecond + 1;
  EXPECT_THAT(world_.PlanOnly().actions, ElementsAre(Is(Kind::kDropWish, 2)));
}

TEST_F(RoomAdmissionTest, CreditIsTakenBackUnlessItWasWaitedForAMomentAgo) {
  Add(1, 10).credit = 4 * kChunk;
  Add(2, 10).swapped = kChunk;  // so that something is pressed
  EXPECT_THAT(world_.PlanOnly().actions, Contains(Is(Kind::kRevokeCredit, 1)));
  Process(1).granted_at = world_.now - kSecond / 2;
  EXPECT_THAT(world_.PlanOnly().actions, Not(Contains(Is(Kind::kRevokeCredit, 1))));
}

// Credit may be taken by its program while the plan is carried out.
TEST_F(RoomAdmissionTest, RevokedCreditIsNotGrantedToOthersInTheSamePlan) {
  Add(1, 36).credit = 36 * kChunk;
  ProcessResidence& second = Add(2, 0);
  second.wanted = 20 * kChunk;
  second.wanted_at = world_.now;
  EXPECT_THAT(world_.PlanOnly().actions,
              AllOf(Contains(Is(Kind::kRevokeCredit, 1)), Not(Contains(Is(Kind::kGrant, 2)))));
  world_.Look();
  EXPECT_EQ(world_.Count(Kind::kGrant, 2), 1u);
}

// Both processes of a vGPU wait; what the first gets is still its credit when the second is looked at.
TEST_F(RoomAdmissionTest, TwoWishesTogetherDoNotPassALimit) {
  VGpuResidence& vgpu = world_.AddVGpu(1);
  vgpu.limit = 10 * kChunk;
  for (ProcessId id : {1, 2}) {
    ProcessResidence& process = world_.AddProcess(1, id);
    process.wanted = 6 * kChunk;
    process.wanted_at = world_.now;
  }
  world_.Look();
  EXPECT_EQ(world_.Count(Kind::kGrant), 1u);
  EXPECT_LE(world_.VGpu(1).Room(), 10 * kChunk);
}

TEST_F(RoomAdmissionTest, CreditThatIsTooLittleForItsOwnProcessIsNotInItsWay) {
  ProcessResidence& process = Add(1, 0, 10);
  process.room = process.credit = 6 * kChunk;
  process.granted_at = world_.now;
  process.wanted = 8 * kChunk;
  process.wanted_at = world_.now;
  world_.Look();
  EXPECT_EQ(world_.Count(Kind::kRevokeCredit, 1), 1u);
  EXPECT_EQ(Process(1).credit, 8 * kChunk);
}

// ---- after an earlier daemon ----

TEST_F(RoomAdmissionTest, RoomWaitsUntilItIsKnownWhatTheOthersHave) {
  AddBusy(1, 20);
  world_.state.missing = 1;
  world_.state.missing_since = world_.now;
  EXPECT_EQ(Allocate(1, 15).kind, Answer::kWait) << "though nobody else is known to have anything";
  world_.Run(kSecond);
  EXPECT_EQ(Process(1).allocated, 20 * kChunk);
  AddBusy(2, 20);
  world_.state.missing = 0;
  world_.Look();
  EXPECT_LE(world_.state.Used(), world_.state.capacity);
  world_.Run(10 * kSecond);
  EXPECT_EQ(Process(1).allocated, 35 * kChunk);
}

// While processes are missing, their memory counts against the capacity without an owner.
TEST_F(RoomAdmissionTest, NothingIsRefusedBecauseOfThoseWhoAreMissing) {
  AddBusy(1, 10);
  world_.state.capacity = 12 * kChunk;
  world_.state.missing = 1;
  world_.state.missing_since = world_.now;
  EXPECT_EQ(Allocate(1, 14).kind, Answer::kWait);
  EXPECT_EQ(Process(1).swapped + world_.Count(Kind::kMoveOut), 0u);
  Add(2, 28);
  world_.state.capacity = 40 * kChunk;
  world_.state.missing = 0;
  world_.Run(kSecond);
  EXPECT_EQ(Process(1).allocated, 24 * kChunk);
}

TEST_F(RoomAdmissionTest, NobodyIsMissedForEver) {
  AddBusy(1, 10);
  world_.state.missing = 1;
  world_.state.missing_since = world_.now;
  EXPECT_EQ(world_.PlanOnly().look_at, world_.now + kLongestAbsence);
  EXPECT_EQ(Allocate(1, 10).kind, Answer::kWait);
  EXPECT_EQ(world_.planner().Why(world_.state), "waits for programs of an earlier daemon: 1");
  world_.Run(kLongestAbsence - kMillisecond);
  EXPECT_EQ(Process(1).allocated, 10 * kChunk);
  world_.Run(2 * kMillisecond);
  EXPECT_EQ(Process(1).allocated, 20 * kChunk);
}

}  // namespace
}  // namespace tessera::sched
