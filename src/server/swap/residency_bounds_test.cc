// Bounds of a vGPU's memory on the GPU and off it; movers that die, lie or lose memory, and their orders for files and
// pools.
#include "sched/residency/pool_policy.h"
#include "server/testing/residency_fixture.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;

class ResidencyBounds : public ResidencyTest {};

TEST_F(ResidencyBounds, OneWithoutABoundGivesWayWholly) {
  Member& first = Idle(8);
  Member& second = Idle(0);
  EXPECT_EQ(Ask(second, 8), Answer::kWait);
  EXPECT_EQ(CarryAll(), 6u);  // what is in the way
  EXPECT_EQ(Out(first), 6u);
  TakeCredit(second);
  EXPECT_EQ(On(second), 8u);
}

TEST_F(ResidencyBounds, NoMoreGoesOutThanItsSwapMax) {
  Member& first = Idle(8, 2);
  Member& second = Idle(0);
  EXPECT_EQ(Ask(second, 4), Answer::kWait);
  EXPECT_EQ(CarryAll(), 2u);
  EXPECT_EQ(Out(first), 2u);
  TakeCredit(second);
  EXPECT_EQ(On(second), 4u);
  EXPECT_EQ(Ask(second, 5), Answer::kRefuse) << "six chunks of ten stay where they are";
  EXPECT_EQ(Ask(second, 4), Answer::kWait) << "it has to move its own for that";
  EXPECT_EQ(CarryAll(), 4u);
  EXPECT_EQ(Out(first), 2u);
  EXPECT_EQ(Out(second), 4u);
}

TEST_F(ResidencyBounds, OneThatMayNotBeMovedTakesNoTurns) {
  Member& kept = Idle(6, 0);
  kept.process.gate.state = State::kRunning;
  Member& other = Idle(4);
  other.process.gate.state = State::kRunning;
  Member& third = Idle(0);
  EXPECT_EQ(Ask(third, 4), Answer::kWait);
  CarryAll();
  EXPECT_EQ(Out(kept), 0u);
  EXPECT_EQ(On(kept), 6u);
  EXPECT_FALSE(kept.process.residence.stopped);
  const std::string why = Figures().decision;
  EXPECT_NE(why.find("512 MiB of 256 MiB"), std::string::npos) << why;  // eight chunks of the four that it leaves
}

