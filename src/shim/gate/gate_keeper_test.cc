// The keeper of a GPU's gates, with the test in the place of the pacer and of the daemon that writes the page.
#include "shim/gate/gate_keeper.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shim/gate/capture.h"
#include "shim/testing/held_waits.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using wire::GateOrder;

std::atomic<Nanos> the_time;
std::atomic<int> asked;  // how often a keeper looked at the clock: once each time that a thread tries to pass

Nanos Now() {
  ++asked;
  return the_time;
}

// Returns when a thread has tried in vain to pass, and nobody but it asks for the time.
void AwaitTries() {
  const int before = asked;
  while (asked < before + 3) std::this_thread::yield();
}

class GateKeeperTest : public ShimFixture {
 protected:
  GateKeeperTest() : ShimFixture(false) {
    the_time = kSecond;
    shared.window_ns = 2 * kMillisecond;
    shared.idle_grace_ns = kMillisecond;
    {
      const MutexLock lock(page.holding);
      page.Follow(&shared, gpu);
    }
    gate = keeper.GateOf(context);
  }

  void Order(GateOrder order) { FakeDaemon::Order(shared, order); }
  void Pass(Nanos time) { the_time += time; }
  // Whether the next submission would pass its trampoline without a call.
  bool Passes(const Gate& each) const { return each.accepted == shared.epoch && each.budget > 0; }
  // Does what a trampoline does; false where that calls the keeper.
  bool TrySubmit(Gate& each) {
    if (each.accepted != shared.epoch || each.budget.fetch_sub(1) <= 0) return false;
    Launch();
    return true;
  }
  void Submit(Gate& each) {
    if (TrySubmit(each)) return;
    keeper.Enter(each);
    Launch();
  }
  void Launch() {
    reinterpret_cast<cuda::CUresult (*)(cuda::CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, cuda::CUstream, void**, void**)>(
        tessera_real_table[k_cuLaunchKernel])(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  // A submission that the closed gate let wait; returns when it passed.
  void SubmitWhenOpen(GateOrder order) {
    std::thread submits([this] {
      FakeCuda::SetCurrent(context);
      Submit(*gate);
    });
    Daemon().Await<wire::Wants>(gpu);
    Order(order);
    submits.join();
  }

  // The pacer looks until it has told the daemon so often that the token is back.
  wire::Released Release(std::size_t count = 1) {
    while (Daemon().Count<wire::Released>(gpu) < count) {
      keeper.Look();
      Settle();
    }
    return Daemon().Await<wire::Released>(gpu, count);
  }

  wire::Page shared;
  FollowedPage page;
  HostMemory host;
  GateKeeper& keeper = Kept(new GateKeeper(page, host, Now));
  const cuda::CUcontext context = MakeContext();
  Gate* gate = nullptr;
};

TEST_F(GateKeeperTest, OneGateAContext) {
  EXPECT_EQ(keeper.GateOf(context), gate);
  const cuda::CUcontext other = Cuda().MakeContext(device);
  EXPECT_NE(keeper.GateOf(other), gate);
  EXPECT_FALSE(Passes(*gate)) << "closed at first";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gate) % 64, 0u);
}

TEST_F(GateKeeperTest, AClosedGateAsksForTheTokenAndWaits) {
  SubmitWhenOpen(GateOrder::kOpen);
  EXPECT_EQ(Daemon().All<wire::Wants>(gpu).front().waits, 1u);
  EXPECT_EQ(shared.gate_waits, 1u);
  EXPECT_EQ(Cuda().Submitted(context), 1u);
  EXPECT_TRUE(Passes(*gate)) << "the next ones need no call";
}

TEST_F(GateKeeperTest, OneRequestForTheTokenIsEnough) {
  std::thread submits([this] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
  });
  Daemon().Await<wire::Wants>(gpu);
  for (int i = 0; i < 3; ++i) page.Ring();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Wants>(gpu), 1u);
  Order(GateOrder::kOpen);
  submits.join();
}

TEST_F(GateKeeperTest, ATokenThatCameAndWentIsAskedForAgain) {
  std::thread submits([this] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
  });
  Daemon().Await<wire::Wants>(gpu);
  Order(GateOrder::kClosed);
  Daemon().Await<wire::Wants>(gpu, 2);
  Order(GateOrder::kOpen);
  submits.join();
}

TEST_F(GateKeeperTest, AFreeGateLetsWorkPassAndTellsTheDaemon) {
  Order(GateOrder::kFree);
  Submit(*gate);
  Settle();
  ASSERT_EQ(Daemon().Count<wire::Wants>(gpu), 1u);
  EXPECT_EQ(Daemon().All<wire::Wants>(gpu)[0].waits, 0u);
  Submit(*gate);
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Wants>(gpu), 1u);
}

