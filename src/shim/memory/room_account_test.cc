#include "shim/memory/room_account.h"

#include <thread>

#include "shim/memory/recall.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

class RoomAccountTest : public ShimFixture {
 protected:
  RoomAccountTest() : ShimFixture(false) {
    shared.memory_max = 8 * kGiB;
    shared.memory_credit = 4 * kGiB;
    shared.memory_credit_keep = 8 * kGiB;
    const MutexLock lock(page.holding);
    page.Follow(&shared, gpu);
  }
  void FollowDaemonThat(bool swaps) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    room.Attached(swaps);
  }
  std::uint64_t Held() TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock lock(page.holding);
    return room.Held();
  }
  std::uint64_t By(wire::PinReason reason) const { return shared.pinned_by[static_cast<std::size_t>(reason)]; }
  void Grant(wire::RoomGranted granted) {
    Daemon().Set([=](FakeDaemon::Answers& answers) { answers.room = [=](std::uint64_t) { return granted; }; });
  }

  wire::Page shared;
  FollowedPage page;
  HostMemory host;
  MemoryAccount memory{page};
  RoomAccount room{page, memory, host};
};

TEST_F(RoomAccountTest, WhereNothingIsSwappedRoomIsFree) {
  EXPECT_TRUE(room.Take(kGiB));
  EXPECT_EQ(Held(), kGiB);
  room.Give(kGiB);
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(shared.room_credit, 0) << "nobody counts it";
  EXPECT_FALSE(room.Recall());
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Room>(gpu), 0u);
}

TEST_F(RoomAccountTest, CreditIsTakenAndGivenBackOnce) {
  FollowDaemonThat(true);
  shared.room_credit = 3 * kMiB;
  EXPECT_TRUE(room.Take(2 * kMiB));
  EXPECT_EQ(shared.room_credit, std::int64_t{kMiB});
  room.Give(2 * kMiB);
  EXPECT_EQ(shared.room_credit, 3 * std::int64_t{kMiB});
  EXPECT_EQ(Held(), 0u);
}

TEST_F(RoomAccountTest, TheDaemonsWordIsRoomWithoutCredit) {
  FollowDaemonThat(true);
  EXPECT_TRUE(room.Take(2 * kMiB));
  EXPECT_EQ(Daemon().Await<wire::Room>(gpu).bytes, 2 * kMiB);
  EXPECT_EQ(Held(), 2 * kMiB);
  EXPECT_EQ(shared.room_credit, 0);
}

TEST_F(RoomAccountTest, WhereThereWillBeNoRoomItIsAnError) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 0});
  EXPECT_FALSE(room.Take(2 * kMiB));
  EXPECT_EQ(shared.oom_errors, 0u) << "the heap may find a place that needs less";
  EXPECT_EQ(Held(), 0u);
}

TEST_F(RoomAccountTest, ARemovedVgpuGetsNoRoom) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 1});
  std::thread takes([this] { EXPECT_FALSE(room.Take(2 * kMiB)); });
  Daemon().Await<wire::Room>(gpu);
  shared.removed = 1;
  page.Ring();
  takes.join();
  EXPECT_EQ(Held(), 0u);
}

TEST_F(RoomAccountTest, RoomThatIsBeingMadeIsWaitedFor) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 1});
  std::atomic<bool> taken = false;
  std::thread takes([&] {
    EXPECT_TRUE(room.Take(2 * kMiB));
    taken = true;
  });
  Daemon().Await<wire::Room>(gpu);
  page.Ring();  // without a reason: it asks again
  Daemon().Await<wire::Room>(gpu, 2);
  EXPECT_FALSE(taken);
  shared.room_credit = 2 * kMiB;
  page.Ring();
  takes.join();
  EXPECT_EQ(shared.room_credit, 0);
  EXPECT_EQ(Held(), 2 * kMiB);
  EXPECT_EQ(shared.room_waits, 1u) << "one allocation waited, however often it asked";
}

TEST_F(RoomAccountTest, AContextWaitsForItsRoom) {
  FollowDaemonThat(true);
  std::atomic<bool> there = false;
  Daemon().Set([&](FakeDaemon::Answers& answers) {
    answers.context = [&](std::uint32_t) { return wire::Reserved{.bytes = there ? kMiB : 0, .wait = !there}; };
  });
  std::thread takes([&] { EXPECT_TRUE(room.TakeContext()); });
  Daemon().Await<wire::Context>(gpu);
  page.Ring();  // without a reason: it asks again
  Daemon().Await<wire::Context>(gpu, 2);
  there = true;
  page.Ring();
  takes.join();
  EXPECT_EQ(shared.room_waits, 1u);
  EXPECT_EQ(Held(), 0u) << "it is no room";
}