// Memory in place is copied to new memory, and is free after that.
TEST_F(ResidencyBounds, WhatLiesInPlaceGoesOnWhereThereIsNoRoomForItTwice) {
  Member& member = Idle(2);
  EXPECT_TRUE(residency_.Push(member.process, 2 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 2u);
  member.process.gate.state = State::kRunning;
  Look();
  ASSERT_EQ(orders_.size(), 1u);
  ASSERT_EQ(orders_[0].type, MoverType::kLoad);
  NotingMover::relocates = 0;
  Hear({.type = MoverType::kLoaded, .error = ENOMEM, .program = orders_[0].program, .bytes = 2 * kChunk});
  EXPECT_EQ(NotingMover::relocates, 1);
}

TEST_F(ResidencyBounds, FiguresAreOfNow) {
  Member& first = Idle(8);
  EXPECT_EQ(Figures().decision, "all that is in use fits: 512 MiB of 640 MiB");
  Member& second = Idle(2);
  first.process.gate.state = second.process.gate.state = State::kRunning;
  EXPECT_EQ(Ask(second, 4), Answer::kWait);
  EXPECT_TRUE(Figures().turns);
  // Nothing is out yet, and the one that wanted more ends.
  second.vgpu.processes.clear();
  residency_.Leave(second.process, MonotonicNow());
  CarryAll();
  first.process.page->swapped = 0;
  Look();
  EXPECT_FALSE(Figures().turns);
  EXPECT_EQ(Figures().turn, 0);
  EXPECT_EQ(Figures().decision.find("all that is in use fits: "), 0u);
  on_mover_(nullptr);
  Look();
  EXPECT_EQ(Figures().decision.find("all that is in use fits: "), 0u) << "it is of no use now";
}

TEST_F(ResidencyBounds, ItIsRefusedWhatCouldNotStayOnTheGpu) {
  Member& first = Idle(6, 0);
  Member& second = Idle(0, 1);
  EXPECT_EQ(Ask(second, 5), Answer::kRefuse) << "there are four chunks, and all at once have to be there";
  EXPECT_EQ(Ask(second, 4), Answer::kGrant);
  Allocated(second, 4);
  EXPECT_EQ(Ask(second, 2), Answer::kRefuse) << "one may be out, and four may stay";
  EXPECT_EQ(Ask(second, 1), Answer::kWait);
  EXPECT_EQ(CarryAll(), 1u);
  EXPECT_EQ(Out(first), 0u);
  EXPECT_EQ(Out(second), 1u);
}

TEST_F(ResidencyBounds, APromiseIsLentToWhatCanBeMoved) {
  Member& first = Idle(0);
  first.vgpu.spec.memory.request = 6 * kChunk;
  Member& second = Idle(0);
  EXPECT_EQ(residency_.Ask(second.process, 5 * kChunk, /*pins=*/true, MonotonicNow()), Answer::kRefuse);
  EXPECT_EQ(Ask(second, 5), Answer::kGrant) << "it is lent";
}

// The context's bytes are no room: the caller counts them otherwise.
TEST_F(ResidencyBounds, AContextGetsItsPlaceFromOthers) {
  Member& first = Idle(10);
  Member& second = Idle(0);
  const auto ask = [&] { return residency_.AskForContext(second.process, kChunk, MonotonicNow()); };
  EXPECT_EQ(ask(), Answer::kWait);
  EXPECT_EQ(CarryAll(), 1u);
  EXPECT_EQ(Out(first), 1u);
  EXPECT_EQ(second.process.residence.Credit(), kChunk);
  EXPECT_EQ(ask(), Answer::kGrant);
  EXPECT_EQ(second.process.residence.room, 0u);
  EXPECT_EQ(second.process.residence.Credit(), 0u);
  second.process.memory.context_bytes = kChunk;
  EXPECT_EQ(residency_.AskForContext(second.process, 10 * kChunk, MonotonicNow()), Answer::kRefuse);
}

TEST_F(ResidencyBounds, ALimitThatIsLoweredBringsMemoryOut) {
  Member& member = Idle(8);
  member.vgpu.spec.memory.limit = 3 * kChunk;
  Look();
  EXPECT_EQ(CarryAll(), 5u);
  EXPECT_EQ(On(member), 3u);
}

TEST_F(ResidencyBounds, WhatIsPushedOutIsBoundedToo) {
  Member& member = Idle(8, 3);
  EXPECT_TRUE(residency_.Push(member.process, 8 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 3u);
  EXPECT_EQ(Out(member), 3u);
  EXPECT_EQ(member.process.residence.evict_error, EDQUOT);
  EXPECT_EQ(member.process.residence.Evicting(), 0u);
  EXPECT_TRUE(residency_.Push(member.process, kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 0u);
  EXPECT_EQ(member.process.residence.evict_error, EDQUOT);
  EXPECT_EQ(member.process.residence.Evicting(), 0u);
  member.vgpu.spec.memory.swap = 4 * kChunk;
  Look();
  EXPECT_TRUE(residency_.Push(member.process, kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 1u);
  EXPECT_EQ(member.process.residence.evict_error, 0);
}

TEST_F(ResidencyBounds, WhatALowerBoundMakesTooMuchComesBackWhenItWorks) {
  Member& member = Idle(8);
  Member& other = Idle(0);
  EXPECT_EQ(Ask(other, 8), Answer::kWait);
  EXPECT_EQ(CarryAll(), 6u);
  TakeCredit(other);
  member.vgpu.spec.memory.swap = 2 * kChunk;
  Look();
  EXPECT_EQ(Out(member), 6u) << "nobody needs it";
  member.process.gate.state = State::kRunning;
  Look();
  CarryAll();
  EXPECT_LE(Out(member), 2u);
  EXPECT_EQ(On(member) + Out(member), 8u);
  EXPECT_EQ(On(other) + Out(other), 8u);
}

// ---- movers ----

class ResidencyMover : public ResidencyTest {};

TEST_F(ResidencyMover, AfterTheDeathOfAMoverWhatIsOutIsStillOutAndAnotherIsStarted) {
  Member& first = Idle(8);
  Member& second = Idle(0);
  EXPECT_EQ(Ask(second, 8), Answer::kWait);
  CarryAll();
  TakeCredit(second);
  ASSERT_EQ(starts_, 1);
  on_mover_(nullptr);
  EXPECT_EQ(Out(first), 6u) << "it has no line for the moment, and its memory is where it was";
  const auto pushed = residency_.Push(first.process, kChunk, MonotonicNow());
  ASSERT_FALSE(pushed);
  EXPECT_EQ(pushed.error().code, EAGAIN) << "it can be moved, and soon";
  EXPECT_EQ(starts_, 1) << "not at once: the first one was started a moment ago";
  RunUntil([this] { return starts_ == 2; });
  EXPECT_EQ(starts_, 2);
}

TEST_F(ResidencyMover, AMoverThatDiesBeforeItWasNeededIsReplacedToo) {
  on_mover_(nullptr);
  EXPECT_EQ(Ask(*members_.front(), 8), Answer::kGrant);
  RunUntil([this] { return starts_ == 2; });
  EXPECT_EQ(starts_, 2);
}

TEST_F(ResidencyMover, ALieAboutHostMemoryIsNotBelieved) {
  Member& liar = Idle(2, 0);
  liar.process.page->swapped.store(1000 * kChunk);
  EXPECT_EQ(Out(liar), 0u);
  Member& other = Idle(0);
  EXPECT_EQ(Ask(other, 9), Answer::kRefuse);
  EXPECT_EQ(Ask(other, 8), Answer::kGrant);
}

// As after daemon and mover were killed together: no mover has its host memory any more.
TEST_F(ResidencyMover, WhatNoMoverHasIsNotOrderedIn) {
  Member& member = Idle(8);
  ASSERT_TRUE(residency_.Push(member.process, 6 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 6u);
  member.process.gate.state = State::kRunning;
  member.process.page->stranded = 4 * kChunk;
  Look();
  ASSERT_EQ(orders_.size(), 1u);
  EXPECT_EQ(orders_.front().type, MoverType::kLoad);
  EXPECT_EQ(Carry().chunks, 2u) << "the rest comes back";
  EXPECT_EQ(Out(member), 4u) << "it counts as swapped";
  for (int seconds = 1; seconds <= 30; ++seconds) Look(seconds * kSecond);
  EXPECT_TRUE(orders_.empty());
  EXPECT_FALSE(member.process.residence.stopped);
  EXPECT_EQ(Figures().decision.find("all that is in use fits: "), 0u);
  member.process.page->stranded = 1000 * kChunk;
  EXPECT_EQ(member.process.residence.Stranded(), 4 * kChunk) << "a lie is not believed";
}

TEST_F(ResidencyMover, WhatNoMoverHasIsToldOnceForEachProgram) {
  Member& member = Idle(8);
  const std::uint64_t begin = events::Last();
  ASSERT_TRUE(residency_.Push(member.process, 6 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 6u);
  member.process.page->stranded = 2 * kChunk;
  for (int seconds = 1; seconds <= 5; ++seconds) Look(seconds * kSecond);
  member.process.page->stranded = 4 * kChunk;
  for (int seconds = 6; seconds <= 9; ++seconds) Look(seconds * kSecond);
  int told = 0;
  for (const Event& event : events::After(begin, 1000).events) told += event.type == EventType::kMemoryStranded ? 1 : 0;
  EXPECT_EQ(told, 1);
}

TEST_F(ResidencyMover, WhatNoMoverHasTakesItsPartOfSwapMax) {
  Member& member = Idle(8, 4);
  ASSERT_TRUE(residency_.Push(member.process, 3 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 3u);
  member.process.page->stranded = 3 * kChunk;
  ASSERT_TRUE(residency_.Push(member.process, 5 * kChunk, MonotonicNow()));
  EXPECT_EQ(CarryAll(), 1u);
  Member& other = Idle(0);
  EXPECT_EQ(Ask(other, 7), Answer::kRefuse);
  EXPECT_EQ(Ask(other, 6), Answer::kWait) << "four chunks of ten stay";
}

// The program says what went out before the mover does; until then it must not look as if it had that twice.
TEST_F(ResidencyMover, WhatIsOnItsWayOutCountsOnce) {
  Member& first = Idle(8, 3);
  Member& second = Idle(0);
  EXPECT_EQ(Ask(second, 5), Answer::kWait);
  ASSERT_EQ(orders_.size(), 1u);
  for (int moved = 1; moved <= 3; ++moved) {
    first.process.page->moved_out += kChunk;
    first.process.page->swapped += kChunk;
    EXPECT_EQ(Ask(second, 5), Answer::kWait) << moved << " are out";
    EXPECT_EQ(Ask(second, 6), Answer::kRefuse);
  }
}

TEST_F(ResidencyMover, WhatALostLineHidIsFound) {
  Member& first = Idle(8);
  Member& second = Idle(0);
  EXPECT_EQ(Ask(second, 5), Answer::kWait);
  ASSERT_EQ(orders_.size(), 1u);
  const Ordered order = orders_.front();
  first.process.page->moved_out += kChunk;
  first.process.page->swapped += kChunk;
  Hear({.type = MoverType::kEvicted, .error = EPIPE, .program = order.program, .bytes = order.chunks * kChunk});
  EXPECT_EQ(On(first), 8u);
  first.process.residence.line.next_at = 0;
  EXPECT_TRUE(residency_.MakeLine(first.process, MonotonicNow()));
  EXPECT_EQ(On(first), 7u);
  EXPECT_EQ(Out(first), 1u);
}

// Seen on a real GPU: a program was frozen while a thread of it waited in cuCtxSynchronize, and said then that it had
// nothing to do, as all that it had submitted was done. What the driver waited for was not.
TEST_F(ResidencyMover, WhoSeemsToRestIsNotKeptFrozen) {
  Member& member = Idle(8);
  member.process.gate.state = State::kRunning;
  ASSERT_TRUE(residency_.Push(member.process, 8 * kChunk, MonotonicNow()));
  ASSERT_FALSE(orders_.empty());
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kFrozen) << "while it is moved";
  member.process.gate.state = State::kParked;
  CarryAll();
  EXPECT_EQ(Out(member), 8u);
  member.process.page->guard.unsafe = 1;  // as after a move
  RunUntil([&] { return !orders_.empty(); });
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kFrozen) << "until all addresses are valid";
  EXPECT_EQ(orders_.front().type, MoverType::kSettle);
  member.process.page->guard.unsafe = 0;
  CarryAll();
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kGate);
  member.process.gate.state = State::kWanting;
  Look();
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kFrozen) << "while it comes back";
  CarryAll();
  EXPECT_EQ(Out(member), 0u);
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kNone);
}

class FileTest : public ResidencyTest {
 protected:
  FileTest() : ResidencyTest(100 * kChunk) {}
};

TEST_F(FileTest, WhoMayBeInTheFileStaysFrozen) {
  Member& member = Idle(8);
  ASSERT_TRUE(residency_.Push(member.process, 8 * kChunk, MonotonicNow()));
  CarryAll();
  EXPECT_EQ(Out(member), 8u);
  EXPECT_EQ(member.process.freeze.by_residency, MemoryHold::kFrozen);
}

class PrepareTest : public ResidencyTest {
 protected:
  PrepareTest() : ResidencyTest(0, 20 * kChunk) {}
  std::uint64_t Prepared() { return pool_.at(MoverType::kPrepare).bytes / kChunk; }
};

TEST_F(PrepareTest, TheMoverIsToldWhatToPrepareAndWhatToGiveBack) {
  constexpr Nanos kMinute = 60 * kSecond;
  Look(sched::PoolPolicy::kBeginsAfter);
  EXPECT_EQ(Prepared(), 3u) << "what was needed before: nothing is known of the machine";
  Hear({.type = MoverType::kMachineIs, .bytes = 1000 * kChunk});
  Look(kMinute);
  EXPECT_EQ(Prepared(), 20u);
  EXPECT_EQ(pool_.at(MoverType::kPool).other, 100 * kChunk);
  EXPECT_EQ(Figures().pool_goal, 20 * kChunk);
  Hear({.type = MoverType::kMachineIs, .bytes = 1000 * kChunk, .other = 2500});
  Look(2 * kMinute);
  EXPECT_EQ(Prepared(), 0u);
  Hear({.type = MoverType::kMachineIs, .bytes = 1000 * kChunk});
  Look(3 * kMinute);
  EXPECT_EQ(Prepared(), 20u);
  // What the dead one had the next one has: it is told to keep that.
  on_mover_(nullptr);
  Look(4 * kMinute);
  EXPECT_EQ(starts_, 2);
  pool_.clear();
  Hear({.type = MoverType::kReady});
  EXPECT_EQ(Prepared(), 20u);
}

}  // namespace
}  // namespace tessera::server