TEST_F(GateKeeperTest, ANewOrderSendsTheNextSubmissionToTheKeeper) {
  SubmitWhenOpen(GateOrder::kOpen);
  ASSERT_TRUE(Passes(*gate));
  Order(GateOrder::kClosed);
  EXPECT_FALSE(TrySubmit(*gate));
}

TEST_F(GateKeeperTest, TheTokenGoesBackWhenWorkHasEnded) {
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kClosed);
  const std::uint32_t epoch = shared.epoch;
  Pass(kMillisecond);
  keeper.Look();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Released>(gpu), 0u) << "the kernel runs still";
  Cuda().End(context);
  Pass(kMillisecond);
  keeper.Look();
  const auto released = Daemon().Await<wire::Released>(gpu);
  EXPECT_EQ(released.epoch, epoch);
  EXPECT_EQ(released.drained_at, the_time);
  EXPECT_EQ(shared.busy_ns, 2 * std::uint64_t{kMillisecond});
  EXPECT_EQ(shared.submissions, 1u);
}

TEST_F(GateKeeperTest, WhatPassedBeforeTheOrderIsWaitedForInAllContexts) {
  SubmitWhenOpen(GateOrder::kOpen);
  const cuda::CUcontext other = MakeContext();
  Submit(*keeper.GateOf(other));
  Order(GateOrder::kClosed);
  keeper.Look();
  Cuda().End(context);
  keeper.Look();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Released>(gpu), 0u);
  Cuda().End(other);
  Release();
}

TEST_F(GateKeeperTest, ClosingTakesTheBudgetBack) {
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kClosed);
  keeper.Look();
  EXPECT_LE(gate->budget, 0);
  EXPECT_EQ(gate->Submitted(), 1);
  // As if the order came back at once: the gate has nothing left to let pass.
  EXPECT_FALSE(TrySubmit(*gate));
  EXPECT_EQ(gate->Submitted(), 1);
}

TEST_F(GateKeeperTest, AnIdleProgramGivesTheTokenBackAfterTheGrace) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().End(context);
  keeper.Look();  // sees the submission
  Pass(kMillisecond / 2);
  keeper.Look();  // places the marker
  keeper.Look();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Idle>(gpu), 0u);
  Pass(2 * kMillisecond);
  keeper.Look();
  const auto idle = Daemon().Await<wire::Idle>(gpu);
  EXPECT_LE(idle.since, the_time - kMillisecond);
  EXPECT_FALSE(TrySubmit(*gate));
}

TEST_F(GateKeeperTest, AParkedProgramSaysThatItRests) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().End(context);
  Order(GateOrder::kClosed);
  Release();
  EXPECT_EQ(shared.rests, 0u) << "not yet: somebody may be between the gate and the driver";
  Pass(20 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(shared.rests, 1u);
}

TEST_F(GateKeeperTest, AParkedProgramSaysThatItRestsAlsoWhereTheDriverHasNoMarkers) {
  Cuda().TakeNoMarkers(context);
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kClosed);
  Release();
  Pass(20 * kMillisecond);
  EXPECT_EQ(Cuda().Synchronized(context), 0u) << "somebody may be between the gate and the driver";
  while (shared.rests == 0) {
    keeper.Look();
    std::this_thread::yield();
  }
  EXPECT_EQ(Cuda().Synchronized(context), 1u) << "one wait for all work is enough";
}

TEST_F(GateKeeperTest, WhereTheDriverHasNoMarkersNobodyWaitsDuringACapture) {
  Cuda().TakeNoMarkers(context);
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kClosed);
  Release();
  AddCapture(cuda::CU_STREAM_PER_THREAD, context);
  Pass(20 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(shared.rests, 0u) << "it cannot be known";
  EXPECT_EQ(Cuda().Synchronized(context), 0u);
  RemoveCapture(cuda::CU_STREAM_PER_THREAD);
  Pass(kSecond);
  while (shared.rests == 0) {
    keeper.Look();
    std::this_thread::yield();
  }
}

// A parked program on a driver without markers, whose work is waited for until the test lets it end.
class GateKeeperWaits : public GateKeeperTest {
 protected:
  GateKeeperWaits() {
    Cuda().TakeNoMarkers(context);
    SubmitWhenOpen(GateOrder::kOpen);
    Order(GateOrder::kClosed);
    Release();
    Pass(20 * kMillisecond);
    keeper.Look();
    waits.Await(1);
  }

  HeldWaits waits{Cuda()};
};

