// Bounds of the queue, and markers in it: what passes a gate that is bounded, closed or stopped.
#include <thread>

#include "shim/gate/capture.h"
#include "shim/testing/gate_keeper_fixture.h"

namespace tessera::shim {
namespace {

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

TEST_F(GateKeeperTest, EachSubmissionIsSeenWhereThatIsAskedFor) {
  SubmitWhenOpen(GateOrder::kOpen);
  ASSERT_TRUE(Passes(*gate));
  keeper.SeeEach(true);
  Gate* other = keeper.GateOf(Cuda().MakeContext(device));
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Passes(*gate));
    Submit(*gate);
    EXPECT_TRUE(keeper.Enter(*other));
    EXPECT_FALSE(Passes(*other));
  }
  EXPECT_EQ(gate->Submitted(), 6);
  keeper.SeeEach(false);
  Submit(*gate);
  EXPECT_TRUE(Passes(*gate));
  EXPECT_EQ(gate->Submitted(), 7);
}

// A thread that waited for the move must not go on in the context that was left: its work would run beside that in the
// new one.
TEST_F(GateKeeperTest, NothingPassesInAContextThatTheWorkHasLeft) {
  SubmitWhenOpen(GateOrder::kOpen);
  const cuda::CUcontext other = Cuda().MakeContext(device);
  Cuda().End(context);
  keeper.WithoutWork([&] { return other; });
  EXPECT_TRUE(keeper.Enter(*gate));
  EXPECT_FALSE(Passes(*gate));
  EXPECT_EQ(gate->Submitted(), 1) << "it was not counted";
  Gate* next = keeper.GateOf(other);
  EXPECT_TRUE(keeper.Enter(*next));
  EXPECT_TRUE(Passes(*next));
  Cuda().End(other);
  keeper.WithoutWork([&] { return context; });
  EXPECT_TRUE(keeper.Enter(*gate));
  EXPECT_TRUE(Passes(*gate));
  EXPECT_TRUE(keeper.Enter(*next));
  EXPECT_FALSE(Passes(*next));
}

TEST_F(GateKeeperTest, WorkThatStaysGoesOn) {
  SubmitWhenOpen(GateOrder::kOpen);
  Cuda().End(context);
  keeper.WithoutWork([] { return nullptr; });
  EXPECT_FALSE(Passes(*gate));
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

}  // namespace
}  // namespace tessera::shim
