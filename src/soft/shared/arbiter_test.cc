#include "soft/shared/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/testing/wait_until.h"
#include "soft/shared/mps_servers.h"
#include "soft/shared/shared_layout.h"
#include "soft/shared/steering.h"
#include "soft/shared/test_process.h"
#include "soft/shared/wait.h"

namespace tessera::soft {
namespace {

// A million instructions a second: one instruction is a microsecond.
constexpr const char* kSpec = "1GiB,speed=1M,slice=1ms";

std::unique_ptr<SharedState> Attached(const std::string& path) { return soft::MustAttach(path, kSpec); }

Nanos BusyOf(SharedState& state, pid_t pid) {
  const auto processes = state.Processes(0);
  const auto found = std::ranges::find(processes, pid, &ProcessUse::pid);
  return found == processes.end() ? 0 : found->busy;
}

TEST(Arbiter, ChargeLastsAsLongAsModelled) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  const Nanos begin = MonotonicNow();
  arbiter.Acquire();
  const Nanos before = MonotonicNow();
  arbiter.Charge(3000);
  arbiter.Charge(1500);
  arbiter.WaitForEnd();
  EXPECT_GE(MonotonicNow(), before + 4500 * kMicrosecond - kMillisecond);
  EXPECT_GE(MonotonicNow(), arbiter.end());
  // And what the host lagged, but no moment twice.
  EXPECT_GE(BusyOf(*state, getpid()), 4500 * kMicrosecond);
  EXPECT_LE(BusyOf(*state, getpid()), std::max(arbiter.end(), MonotonicNow()) - begin);
}

TEST(Arbiter, FractionsOfANanosecondAreNotLost) {
  const ScratchState scratch;
  auto state = SharedState::Attach(scratch.path(), "1GiB,speed=3G");
  ASSERT_TRUE(state);
  Arbiter arbiter(**state, 0);
  arbiter.Acquire();
  for (int i = 0; i < 3000; ++i) arbiter.Charge(1);
  EXPECT_GE(BusyOf(**state, getpid()), 999);  // and what the host lagged
}

TEST(Arbiter, OnlyOneExecutes) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  std::atomic<int> inside = 0;
  const auto work = [&] {
    Arbiter arbiter(*state, 0);
    for (int i = 0; i < 50; ++i) {
      arbiter.Acquire();
      EXPECT_EQ(++inside, 1);
      arbiter.Charge(20);
      --inside;
      if (i % 2 == 0) arbiter.Yield();
      arbiter.Release();
    }
  };
  const Nanos begin = MonotonicNow();
  std::thread threads[] = {std::thread(work), std::thread(work), std::thread(work)};
  for (std::thread& thread : threads) thread.join();
  // The time charged and the time that the host lagged, but no moment twice.
  EXPECT_GE(BusyOf(*state, getpid()), 150 * 20 * kMicrosecond);
  EXPECT_LE(BusyOf(*state, getpid()), MonotonicNow() - begin);
}

TEST(Arbiter, AloneItNeverYields) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  arbiter.Charge(5000);
  EXPECT_FALSE(arbiter.ShouldYield());
}

TEST(Arbiter, WaiterGetsItAfterTheSlice) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  std::atomic<bool> other_ran = false;
  std::thread other([&] {
    Arbiter theirs(*state, 0);
    theirs.Acquire();
    other_ran = true;
  });
  tessera::WaitUntil([&] { return arbiter.ShouldYield(); });
  EXPECT_GE(MonotonicNow(), state->layout().devices[0].slice_end.load());
  EXPECT_FALSE(other_ran);
  arbiter.Yield();
  EXPECT_TRUE(other_ran);
  other.join();
}

TEST(Arbiter, AProcessCanHaveASliceOfItsOwn) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  ASSERT_TRUE(SetSlice(*state, 0, getpid(), 40 * kMillisecond));
  Arbiter arbiter(*state, 0);
  const Nanos before = MonotonicNow();
  arbiter.Acquire();
  const Nanos after = MonotonicNow();
  EXPECT_GE(state->layout().devices[0].slice_end.load(), before + 40 * kMillisecond);
  EXPECT_LE(state->layout().devices[0].slice_end.load(), after + 40 * kMillisecond);
  // 0 is the spec's again, from the next turn on.
  ASSERT_TRUE(SetSlice(*state, 0, getpid(), 0));
  arbiter.Yield();
  EXPECT_LE(state->layout().devices[0].slice_end.load(), MonotonicNow() + kMillisecond);
}