TEST_F(GateKeeperWaits, WorkThatDoesNotEndMakesTheProgramWorkAgain) {
  Pass(100 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(Daemon().Await<wire::Wants>(gpu, 2).waits, 0u);
  keeper.Look();
  Settle();
  EXPECT_EQ(Daemon().Count<wire::Released>(gpu), 1u) << "it runs still";
  waits.Let(1);
  Release(2);
}

TEST_F(GateKeeperWaits, AContextThatEndsHoldsUpOnlyItsOwnThread) {
  std::atomic<bool> begins = false, ended = false;
  std::thread ends([&] {
    begins = true;
    keeper.EndContext(context, true, [&] { return ended = true; });
  });
  while (!begins) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    keeper.Look();
    std::this_thread::yield();
  }
  EXPECT_FALSE(ended) << "a thread is in the context";
  waits.Let(1);
  ends.join();
  EXPECT_TRUE(ended);
}

TEST_F(GateKeeperWaits, AReleaseThatEndsNoContextDoesNotWait) {
  keeper.EndContext(context, false, [] { return false; });
  EXPECT_EQ(keeper.GateOf(context), gate);
  waits.Let(1);
}

TEST_F(GateKeeperWaits, ACaptureBeginsMeanwhile) {
  bool changed = false;
  keeper.WithoutMarkers([&] { changed = true; });
  EXPECT_TRUE(changed);
  waits.Let(1);
}

TEST_F(GateKeeperWaits, AChildOfAForkDoesNotWait) {
  constexpr unsigned kDeadlineS = 60;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(kDeadlineS);
    keeper.AbandonAfterFork();
    keeper.EndContext(context, true, [] { return true; });
    keeper.Stop();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  waits.Let(1);
}

TEST_F(GateKeeperTest, ASubmissionThatCameAfterTheLastMarkerIsFound) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().End(context);
  Order(GateOrder::kClosed);
  Release();
  Launch();  // it passed the gate in time, and was slow to come here
  Pass(20 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(shared.rests, 0u);
  Pass(100 * kMillisecond);
  keeper.Look();
  EXPECT_EQ(Daemon().Await<wire::Wants>(gpu, 2).waits, 0u);
  Cuda().End(context);
  Release(2);
}

TEST_F(GateKeeperTest, ABoundedGateKeepsTheQueueShort) {
  SubmitWhenOpen(GateOrder::kBounded);
  const std::uint64_t window = shared.window;
  ASSERT_GT(window, 0u);
  while (Cuda().Submitted(context) < window && TrySubmit(*gate)) continue;
  while (Cuda().Submitted(context) < window) Submit(*gate);
  std::thread submits([this] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
  });
  AwaitTries();
  EXPECT_EQ(Cuda().Submitted(context), window);
  Cuda().End(context);
  submits.join();
  EXPECT_EQ(Cuda().Submitted(context), window + 1);
}

TEST_F(GateKeeperTest, AWindowThatStaysFullIsPassedAfterAWhile) {
  SubmitWhenOpen(GateOrder::kBounded);
  while (Cuda().Submitted(context) < shared.window) Submit(*gate);
  const std::uint64_t before = Cuda().Submitted(context);
  std::atomic<bool> passed = false;
  std::thread submits([&] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
    passed = true;
  });
  // Queued work may wait for the submission that is held back: none of it ends.
  while (!passed) Pass(kMillisecond);
  submits.join();
  EXPECT_EQ(Cuda().Submitted(context), before + 1);
}

TEST_F(GateKeeperTest, AClosedGateLetsOnePassWhereNothingEnds) {
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kClosed);
  std::atomic<bool> passed = false;
  std::thread submits([&] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
    passed = true;
  });
  while (!passed) {
    Pass(10 * kMillisecond);
    page.Ring();
  }
  submits.join();
  EXPECT_FALSE(TrySubmit(*gate)) << "one, and no more";
}

TEST_F(GateKeeperTest, AStoppedGateLetsNothingPassWhereNothingEnds) {
  SubmitWhenOpen(GateOrder::kOpen);
  Order(GateOrder::kStopped);
  const std::uint64_t waits = shared.gate_waits;
  std::atomic<bool> passed = false;
  std::thread submits([&] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
    passed = true;
  });
  while (shared.gate_waits == waits) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    const int before = asked;
    Pass(kSecond);
    page.Ring();
    while (asked == before) std::this_thread::yield();
  }
  EXPECT_FALSE(passed);
  Order(GateOrder::kOpen);
  submits.join();
}

TEST_F(GateKeeperTest, MemoryInTheHostSendsEachSubmissionToTheKeeper) {
  SubmitWhenOpen(GateOrder::kOpen);
  ASSERT_TRUE(Passes(*gate));
  host.Report(kMiB);
  keeper.Look();
  EXPECT_FALSE(Passes(*gate));
  Submit(*gate);
  EXPECT_FALSE(TrySubmit(*gate)) << "a budget of one";
  host.Report(0);
  Submit(*gate);
  EXPECT_TRUE(Passes(*gate));
}

