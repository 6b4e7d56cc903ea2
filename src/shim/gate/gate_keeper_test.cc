// Tokens and orders: which submissions pass, and what the daemon is told.
#include "shim/gate/gate_keeper.h"

#include <thread>

#include "shim/gate/capture.h"
#include "shim/testing/gate_keeper_fixture.h"

namespace tessera::shim {
namespace {

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

TEST_F(GateKeeperTest, WhoWaitsForARemovedVgpuIsSentAway) {
  std::thread submits([this] {
    FakeCuda::SetCurrent(context);
    EXPECT_FALSE(keeper.Enter(*gate));
  });
  Daemon().Await<wire::Wants>(gpu);
  shared.removed = 1;
  Order(GateOrder::kClosed);
  submits.join();
  Order(GateOrder::kOpen);
  EXPECT_FALSE(keeper.Enter(*gate)) << "for good";
  keeper.Stop();
  EXPECT_FALSE(keeper.Enter(*gate)) << "nor at the end";
  EXPECT_FALSE(Passes(*gate));
}

// Its kernel may wait for another submission. That is let pass elsewhere.
TEST_F(GateKeeperTest, NothingOfARemovedVgpuPassesBecauseItIsStuck) {
  SubmitWhenOpen(GateOrder::kOpen);
  shared.removed = 1;
  Order(GateOrder::kClosed);
  keeper.Look();
  Pass(kSecond);
  EXPECT_FALSE(keeper.Enter(*gate));
  EXPECT_EQ(Cuda().Submitted(context), 1u);
  Cuda().End(context);
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
