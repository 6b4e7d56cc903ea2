#include "server/time/steering_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

namespace abi = channel::abi;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = channel::ObjectEvent::Kind;
using Source = ChannelServer::Source;
using State = GateRecord::State;

using SteeringServerTest = SteeredGpuTest;

TEST_F(SteeringServerTest, SteersOnceTheChannelsAreKnown) {
  gpu_.Time().Choose(Now());
  EXPECT_TRUE(Steers());  // nobody is there whose channels could be unknown
  Member& member = Join(low_);
  Works(member);
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().WhyNot(Divider::kChannels), testing::HasSubstr("not known"));
  MakeContext(member);
  EXPECT_TRUE(Steers());
  EXPECT_EQ(member.Order(), wire::GateOrder::kFree);
}

TEST_F(SteeringServerTest, AHigherClassFreezesWhatComputesAndNothingElse) {
  Member& low = Running(low_);
  Member& high = Join(high_);
  MakeContext(high);
  EXPECT_FALSE(Frozen(low));
  Works(high);
  EXPECT_TRUE(Frozen(low, 10));
  EXPECT_TRUE(Frozen(low, 11));
  EXPECT_FALSE(Frozen(low, 20));  // its copies go on
  EXPECT_FALSE(Frozen(high));
  EXPECT_EQ(low.Order(), wire::GateOrder::kFree);  // what it submits waits on the GPU
  Rests(high);
  EXPECT_FALSE(Frozen(low));
}

TEST_F(SteeringServerTest, WhoHasNothingQueuedWaitsAtItsGateWithoutACall) {
  Member& high = Running(high_);
  Member& low = Join(low_);
  MakeContext(low);
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  Works(low);
  EXPECT_EQ(low.process.gate.state, State::kWanting);
  EXPECT_EQ(control_->Counts().freezes, 0u);
  Rests(high);
  EXPECT_EQ(low.Order(), wire::GateOrder::kFree);
  EXPECT_EQ(low.process.gate.state, State::kRunning);
}

TEST_F(SteeringServerTest, WaitsAreCountedAtTheGateAndFrozen) {
  const auto waits = [](const VGpu& vgpu) {
    return std::accumulate(vgpu.waits.Buckets().begin(), vgpu.waits.Buckets().end(), std::uint64_t{0});
  };
  Member& low = Running(low_);
  EXPECT_EQ(waits(low_), 1u) << "it was let on at once";
  EXPECT_EQ(low_.waits.Sum(), 0);
  Member& high = Running(high_);
  ASSERT_TRUE(Frozen(low));
  EXPECT_EQ(waits(low_), 1u) << "not over yet";
  Rests(high);
  EXPECT_EQ(waits(low_), 2u);
  const Nanos frozen = low_.waits.Sum();
  EXPECT_GT(frozen, 0);
  Rests(low);
  Works(high);
  Works(low);
  ASSERT_EQ(low.process.gate.state, State::kWanting);
  Rests(high);
  EXPECT_EQ(waits(low_), 3u);
  EXPECT_GT(low_.waits.Sum(), frozen);
  EXPECT_EQ(waits(high_), 2u);
  EXPECT_EQ(high_.waits.Sum(), 0);
}

TEST_F(SteeringServerTest, WorkThatPassedAGateWhichWasJustClosedIsFrozen) {
  Member& low = Join(low_);
  MakeContext(low);
  Running(high_);
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  gpu_.Time().Wants(low.process, false, Now());
  EXPECT_TRUE(Frozen(low));
}

// Seen on a real GPU: whoever ran while channel control was still being tested counted as idle afterwards.
TEST_F(SteeringServerTest, WhoRanByTokenRunsOnWhenChannelsTakeOver) {
  channels_.Availability().BeginTest();
  Member& low = Running(low_);
  ASSERT_FALSE(Steers());
  ASSERT_EQ(low.process.gate.state, State::kRunning);
  channels_.Availability().EndTest({});
  gpu_.Time().Choose(Now());
  ASSERT_TRUE(Steers());
  EXPECT_EQ(low.process.gate.state, State::kRunning);
  Running(high_);
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, WhoWasFrozenIsThawedWhenGatesTakeOver) {
  Member& low = Running(low_);
  Member& high = Running(high_);
  ASSERT_TRUE(Frozen(low));
  low.process.freeze.evades = high.process.freeze.evades = true;  // nobody is left who obeys
  gpu_.Time().Choose(Now());
  EXPECT_FALSE(Steers());
  EXPECT_FALSE(Frozen(low));
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  EXPECT_EQ(low.process.gate.state, State::kDraining);  // what was frozen runs
}