TEST(Arbiter, WhatATurnTookTooLongIsMissingFromTheNext) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  TestProcess other([&](TestProcess::Peer& parent) {
    const auto theirs = Attached(scratch.path());
    Arbiter arbiter(*theirs, 0);
    parent.Hear();
    arbiter.Acquire();
    arbiter.Release();
    parent.Hear();
  });
  SharedDevice& device = state->layout().devices[0];
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  // A slice that is too long harms no other context while none waits.
  const Nanos alone_until = device.slice_end + kMillisecond;
  WaitUntil(alone_until);
  other.Say();
  tessera::WaitUntil([&] { return arbiter.ShouldYield(); });
  EXPECT_GE(device.slice_end, alone_until);
  WaitUntil(device.slice_end + kMillisecond);
  arbiter.Yield();
  // Its slice is a millisecond; half of that is left to who owes more.
  {
    const RobustLock lock(device.mutex);
    EXPECT_EQ(device.slice_end - device.turns[device.holder].granted_at, kMillisecond / 2);
  }
  EXPECT_GE(state->slot().use[0].overrun, kMillisecond / 2);
  other.Say();
}

// Three processes that always have work, each for as many slices as it gets.
TEST(Arbiter, TurnsAreRoundRobinAcrossProcesses) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  const auto busy_loop = [&](TestProcess::Peer& parent) {
    const auto mine = Attached(scratch.path());
    Arbiter arbiter(*mine, 0);
    parent.Hear();
    for (arbiter.Acquire();;) {
      arbiter.Charge(100);
      if (arbiter.ShouldYield()) arbiter.Yield();
    }
  };
  TestProcess children[] = {TestProcess(busy_loop), TestProcess(busy_loop), TestProcess(busy_loop)};
  for (const TestProcess& child : children) child.Say();
  Nanos least = 0, most = 0;
  tessera::WaitUntil([&] {
    Nanos busy[3];
    std::ranges::transform(children, busy, [&](const TestProcess& child) { return BusyOf(*state, child.pid()); });
    std::tie(least, most) = std::pair(*std::ranges::min_element(busy), *std::ranges::max_element(busy));
    return least >= 20 * kMillisecond;
  });
  // Start-up differs by at most a few slices; without turns one of them would have had it all.
  EXPECT_LT(most, 3 * least);
}

TEST(Arbiter, DeadHolderIsReplaced) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  TestProcess child([&](TestProcess::Peer& parent) {
    const auto mine = Attached(scratch.path());
    Arbiter arbiter(*mine, 0);
    arbiter.Acquire();
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  Arbiter arbiter(*state, 0);
  std::thread waiter([&] { arbiter.Acquire(); });
  tessera::WaitUntil([&] { return state->layout().devices[0].waiting == 1; });
  child.Kill();
  waiter.join();
  EXPECT_FALSE(arbiter.ShouldYield());
}

TEST(Arbiter, DeadWaiterIsPassedOver) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  TestProcess child([&](TestProcess::Peer&) {
    const auto mine = Attached(scratch.path());
    Arbiter theirs(*mine, 0);
    theirs.Acquire();
  });
  tessera::WaitUntil([&] { return state->layout().devices[0].waiting == 1; });
  child.Kill();
  arbiter.Yield();
  EXPECT_EQ(state->layout().devices[0].waiting, 0u);
}

TEST(Arbiter, KilledInsideTheLockHarmsNobody) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  // No analysis: it never unlocks.
  TestProcess child([&](TestProcess::Peer& parent) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
    const auto mine = Attached(scratch.path());
    mine->layout().devices[0].mutex.Lock();
    mine->layout().mutex.Lock();
    parent.Say();
    parent.Hear();
  });
  ASSERT_TRUE(child.Hear());
  child.Kill();
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  EXPECT_TRUE(state->Charge(0, kMiB));
}

TEST(Arbiter, FrozenProcessDoesNotExecute) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  ASSERT_TRUE(SetFrozen(*state, 0, getpid(), Frozen::kKernels));
  EXPECT_TRUE(arbiter.ShouldYield());
  std::atomic<bool> back = false;
  std::thread yielder([&] {
    arbiter.Yield();
    back = true;
  });
  // The device is free for others while this process is frozen.
  TestProcess other([&](TestProcess::Peer&) {
    const auto mine = Attached(scratch.path());
    Arbiter theirs(*mine, 0);
    theirs.Acquire();
  });
  EXPECT_EQ(other.Wait(), 0);
  EXPECT_FALSE(back);
  ASSERT_TRUE(SetFrozen(*state, 0, getpid(), Frozen::kNothing));
  yielder.join();
  EXPECT_FALSE(arbiter.ShouldYield());
  EXPECT_EQ(SetFrozen(*state, 0, 1 << 30, Frozen::kAll).error().code, ESRCH);
}