TEST_F(GateKeeperTest, NoMarkerIsPlacedDuringACapture) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().End(context);
  AddCapture(cuda::CU_STREAM_PER_THREAD, context);
  const std::uint64_t before = Cuda().Markers(context);
  Order(GateOrder::kClosed);
  keeper.Look();
  EXPECT_EQ(Cuda().Markers(context), before);
  Daemon().Await<wire::Released>(gpu);
  Pass(kSecond);
  keeper.Look();
  EXPECT_EQ(shared.rests, 0u) << "it cannot be known";
  RemoveCapture(cuda::CU_STREAM_PER_THREAD);
  Pass(kSecond);
  keeper.Look();
  EXPECT_EQ(shared.rests, 1u);
}

TEST_F(GateKeeperTest, TheEndOfWorkThatTheProgramWaitsForIsSeenAtOnce) {
  SubmitWhenOpen(GateOrder::kBounded);
  Pass(kMillisecond);
  keeper.BeforeSync(*gate);
  Cuda().End(context);
  Pass(kMillisecond);
  keeper.AfterSync(*gate);
  EXPECT_TRUE(gate->markers->Drained());
  EXPECT_EQ(gate->markers->LastReached(), the_time);
}

TEST_F(GateKeeperTest, WhereNobodyBoundsTheQueueWaitingCostsNoMarker) {
  SubmitWhenOpen(GateOrder::kOpen);
  const std::uint64_t before = Cuda().Markers(context);
  keeper.BeforeSync(*gate);
  keeper.AfterSync(*gate);
  EXPECT_EQ(Cuda().Markers(context), before);
}

TEST_F(GateKeeperTest, AContextThatEndsTakesItsWorkAlong) {
  SubmitWhenOpen(GateOrder::kOpen);
  keeper.EndContext(context, true, [] { return true; });
  Order(GateOrder::kClosed);
  Release();
  const cuda::CUcontext next = MakeContext();
  EXPECT_EQ(keeper.GateOf(next), gate) << "gates are used again";
  EXPECT_FALSE(Passes(*gate));
}

TEST_F(GateKeeperTest, AContextThatDoesNotEndKeepsItsGate) {
  keeper.EndContext(context, true, [] { return false; });
  EXPECT_EQ(keeper.GateOf(context), gate);
}

TEST_F(GateKeeperTest, AnotherDaemonIsToldOfWorkAndItsPageIsFollowed) {
  SubmitWhenOpen(GateOrder::kOpen);
  wire::Page next;
  next.epoch = 40;
  bool told = false;
  EXPECT_TRUE(keeper.Reattach([&](bool works) {
    told = works;
    const MutexLock lock(page.holding);
    page.Follow(&next, gpu);
    return true;
  }));
  EXPECT_TRUE(told);
  EXPECT_EQ(gate->epoch, &next.epoch);
  EXPECT_NE(gate->accepted, next.epoch);
}

TEST_F(GateKeeperTest, WithoutADaemonWorkGoesOnOrWaits) {
  SubmitWhenOpen(GateOrder::kOpen);
  for (const bool block : {true, false}) {
    EXPECT_TRUE(keeper.GoOnAlone(block, [&] {
      const MutexLock lock(page.holding);
      page.FollowOwn(0, block);
      return true;
    }));
    EXPECT_TRUE(page.FollowsOwn());
    EXPECT_EQ(page->gate, block ? GateOrder::kClosed : GateOrder::kOpen);
  }
  Submit(*gate);
  EXPECT_EQ(Cuda().Submitted(context), 2u);
}

TEST_F(GateKeeperTest, AtTheEndNothingWaits) {
  Order(GateOrder::kClosed);
  std::thread submits([this] {
    FakeCuda::SetCurrent(context);
    Submit(*gate);
  });
  Daemon().Await<wire::Wants>(gpu);
  keeper.Stop();
  page.Ring();
  submits.join();
  EXPECT_EQ(keeper.Look(), std::nullopt);
  Submit(*gate);
}

TEST_F(GateKeeperTest, CallsThatMayWaitAreCountedInThePageThatIsFollowed) {
  keeper.Calls().Add(1);
  keeper.Calls().Add(1);
  EXPECT_EQ(shared.calls, 2u);
  wire::Page next;
  {
    const MutexLock lock(page.holding);
    page.Follow(&next, gpu);
  }
  keeper.Calls().Report();
  EXPECT_EQ(next.calls, 2u);
  keeper.Calls().Add(-1);
  EXPECT_EQ(next.calls, 1u);
  EXPECT_EQ(shared.calls, 2u);
}

TEST_F(GateKeeperTest, ABrokenContextHoldsNothingUp) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().Break(context);
  Order(GateOrder::kClosed);
  Release();
}

}  // namespace
}  // namespace tessera::shim