TEST_F(SteeringServerTest, EachReasonStandsForItself) {
  Member& low = Running(low_);
  Member& high = Running(high_);
  Freeze(low.process, true);
  EXPECT_TRUE(Frozen(low, 20));  // an operator stops its copies too
  Rests(high);
  EXPECT_TRUE(Frozen(low));
  Freeze(low.process, false);
  EXPECT_FALSE(Frozen(low));
  EXPECT_FALSE(Frozen(low, 20));
}

TEST_F(SteeringServerTest, AnOperatorsThawDoesNotUndoThePolicy) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  Running(high_);
  Freeze(low.process, false);
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, NewChannelsOfAFrozenProcessAreFrozen) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim, Now());
  EXPECT_TRUE(Frozen(low, 12));
}

// Seen on a real GPU: channels that were taken off twice did not come back with one thaw.
TEST_F(SteeringServerTest, NoChannelIsTakenOffTwice) {
  Member& low = Running(low_);
  Running(high_);
  Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim, Now());
  MakeContext(low);  // as to a new daemon
  EXPECT_TRUE(Frozen(low, 12));
  EXPECT_FALSE(control_->twice);
  Freeze(low.process, false);
  EXPECT_TRUE(Frozen(low, 10));
  EXPECT_FALSE(Frozen(low, 20));  // the policy stops what computes only
}

TEST_F(SteeringServerTest, AHandleThatCameBackIsAnotherChannel) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {.kind = Kind::kFree, .fd = 5, .client = client, .object = 11}, Source::kShim,
                    Now());
  control_->frozen.erase({client, 11});
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 11, abi::kAnyChannel, 0}, Source::kShim, Now());
  EXPECT_TRUE(Frozen(low, 11));
}