TEST_F(RoomAccountTest, WhatCannotMoveIsAskedForAsThat) {
  FollowDaemonThat(true);
  EXPECT_TRUE(room.Take(kMiB));
  EXPECT_EQ(Daemon().Await<wire::Room>(gpu).pins, 0u);
  EXPECT_TRUE(room.TakePinned(kMiB, wire::PinReason::kPool));
  EXPECT_EQ(Daemon().Await<wire::Room>(gpu, 2).pins, 1u);
}

TEST_F(RoomAccountTest, AsMuchIsPinnedAsThereIsRoomFor) {
  FollowDaemonThat(true);
  Daemon().Set([](FakeDaemon::Answers& answers) {
    answers.room = [](std::uint64_t bytes) { return wire::RoomGranted{.bytes = bytes <= kGiB ? bytes : 0}; };
  });
  EXPECT_EQ(room.TakePinnedAtMost(3 * kGiB, wire::PinReason::kManaged), 768 * kMiB);
  EXPECT_EQ(shared.pinned, 768 * kMiB);
}

TEST_F(RoomAccountTest, ADaemonThatCountsNoRoomEndsTheWait) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 1});
  std::thread takes([&] { EXPECT_TRUE(room.Take(2 * kMiB)); });
  Daemon().Await<wire::Room>(gpu);
  FollowDaemonThat(false);
  page.Ring();
  takes.join();
}

TEST_F(RoomAccountTest, PinnedMemoryTakesBoth) {
  FollowDaemonThat(true);
  shared.room_credit = kGiB;
  EXPECT_TRUE(room.TakePinned(kMiB, wire::PinReason::kPool));
  EXPECT_EQ(shared.memory_credit, static_cast<std::int64_t>(4 * kGiB - kMiB));
  EXPECT_EQ(shared.room_credit, static_cast<std::int64_t>(kGiB - kMiB));
  EXPECT_EQ(shared.pinned, kMiB);
  room.GivePinned(kMiB, wire::PinReason::kPool);
  EXPECT_EQ(shared.memory_credit, static_cast<std::int64_t>(4 * kGiB));
  EXPECT_EQ(shared.room_credit, static_cast<std::int64_t>(kGiB));
  EXPECT_EQ(shared.pinned, 0u);
}

TEST_F(RoomAccountTest, PinnedMemoryWithoutRoomGivesTheMemoryBack) {
  FollowDaemonThat(true);
  Grant({});
  EXPECT_FALSE(room.TakePinned(kMiB, wire::PinReason::kPool));
  EXPECT_EQ(shared.memory_credit, static_cast<std::int64_t>(4 * kGiB));
  EXPECT_EQ(shared.pinned, 0u);
  EXPECT_EQ(shared.oom_errors, 1u);
}

TEST_F(RoomAccountTest, PinnedMemoryBeyondTheLimitTakesNoRoom) {
  FollowDaemonThat(true);
  shared.room_credit = kGiB;
  shared.memory_credit = 0;
  Daemon().Set([](FakeDaemon::Answers& answers) { answers.reserve = [](std::uint64_t) { return wire::Reserved{}; }; });
  EXPECT_FALSE(room.TakePinned(kMiB, wire::PinReason::kPool));
  EXPECT_EQ(shared.room_credit, static_cast<std::int64_t>(kGiB));
}

TEST_F(RoomAccountTest, ThePageSaysWhereTheMemoryLies) {
  FollowDaemonThat(true);
  room.Holds({.resident = 8 * kMiB,
              .swapped = 6 * kMiB,
              .stranded = 5 * kMiB,
              .pinned = 2 * kMiB,
              .empty = kMiB,
              .unsafe = 3 * kMiB,
              .recalled = 4 * kMiB,
              .moved_out = 20 * kMiB,
              .moved_in = 14 * kMiB});
  EXPECT_EQ(shared.swapped, 6 * kMiB);
  EXPECT_EQ(shared.stranded, 5 * kMiB);
  EXPECT_EQ(shared.pinned, 2 * kMiB);
  EXPECT_EQ(shared.empty, kMiB);
  EXPECT_EQ(shared.recalled, 4 * kMiB);
  EXPECT_EQ(shared.moved_out, 20 * kMiB);
  EXPECT_EQ(shared.moved_in, 14 * kMiB);
  EXPECT_EQ(shared.guard.unsafe, 3 * kMiB);
  EXPECT_EQ(room.Unsafe(), 3 * kMiB);
  EXPECT_TRUE(host.Any());
  EXPECT_TRUE(host.TakeMoreOut());
  EXPECT_FALSE(host.TakeMoreOut()) << "once";
}