// Attaches as a client of the test program, which is the MPS server and has the first slot.
std::unique_ptr<SharedState> MustJoin(const std::string& path) {
  auto state = Attached(path);
  EXPECT_EQ(JoinMpsServer(*state, state->layout().slots[0].process, {}), cuda::CUDA_SUCCESS);
  return state;
}

TEST(Arbiter, ClientsOfOneMpsServerExecuteAtTheSameTime) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  BecomeMpsServer(*state, 100);
  const auto execute = [&](TestProcess::Peer& parent) {
    const auto mine = MustJoin(scratch.path());
    Arbiter arbiter(*mine, 0);
    arbiter.Use(6);
    arbiter.Acquire();
    parent.Say();
    parent.Hear();
  };
  TestProcess first(execute);
  ASSERT_TRUE(first.Hear());
  TestProcess second(execute);
  ASSERT_TRUE(second.Hear());
  const SharedDevice& device = state->layout().devices[0];
  EXPECT_EQ(device.waiting, 0u);
  EXPECT_EQ(device.demand, 12u);
  // A killed one leaves the other one running; whoever wants the device next finds out.
  second.Kill();
  TestProcess third(execute);
  ASSERT_TRUE(third.Hear());
  EXPECT_EQ(device.demand, 12u);
  first.Say();
  third.Say();
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(third.Wait(), 0);
  EXPECT_EQ(device.demand, 0u);
}

TEST(Arbiter, AKilledClientGivesItsMultiprocessorsToTheOthers) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  BecomeMpsServer(*state, 100);
  const SharedDevice& device = state->layout().devices[0];
  const auto execute = [&](TestProcess::Peer& parent) {
    const auto mine = MustJoin(scratch.path());
    Arbiter arbiter(*mine, 0);
    arbiter.Acquire();
    parent.Say();
    while (device.demand != 16) arbiter.Charge(100);
    parent.Say();
    while (device.demand == 16) arbiter.Charge(100);
    EXPECT_EQ(device.demand, 8u);
  };
  TestProcess first(execute), second(execute);
  ASSERT_TRUE(first.Hear());
  ASSERT_TRUE(second.Hear());
  ASSERT_TRUE(first.Hear());
  second.Kill();
  EXPECT_EQ(first.Wait(), 0);
}

// Two that want 6 of 8 multiprocessors each get two thirds of the speed.
TEST(Arbiter, WhoWantsMoreMultiprocessorsThanThereAreIsSlower) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  Arbiter arbiter(*state, 0);
  arbiter.Acquire();
  SharedDevice& device = state->layout().devices[0];
  EXPECT_EQ(device.demand, 8u);
  const Nanos begin = arbiter.end();
  device.demand = 12;
  arbiter.Charge(1000);
  EXPECT_GE(arbiter.end() - begin, 1500 * kMicrosecond);
}

TEST(Arbiter, AGroupTakesTurnsWithOthersAsOne) {
  const ScratchState scratch;
  const auto state = Attached(scratch.path());
  BecomeMpsServer(*state, 100);
  const auto execute = [&](TestProcess::Peer& parent) {
    const auto mine = MustJoin(scratch.path());
    Arbiter arbiter(*mine, 0);
    arbiter.Acquire();
    parent.Say();
    tessera::WaitUntil([&] { return arbiter.ShouldYield(); });
    parent.Say();
    parent.Hear();
    arbiter.Yield();
    parent.Say();
    parent.Hear();
  };
  TestProcess clients[] = {TestProcess(execute), TestProcess(execute)};
  for (const TestProcess& client : clients) ASSERT_TRUE(client.Hear());
  TestProcess outside([&](TestProcess::Peer& parent) {
    const auto mine = Attached(scratch.path());
    Arbiter arbiter(*mine, 0);
    arbiter.Acquire();
    parent.Say();
    parent.Hear();
  });
  // Both have to yield before it may execute.
  for (const TestProcess& client : clients) ASSERT_TRUE(client.Hear());
  const SharedDevice& device = state->layout().devices[0];
  clients[0].Say();
  tessera::WaitUntil([&] { return device.demand == 8; });
  EXPECT_EQ(device.waiting, 1u);
  clients[1].Say();
  ASSERT_TRUE(outside.Hear());
  tessera::WaitUntil([&] { return device.waiting == 2; });
  // And then both are back together.
  outside.Say();
  for (const TestProcess& client : clients) ASSERT_TRUE(client.Hear());
  tessera::WaitUntil([&] { return device.demand == 16; });
}

}  // namespace
}  // namespace tessera::soft