TEST_F(SteeringServerTest, WhatAnEarlierDaemonFrozeIsThawedOnce) {
  Member& low = Running(low_);
  const pid_t pid = low.process.pid;
  Freeze(low.process, true);
  const auto objects = channels_.Table().Objects(pid).Events();
  auto control = std::make_unique<FakeControl>();
  FakeControl& after = *control;
  after.frozen = control_->frozen;
  ChannelServer next(std::move(control), "", nullptr);
  next.Restore(pid, objects, true);
  EXPECT_TRUE(next.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_FALSE(after.twice);
  EXPECT_TRUE(next.Freezer().Thaw(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(after.frozen, IsEmpty());
}

TEST_F(SteeringServerTest, ClaimsToAnothersChannelsAreNotBelieved) {
  Member& liar = Join(low_);
  control_->foreign.insert(ClientOf(liar));
  MakeContext(liar);
  Works(liar);
  Running(high_);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_TRUE(Steers()) << "its neighbour keeps its channels";
  EXPECT_EQ(liar.Order(), wire::GateOrder::kClosed) << "it is stopped by its gate";
}

TEST_F(SteeringServerTest, AFrozenOnesClaimsToAnothersChannelsAreNotBelievedEither) {
  Member& liar = Running(low_);
  Running(high_);
  ASSERT_TRUE(Frozen(liar));
  const std::uint32_t neighbour = 0xc1d0ffff;
  control_->foreign.insert(neighbour);
  const auto claim = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
    channels_.Observe(liar.process.pid, {Kind::kAlloc, 5, neighbour, parent, object, cls, detail}, Source::kShim,
                      Now());
  };
  claim(0, neighbour, abi::kRootClient, 0);
  claim(neighbour, 2, abi::kDevice, 0);
  claim(2, 7, abi::kChannelGroup, abi::kEngineGraphics);
  claim(7, 70, abi::kAnyChannel, 0);
  EXPECT_FALSE(control_->frozen.contains({neighbour, 70}));
}

TEST_F(SteeringServerTest, WhatTheKernelGateTellsNoShimUndoes) {
  Member& guest = Guest(low_);
  channels_.Observe(guest.process.pid, {Kind::kAlloc, 5, 0xc1d0ffff, 0, 0xc1d0ffff, abi::kRootClient, 0}, Source::kShim,
                    Now());
  control_->foreign.insert(0xc1d0ffff);
  Running(high_);
  EXPECT_TRUE(Frozen(guest));
}

// One of two goes idle: the other has the whole slice of their vGPU.
TEST_F(SteeringServerTest, WhoIsLeftOfAVgpuHasItsWholeSlice) {
  Member& one = Running(high_);
  Member& two = Running(high_);
  VGpu other;
  Make(other, 3, 2);
  Member& rival = Running(other);
  const auto becomes = [&](double part) {
    return Becomes([&] {
      return std::abs(static_cast<double>(control_->slices[one.process.pid]) -
                      part * static_cast<double>(control_->slices[rival.process.pid])) <= kMicrosecond;
    });
  };
  EXPECT_TRUE(becomes(0.5));
  Rests(two);
  EXPECT_TRUE(becomes(1));
  Works(two);
  EXPECT_TRUE(becomes(0.5));
  gpu_.Leave(rival.process, Now());
  channels_.Forget(rival.process.pid);
  members_.pop_back();
  gpu_.Remove(other, Now());
  gpu_.Forget(other);
}

// With the driver's own slices a tenth of the time would go into changes.
TEST_F(SteeringServerTest, ProcessesThatCompeteWithOneAnotherAloneHaveLongerSlices) {
  Member& one = Running(high_);
  EXPECT_EQ(control_->slices[one.process.pid], 0) << "nobody competes with it";
  Member& two = Running(high_);
  EXPECT_TRUE(HasSlice(one, 10 * kMillisecond));
  EXPECT_TRUE(HasSlice(two, 10 * kMillisecond));
}

// Seen on a real GPU: one that came while its vGPU was stopped kept the driver's slice.
TEST_F(SteeringServerTest, WhoComesWhileItsVgpuIsStoppedGetsItsPartWhenThatGoes) {
  Member& one = Running(low_);
  Member& high = Running(high_);
  Member& two = Join(low_);
  MakeContext(two);
  Works(two);
  ASSERT_EQ(two.process.gate.state, State::kWanting);
  Pass(150 * kMillisecond);  // what its context changed is applied
  Rests(high);
  ASSERT_EQ(two.process.gate.state, State::kRunning);
  EXPECT_TRUE(HasSlice(one, 10 * kMillisecond));
  EXPECT_TRUE(HasSlice(two, 10 * kMillisecond));
}

TEST_F(SteeringServerTest, ProcessesOfAVgpuShareItsSlice) {
  Member& one = Running(high_);
  Running(high_);
  VGpu other;
  Make(other, 3, 2);
  Member& rival = Running(other);
  ASSERT_GT(control_->slices[rival.process.pid], 0);
  EXPECT_TRUE(HasSlice(one, control_->slices[rival.process.pid] / 2));
  gpu_.Leave(rival.process, Now());
  channels_.Forget(rival.process.pid);
  members_.pop_back();
  gpu_.Remove(other, Now());
  gpu_.Forget(other);
}

TEST_F(SteeringServerTest, WhoGoesOnWhileItIsFrozenIsLeftToItsGate) {
  Member& low = Running(low_);
  const Nanos before = MonotonicNow();
  Freeze(low.process, true);
  low.process.page->reached_ns = before;  // as it was submitted before, it may well have ended
  Reconcile({});
  Reconcile({});
  EXPECT_TRUE(Steers());
  low.process.page->reached_ns = MonotonicNow();
  Reconcile({});
  EXPECT_TRUE(Steers()) << "the news of new channels may be under way";
  EXPECT_TRUE(gpu_.Measurement().NeedsWatching());
  Reconcile({});
  EXPECT_TRUE(Steers()) << "some submissions need no channel";
  low.process.page->reached_ns = MonotonicNow();
  Reconcile({});
  EXPECT_TRUE(Steers());
  low.process.page->reached_ns = MonotonicNow();
  Reconcile({});
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().WhyNot(Divider::kChannels), testing::HasSubstr("went on while its channels were frozen"));
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  Freeze(low.process, false);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(Steers());
  channels_.Forget(low.process.pid);
  gpu_.Leave(low.process, Now());
  members_.pop_back();
  EXPECT_TRUE(Steers());
}

TEST_F(SteeringServerTest, WorkThatEndedBeforeNewChannelsWereFrozenTooIsNoOffence) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  low.process.page->reached_ns = MonotonicNow();
  Reconcile({});
  const std::uint32_t client = ClientOf(low);
  low.process.page->reached_ns = MonotonicNow();
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim, Now());
  Reconcile({});
  Reconcile({});
  EXPECT_TRUE(Steers());
}