TEST_F(RoomAccountTest, ThePageSaysWhyMemoryCannotBeMoved) {
  FollowDaemonThat(true);
  shared.room_credit = kGiB;
  ASSERT_TRUE(room.TakePinned(5 * kMiB, wire::PinReason::kVmm));
  ASSERT_TRUE(room.TakePinned(kMiB, wire::PinReason::kPool));
  room.Holds({.resident = 200 * kMiB, .pinned = 130 * kMiB, .exported = 64 * kMiB, .registered = 64 * kMiB});
  room.NotePinned(3 * kMiB, wire::PinReason::kExported);
  room.NotePinned(-std::int64_t{3 * kMiB}, wire::PinReason::kVmm);
  EXPECT_EQ(By(wire::PinReason::kVmm), 2 * kMiB);
  EXPECT_EQ(By(wire::PinReason::kPool), kMiB);
  EXPECT_EQ(By(wire::PinReason::kExported), 67 * kMiB);
  EXPECT_EQ(By(wire::PinReason::kRegistered), 64 * kMiB);
  EXPECT_EQ(By(wire::PinReason::kSmall), 2 * kMiB);
  EXPECT_EQ(shared.pinned, 136 * kMiB) << "the sum of them";
  room.GivePinned(3 * kMiB, wire::PinReason::kExported);
  room.GivePinned(2 * kMiB, wire::PinReason::kVmm);
  room.GivePinned(kMiB, wire::PinReason::kPool);
  EXPECT_EQ(By(wire::PinReason::kExported), 64 * kMiB);
  EXPECT_EQ(shared.pinned, 130 * kMiB);
}

TEST_F(RoomAccountTest, MovesChangeWhatIsHeld) {
  FollowDaemonThat(true);
  shared.room_credit = kGiB;
  ASSERT_TRUE(room.Take(64 * kMiB));
  room.Holds({.swapped = 32 * kMiB, .moved_out = 48 * kMiB, .moved_in = 16 * kMiB});
  EXPECT_EQ(Held(), 32 * kMiB);
}

TEST_F(RoomAccountTest, ANewDaemonIsToldOfMovesFromNowOn) {
  room.Holds({.swapped = 4 * kMiB, .moved_out = 10 * kMiB, .moved_in = 6 * kMiB});
  FollowDaemonThat(true);
  room.Report();
  EXPECT_EQ(shared.moved_out, 0u);
  EXPECT_EQ(shared.moved_in, 0u);
  EXPECT_EQ(shared.swapped, 4 * kMiB);
  room.Holds({.swapped = 5 * kMiB, .moved_out = 11 * kMiB, .moved_in = 6 * kMiB});
  EXPECT_EQ(shared.moved_out, kMiB);
}

TEST_F(RoomAccountTest, OnlyMoreInTheHostIsNews) {
  room.Holds({.swapped = 4 * kMiB});
  EXPECT_TRUE(host.TakeMoreOut());
  room.Holds({.swapped = 3 * kMiB});
  EXPECT_FALSE(host.TakeMoreOut());
  room.Holds({.swapped = 0});
  EXPECT_FALSE(host.Any());
}

TEST_F(RoomAccountTest, ReleasedIsAsThePageSays) {
  EXPECT_FALSE(room.Released());
  shared.guard.released = 1;
  EXPECT_TRUE(room.Released());
}

TEST_F(RoomAccountTest, RecallIsARequestForNoBytes) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 1});
  EXPECT_TRUE(room.Recall());
  EXPECT_EQ(Daemon().Await<wire::Room>(gpu).bytes, 0u);
  Grant({.bytes = 0, .wait = 0});
  EXPECT_FALSE(room.Recall());
}

Nanos ClockThatHurries() {
  static Nanos now = 0;
  return now += 50 * kSecond;
}

TEST_F(RoomAccountTest, MemoryThatComesBackIsWaitedForHoweverLongThatTakes) {
  FollowDaemonThat(true);
  Grant({.bytes = 0, .wait = 1});
  testing::internal::CaptureStderr();
  int looks = 0;
  const auto look = [&] { return ++looks < 5 ? cuda::CUDA_ERROR_NOT_READY : cuda::CUDA_SUCCESS; };
  EXPECT_EQ(AwaitRecall(room, look, "cannot", ClockThatHurries), cuda::CUDA_SUCCESS);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("has waited 150 s"));
}

TEST_F(RoomAccountTest, WithoutAHeapNothingIsHot) {
  shared.hot_out = 5;
  room.ReportUse(kSecond);
  EXPECT_EQ(shared.hot_out, 0u);
  shared.hot_out = 5;
  room.ReportUse(kSecond + 1);
  EXPECT_EQ(shared.hot_out, 5u) << "not so soon again";
}

TEST_F(RoomAccountTest, WhereNoDaemonComesThereIsRoomIfWorkGoesOn) {
  FollowDaemonThat(true);
  EndDaemon();
  {
    const MutexLock lock(page.holding);
    page.FollowOwn(0, false);
  }
  EXPECT_TRUE(room.Take(kMiB));
  EXPECT_FALSE(room.Recall()) << "nobody brings anything back";
  StartDaemon();
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
}

}  // namespace
}  // namespace tessera::shim