TEST_F(SteeringServerTest, AFreezeThatFailedAccusesNobody) {
  Member& low = Running(low_);
  control_->fails = true;
  Freeze(low.process, true);
  low.process.page->reached_ns = MonotonicNow();
  EXPECT_EQ(channels_.Freezer().StatusOf(low.process.pid, 0).still_since, 0);
  control_->fails = false;
  Running(high_);  // tried again with the next reason
  EXPECT_TRUE(Frozen(low));
  EXPECT_TRUE(Frozen(low, 20));
  EXPECT_FALSE(control_->twice);
}

TEST_F(SteeringServerTest, OneThatCannotBeFrozenKeepsNobodyElseRunning) {
  Member& low = Running(low_);
  Member& other = Running(low_);
  control_->fails_for = low.process.pid;
  Running(high_);
  EXPECT_FALSE(Frozen(low));
  EXPECT_TRUE(Frozen(other));
}

TEST_F(SteeringServerTest, NobodyIsStillWhoseChannelsAreNotKnown) {
  Member& low = Join(low_);
  Freeze(low.process, true);
  EXPECT_EQ(channels_.Freezer().StatusOf(low.process.pid, 0).still_since, 0);
}

// Its copies go on when policy freezes it, so what has ended says nothing.
TEST_F(SteeringServerTest, WorkThatEndsUnderAPolicysFreezeIsNoOffence) {
  Member& low = Running(low_);
  Running(high_);
  for (int look = 0; look < 3; ++look) {
    low.process.page->reached_ns = MonotonicNow();
    Reconcile({});
  }
  EXPECT_TRUE(Steers());
}

TEST_F(SteeringServerTest, WhatAnOperatorFrozeStaysFrozenWhenItsConnectionCloses) {
  const pid_t pid = getpid();  // one that lives
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 0, 1, abi::kRootClient, 0}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 1, 2, abi::kDevice, 0}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 2, 3, abi::kChannelGroup, abi::kEngineGraphics}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 3, 10, abi::kAnyChannel, 0}, Source::kGuard, Now());
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  channels_.Forget(pid);
  channels_.Tick();
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_EQ(channels_.Freezer().StatusOf(pid, 0).reasons, FreezeReason::kOperator);
  ASSERT_TRUE(channels_.Freezer().Thaw(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, IsEmpty());
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  channels_.Forget(pid);
  EXPECT_THAT(control_->frozen, IsEmpty()) << "nobody would undo what a policy did";
  EXPECT_FALSE(channels_.Knows(pid, 0));
}

TEST_F(SteeringServerTest, WhoIsForgottenInTheMiddleOfAMoveIsThawedWhenItCouldGoOn) {
  const pid_t pid = getpid();  // one that lives
  auto page = SharedPage::Create(0);
  ASSERT_TRUE(page);
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 0, 1, abi::kRootClient, 0}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 1, 2, abi::kDevice, 0}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 2, 3, abi::kChannelGroup, abi::kEngineGraphics}, Source::kGuard, Now());
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 3, 10, abi::kAnyChannel, 0}, Source::kGuard, Now());
  channels_.Freezer().HeedMoveGuard(pid, 0, page->Fd(), offsetof(wire::Page, guard));
  (*page)->guard.unsafe = 1;
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kMove));
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  channels_.Forget(pid);
  channels_.Freezer().RetryThaws();
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_EQ((*page)->guard.released, 1u);
  (*page)->guard.unsafe = 0;
  channels_.Freezer().RetryThaws();
  EXPECT_THAT(control_->frozen, IsEmpty());
  // It ends, and nothing is left of it.
  channels_.Forget(pid);
  EXPECT_FALSE(channels_.Knows(pid, 0));
}

TEST_F(SteeringServerTest, WhoWasFrozenWhileThatCouldNotBeDoneIsFrozenLater) {
  Member& low = Running(low_);
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  Freeze(low_, true);
  EXPECT_FALSE(Frozen(low));
  channels_.Availability().EndTest({});
  gpu_.Time().Choose(Now());
  gpu_.Freezes().ApplyAll(Now());
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, AVgpuThatIsRemovedStopsItsPrograms) {
  Member& low = Running(low_);
  gpu_.Remove(low_, Now());
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  EXPECT_TRUE(Frozen(low));
}

// The driver refuses a thaw once.
TEST_F(SteeringServerTest, AThawThatFailedIsTriedAgain) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  ASSERT_TRUE(Frozen(low));
  control_->thaw_fails = true;
  Freeze(low.process, false);
  channels_.Freezer().RetryThaws();
  EXPECT_TRUE(Frozen(low));
  control_->thaw_fails = false;
  channels_.Freezer().RetryThaws();
  EXPECT_FALSE(Frozen(low));
  Freeze(low.process, true);
  EXPECT_FALSE(control_->twice);
}

// It slept at its gate, and sees only that this is free.
TEST_F(SteeringServerTest, WhoWaitedForTheTokenRunsWhenChannelsTakeOver) {
  channels_.Availability().BeginTest();
  Running(low_);
  VGpu other;
  Make(other, 3, 12);
  Member& waiting = Running(other);
  ASSERT_EQ(waiting.process.gate.state, State::kWanting);
  channels_.Availability().EndTest({});
  gpu_.Time().Choose(Now());
  ASSERT_TRUE(Steers());
  EXPECT_EQ(waiting.process.gate.state, State::kRunning);
  EXPECT_GT(control_->slices[waiting.process.pid], 0);
  gpu_.Leave(waiting.process, Now());
  channels_.Forget(waiting.process.pid);
  members_.pop_back();
  gpu_.Remove(other, Now());
  gpu_.Forget(other);
}

// It says across processes that it has thawed something.
class WatchdogsControl : public FakeControl {
 public:
  explicit WatchdogsControl(std::atomic<bool>& thawed) : thawed_(thawed) {}
  Result<void> Thaw(std::uint32_t, std::span<const channel::Target>, channel::Reach) override {
    thawed_ = true;
    return {};
  }

 private:
  std::atomic<bool>& thawed_;
};

// A daemon whose watchdog finds that it hangs whenever it says nothing for 5 ms.
class HangingDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    void* shared = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    thawed_ = new (shared) std::atomic<bool>();
    auto watchdog = channel::Watchdog::Start(
        [this]() -> Result<std::unique_ptr<channel::Control>> { return std::make_unique<WatchdogsControl>(*thawed_); },
        5 * kMillisecond);
    ASSERT_TRUE(watchdog) << watchdog.error().Text();
    watchdog_ = std::move(*watchdog);
    auto control = std::make_unique<FakeControl>();
    control_ = control.get();
    channels_.emplace(std::move(control), "", watchdog_.get());
  }
  // As a program does whose client is `client`: channel 10.
  void MakeChannel(pid_t pid, std::uint32_t client) {
    const auto made = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
      channels_->Observe(pid, {Kind::kAlloc, 5, client, parent, object, cls, detail}, Source::kGuard, 0);
    };
    made(0, client, abi::kRootClient, 0);
    made(client, 2, abi::kDevice, 0);
    made(2, 3, abi::kChannelGroup, abi::kEngineGraphics);
    made(3, 10, abi::kAnyChannel, 0);
  }
  void Hang() {
    while (!*thawed_) std::this_thread::yield();
  }

  std::atomic<bool>* thawed_ = nullptr;
  std::unique_ptr<channel::Watchdog> watchdog_;
  FakeControl* control_ = nullptr;
  std::optional<ChannelServer> channels_;
};

// It is frozen by policy, this daemon hangs, the watchdog thaws, an operator freezes before anybody looked.
TEST_F(HangingDaemonTest, AnOperatorsFreezeTakesNoFreezeForDoneThatTheWatchdogUndid) {
  const pid_t pid = getpid();
  MakeChannel(pid, 1);
  ASSERT_TRUE(channels_->Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  Hang();
  control_->frozen.clear();  // which the watchdog did
  ASSERT_TRUE(channels_->Freezer().Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_FALSE(control_->twice);
  channels_->Forget(pid);
}

TEST_F(HangingDaemonTest, WhomTheWatchdogLeftInTheMiddleOfAMoveIsNotThawedAfterwardsEither) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const pid_t pids[] = {getpid(), child};  // two that live
  auto page = SharedPage::Create(0);
  ASSERT_TRUE(page);
  (*page)->guard.unsafe = 1;
  channels_->Freezer().HeedMoveGuard(pids[1], 0, page->Fd(), offsetof(wire::Page, guard));
  MakeChannel(pids[0], 1);
  MakeChannel(pids[1], 8);
  ASSERT_TRUE(channels_->Freezer().Freeze(0, pids, FreezeReason::kMove));
  Hang();
  control_->frozen.erase({1, 10});  // which the watchdog did
  channels_->Freezer().Beat();
  EXPECT_THAT(control_->frozen, SizeIs(2));
  EXPECT_FALSE(control_->thawed.contains(pids[1]));
  EXPECT_FALSE(control_->twice);
  (*page)->guard.unsafe = 0;
  ASSERT_TRUE(channels_->Freezer().Thaw(0, pids, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, IsEmpty());
  for (const pid_t pid : pids) channels_->Forget(pid);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tessera::server
