#include "server/steering_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/gpu_server.h"
#include "server/testing/fake_control.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {
namespace {

namespace abi = channel::abi;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = channel::ObjectEvent::Kind;
using Source = ChannelServer::Source;
using State = Gate::State;

constexpr std::uint32_t kGroup = 3, kCopies = 4;
constexpr std::uint64_t kContext = 100 * kMiB;

// A GPU with the vGPUs high (priority 2) and low (12) and processes in them, whose channels a fake control steers.
class SteeringServerTest : public testing::Test {
 protected:
  struct Member {
    Member(pid_t pid, VGpu& vgpu) : process(std::move(*SharedPage::Create(0)), pid), vgpu(vgpu) {}
    wire::Gate Order() const { return process.page->gate.load(); }
    Process process;
    VGpu& vgpu;
  };

  void SetUp() override {
    channels_.OnChange([this](pid_t pid) { gpu_.ChannelsChanged(pid); });
    Make(high_, 1, 2);
    Make(low_, 2, 12);
  }
  void TearDown() override {
    for (auto& member : members_) {
      gpu_.Leave(member->process);
      channels_.Forget(member->process.pid);
    }
  }

  void Make(VGpu& vgpu, VgpuId id, std::uint32_t priority) {
    vgpu.id = id;
    vgpu.spec.compute.priority = priority;
    ASSERT_TRUE(gpu_.Add(vgpu));
  }

  Member& Join(VGpu& vgpu) {
    const auto pid = static_cast<pid_t>(500'000'000 + members_.size());  // beyond any that exists
    members_.push_back(std::make_unique<Member>(pid, vgpu));
    gpu_.Join(vgpu, members_.back()->process, 0, 1);
    return *members_.back();
  }

  // A program without a shim that made a context.
  Member& Guest(VGpu& vgpu) {
    Member& member = Join(vgpu);
    member.process.guest = member.process.gate.ungated = true;
    MakeContext(member, Source::kGuard);
    gpu_.Wants(member.process, false);
    return member;
  }

  static std::uint32_t ClientOf(const Member& member) { return 0xc1d00000 + (member.process.pid & 0xffff); }

  // As a context does: a group that computes with two channels, and one that copies.
  void MakeContext(const Member& member, Source source = Source::kShim) {
    const std::uint32_t client = ClientOf(member);
    const auto made = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
      channels_.Observe(member.process.pid, {Kind::kAlloc, 5, client, parent, object, cls, detail}, source);
    };
    made(0, client, abi::kRootClient, 0);
    made(client, 2, abi::kDevice, 0);
    made(2, kGroup, abi::kChannelGroup, abi::kEngineGraphics);
    made(2, kCopies, abi::kChannelGroup, 0xb);
    made(kGroup, 10, abi::kAnyChannel, 0);
    made(kGroup, 11, abi::kAnyChannel, 0);
    made(kCopies, 20, abi::kAnyChannel, 0);
  }

  Member& Running(VGpu& vgpu) {
    Member& member = Join(vgpu);
    MakeContext(member);
    Works(member);
    return member;
  }
  // As a program does: where the gate is free it says so, else it asks.
  void Works(Member& member) { gpu_.Wants(member.process, member.Order() != wire::Gate::kFree); }
  void Rests(Member& member) { gpu_.Idle(member.process, MonotonicNow()); }

  bool Frozen(const Member& member, std::uint32_t channel = 10) const {
    return control_->frozen.contains({ClientOf(member), channel});
  }

  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  const Config config_;
  std::unique_ptr<FakeControl> owned_control_ = std::make_unique<FakeControl>();
  FakeControl* control_ = owned_control_.get();
  ChannelServer channels_{std::move(owned_control_), "", nullptr};
  GpuServer gpu_{*loop_, 0, {FakeDriver::UuidOf(0), "Fake GPU", 10 * kGiB, kContext}, 0, config_, channels_};
  VGpu high_, low_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(SteeringServerTest, SteersOnceTheChannelsAreKnown) {
  gpu_.ChooseControl();
  EXPECT_TRUE(gpu_.Steers());  // nobody is there whose channels could be unknown
  Member& member = Join(low_);
  Works(member);
  EXPECT_FALSE(gpu_.Steers());
  EXPECT_THAT(gpu_.WhyGate(), testing::HasSubstr("not known"));
  MakeContext(member);
  EXPECT_TRUE(gpu_.Steers());
  EXPECT_EQ(member.Order(), wire::Gate::kFree);
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
  EXPECT_EQ(low.Order(), wire::Gate::kFree);  // what it submits waits on the GPU
  Rests(high);
  EXPECT_FALSE(Frozen(low));
}

TEST_F(SteeringServerTest, WhoHasNothingQueuedWaitsAtItsGateWithoutACall) {
  Member& high = Running(high_);
  Member& low = Join(low_);
  MakeContext(low);
  EXPECT_EQ(low.Order(), wire::Gate::kClosed);
  Works(low);
  EXPECT_EQ(low.process.gate.state, State::kWanting);
  EXPECT_EQ(control_->Counts().freezes, 0u);
  Rests(high);
  EXPECT_EQ(low.Order(), wire::Gate::kFree);
  EXPECT_EQ(low.process.gate.state, State::kRunning);
}

TEST_F(SteeringServerTest, WorkThatPassedAGateWhichWasJustClosedIsFrozen) {
  Member& low = Join(low_);
  MakeContext(low);
  Running(high_);
  EXPECT_EQ(low.Order(), wire::Gate::kClosed);
  gpu_.Wants(low.process, false);
  EXPECT_TRUE(Frozen(low));
}

// Seen on a real GPU: whoever ran while channel control was still being tested counted as idle afterwards.
TEST_F(SteeringServerTest, WhoRanByTokenRunsOnWhenChannelsTakeOver) {
  channels_.SetAvailable("its test is under way");
  Member& low = Running(low_);
  ASSERT_FALSE(gpu_.Steers());
  ASSERT_EQ(low.process.gate.state, State::kRunning);
  channels_.SetAvailable("");
  gpu_.ChooseControl();
  ASSERT_TRUE(gpu_.Steers());
  EXPECT_EQ(low.process.gate.state, State::kRunning);
  Running(high_);
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, WhoWasFrozenIsThawedWhenGatesTakeOver) {
  Member& low = Running(low_);
  Running(high_);
  ASSERT_TRUE(Frozen(low));
  Works(Join(high_));  // one whose channels nobody knows
  EXPECT_FALSE(gpu_.Steers());
  EXPECT_FALSE(Frozen(low));
  EXPECT_EQ(low.Order(), wire::Gate::kClosed);
}

TEST_F(SteeringServerTest, EachReasonStandsForItself) {
  Member& low = Running(low_);
  Member& high = Running(high_);
  gpu_.Freeze(low.process, true);
  EXPECT_TRUE(Frozen(low, 20));  // an operator stops its copies too
  Rests(high);
  EXPECT_TRUE(Frozen(low));
  gpu_.Freeze(low.process, false);
  EXPECT_FALSE(Frozen(low));
  EXPECT_FALSE(Frozen(low, 20));
}

TEST_F(SteeringServerTest, AnOperatorsThawDoesNotUndoThePolicy) {
  Member& low = Running(low_);
  gpu_.Freeze(low.process, true);
  Running(high_);
  gpu_.Freeze(low.process, false);
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, NewChannelsOfAFrozenProcessAreFrozen) {
  Member& low = Running(low_);
  gpu_.Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim);
  EXPECT_TRUE(Frozen(low, 12));
}

// Seen on a real GPU: channels that were taken off twice did not come back with one thaw.
TEST_F(SteeringServerTest, NoChannelIsTakenOffTwice) {
  Member& low = Running(low_);
  Running(high_);
  gpu_.Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim);
  MakeContext(low);  // as to a new daemon
  EXPECT_TRUE(Frozen(low, 12));
  EXPECT_FALSE(control_->twice);
  gpu_.Freeze(low.process, false);
  EXPECT_TRUE(Frozen(low, 10));
  EXPECT_FALSE(Frozen(low, 20));  // the policy stops what computes only
}

TEST_F(SteeringServerTest, AHandleThatCameBackIsAnotherChannel) {
  Member& low = Running(low_);
  gpu_.Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {.kind = Kind::kFree, .fd = 5, .client = client, .object = 11}, Source::kShim);
  control_->frozen.erase({client, 11});
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 11, abi::kAnyChannel, 0}, Source::kShim);
  EXPECT_TRUE(Frozen(low, 11));
}

TEST_F(SteeringServerTest, WhatAnEarlierDaemonFrozeIsThawedOnce) {
  Member& low = Running(low_);
  const pid_t pid = low.process.pid;
  gpu_.Freeze(low.process, true);
  const auto objects = channels_.Objects(pid);
  auto control = std::make_unique<FakeControl>();
  FakeControl& after = *control;
  after.frozen = control_->frozen;
  ChannelServer next(std::move(control), "", nullptr);
  next.Restore(pid, objects, true);
  EXPECT_TRUE(next.Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_FALSE(after.twice);
  EXPECT_TRUE(next.Thaw(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(after.frozen, IsEmpty());
}

TEST_F(SteeringServerTest, ClaimsToAnothersChannelsAreNotBelieved) {
  Member& liar = Join(low_);
  control_->foreign.insert(ClientOf(liar));
  MakeContext(liar);
  Works(liar);
  Running(high_);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(gpu_.Steers());  // its time is shared by its gate
}

TEST_F(SteeringServerTest, AFrozenOnesClaimsToAnothersChannelsAreNotBelievedEither) {
  Member& liar = Running(low_);
  Running(high_);
  ASSERT_TRUE(Frozen(liar));
  const std::uint32_t neighbour = 0xc1d0ffff;
  control_->foreign.insert(neighbour);
  const auto claim = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
    channels_.Observe(liar.process.pid, {Kind::kAlloc, 5, neighbour, parent, object, cls, detail}, Source::kShim);
  };
  claim(0, neighbour, abi::kRootClient, 0);
  claim(neighbour, 2, abi::kDevice, 0);
  claim(2, 7, abi::kChannelGroup, abi::kEngineGraphics);
  claim(7, 70, abi::kAnyChannel, 0);
  EXPECT_FALSE(control_->frozen.contains({neighbour, 70}));
}

TEST_F(SteeringServerTest, WhatTheKernelGateTellsNoShimUndoes) {
  Member& guest = Guest(low_);
  channels_.Observe(guest.process.pid, {Kind::kAlloc, 5, 0xc1d0ffff, 0, 0xc1d0ffff, abi::kRootClient, 0},
                    Source::kShim);
  control_->foreign.insert(0xc1d0ffff);
  Running(high_);
  EXPECT_TRUE(Frozen(guest));
}

TEST_F(SteeringServerTest, ProcessesOfAVgpuShareItsSlice) {
  Member& one = Running(high_);
  Running(high_);
  VGpu other;
  Make(other, 3, 2);
  Member& rival = Running(other);
  ASSERT_GT(control_->slices[rival.process.pid], 0);
  const Nanos end = MonotonicNow() + kSecond;
  while (control_->slices[one.process.pid] * 2 != control_->slices[rival.process.pid] && MonotonicNow() < end) {
    gpu_.AdvanceTo(MonotonicNow());
  }
  EXPECT_EQ(control_->slices[one.process.pid] * 2, control_->slices[rival.process.pid]);
  gpu_.Leave(rival.process);
  channels_.Forget(rival.process.pid);
  members_.pop_back();
  gpu_.Remove(other);
  gpu_.Forget(other);
}

TEST_F(SteeringServerTest, WhoGoesOnWhileItIsFrozenIsLeftToItsGate) {
  Member& low = Running(low_);
  const Nanos before = MonotonicNow();
  gpu_.Freeze(low.process, true);
  low.process.page->reached_ns = before;  // as it was submitted before, it may well have ended
  gpu_.Reconcile({});
  gpu_.Reconcile({});
  EXPECT_TRUE(gpu_.Steers());
  low.process.page->reached_ns = MonotonicNow();
  gpu_.Reconcile({});
  EXPECT_TRUE(gpu_.Steers()) << "the news of new channels may be under way";
  EXPECT_TRUE(gpu_.NeedsWatching());
  gpu_.Reconcile({});
  EXPECT_FALSE(gpu_.Steers());
  EXPECT_THAT(gpu_.WhyGate(), testing::HasSubstr("went on while its channels were frozen"));
  EXPECT_EQ(low.Order(), wire::Gate::kClosed);
  gpu_.Freeze(low.process, false);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(gpu_.Steers());
  channels_.Forget(low.process.pid);
  gpu_.Leave(low.process);
  members_.pop_back();
  EXPECT_TRUE(gpu_.Steers());
}

TEST_F(SteeringServerTest, WorkThatEndedBeforeNewChannelsWereFrozenTooIsNoOffence) {
  Member& low = Running(low_);
  gpu_.Freeze(low.process, true);
  low.process.page->reached_ns = MonotonicNow();
  gpu_.Reconcile({});
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim);
  gpu_.Reconcile({});
  gpu_.Reconcile({});
  EXPECT_TRUE(gpu_.Steers());
}

TEST_F(SteeringServerTest, AFreezeThatFailedAccusesNobody) {
  Member& low = Running(low_);
  control_->fails = true;
  gpu_.Freeze(low.process, true);
  low.process.page->reached_ns = MonotonicNow();
  EXPECT_EQ(channels_.StillSince(low.process.pid, 0), 0);
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
  gpu_.Freeze(low.process, true);
  EXPECT_EQ(channels_.StillSince(low.process.pid, 0), 0);
}

// Its copies go on when policy freezes it, so what has ended says nothing.
TEST_F(SteeringServerTest, WorkThatEndsUnderAPolicysFreezeIsNoOffence) {
  Member& low = Running(low_);
  Running(high_);
  low.process.page->reached_ns = MonotonicNow();
  gpu_.Reconcile({});
  gpu_.Reconcile({});
  EXPECT_TRUE(gpu_.Steers());
}

TEST_F(SteeringServerTest, WhatAnOperatorFrozeStaysFrozenWhenItsConnectionCloses) {
  const pid_t pid = getpid();  // one that lives
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 0, 1, abi::kRootClient, 0}, Source::kGuard);
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 1, 2, abi::kDevice, 0}, Source::kGuard);
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 2, 3, abi::kChannelGroup, abi::kEngineGraphics}, Source::kGuard);
  channels_.Observe(pid, {Kind::kAlloc, 5, 1, 3, 10, abi::kAnyChannel, 0}, Source::kGuard);
  ASSERT_TRUE(channels_.Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  ASSERT_TRUE(channels_.Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  channels_.Forget(pid);
  channels_.Reap();
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_EQ(channels_.Reasons(pid, 0), static_cast<std::uint8_t>(FreezeReason::kOperator));
  ASSERT_TRUE(channels_.Thaw(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, IsEmpty());
  ASSERT_TRUE(channels_.Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  channels_.Forget(pid);
  EXPECT_THAT(control_->frozen, IsEmpty()) << "nobody would undo what a policy did";
  EXPECT_FALSE(channels_.Knows(pid, 0));
}

// RM counts. One daemon froze it, the next one is told to, by a vGPU that is frozen.
TEST_F(SteeringServerTest, WhatADaemonBeforeFrozeIsNotTakenOffTwice) {
  const pid_t pid = getppid();  // older than this "daemon"
  const auto made = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
    channels_.Observe(pid, {Kind::kAlloc, 5, 1, parent, object, cls, detail}, Source::kGuard);
  };
  made(0, 1, abi::kRootClient, 0);
  made(1, 2, abi::kDevice, 0);
  made(2, 3, abi::kChannelGroup, abi::kEngineGraphics);
  made(3, 10, abi::kAnyChannel, 0);
  control_->frozen.insert({1, 10});
  ASSERT_TRUE(channels_.Freeze(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_FALSE(control_->twice);
  EXPECT_THAT(control_->frozen, SizeIs(1));
  ASSERT_TRUE(channels_.Thaw(0, {&pid, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, IsEmpty());
  channels_.Forget(pid);
}

TEST_F(SteeringServerTest, WhoWasFrozenWhileThatCouldNotBeDoneIsFrozenLater) {
  Member& low = Running(low_);
  channels_.SetAvailable("its test is under way");
  gpu_.ChooseControl();
  gpu_.Freeze(low_, true);
  EXPECT_FALSE(Frozen(low));
  channels_.SetAvailable("");
  gpu_.ChooseControl();
  gpu_.ApplyHolds();
  EXPECT_TRUE(Frozen(low));
}

// Programs without a shim: nobody hears from them, and no gate holds them.

TEST_F(SteeringServerTest, AGuestThatTheDeviceDoesNotSeeWorkingLetsLowerOnesRun) {
  Member& low = Running(low_);
  Member& guest = Guest(high_);
  EXPECT_TRUE(Frozen(low));
  EXPECT_TRUE(gpu_.NeedsWatching());
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_TRUE(Frozen(low)) << "samples have gaps";
  guest.process.seen_working -= 3 * kSecond;
  gpu_.Reconcile({});
  EXPECT_TRUE(Frozen(low)) << "where the device does not tell it counts as active";
  EXPECT_FALSE(gpu_.NeedsWatching());
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  guest.process.seen_working -= 3 * kSecond;
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_FALSE(Frozen(low));
  gpu_.Reconcile({.worked = std::unordered_set{guest.process.pid}});
  EXPECT_TRUE(Frozen(low));
}

TEST_F(SteeringServerTest, AnIdleGuestIsFrozenAllTheSame) {
  Member& guest = Guest(low_);
  EXPECT_FALSE(gpu_.NeedsWatching());  // it keeps nobody from running
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  guest.process.seen_working -= 3 * kSecond;
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning) << "so nobody looks often, and its limit must hold at any time";
  gpu_.Idle(guest.process, MonotonicNow());
  ASSERT_EQ(guest.process.gate.state, State::kParked);
  Member& high = Running(high_);
  EXPECT_TRUE(Frozen(guest)) << "no gate would stop its next work";
  // As long as it is frozen it cannot be seen to work: it may have some.
  Member& other = Guest(high_);
  ASSERT_TRUE(gpu_.NeedsWatching());
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning);
  guest.process.seen_working -= 3 * kSecond;
  gpu_.Reconcile({.worked = std::unordered_set<pid_t>()});
  EXPECT_EQ(guest.process.gate.state, State::kRunning);
  Rests(high);
  gpu_.Idle(other.process, MonotonicNow());
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(SteeringServerTest, WhoGetsMemoryPastTheKernelGateIsFrozenUntilItMayHaveIt) {
  Member& guest = Guest(low_);
  guest.process.guarded = true;
  const pid_t pid = guest.process.pid;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute));
  ASSERT_TRUE(gpu_.Hold(guest.process, 2 * kGiB - 50 * kMiB));  // nearly all that it may have
  const auto measure = [&](std::uint64_t bytes) {
    gpu_.BeginMeasurement();
    gpu_.Reconcile({.used = bytes, .by_process = {{pid, bytes}}});
  };
  measure(2 * kGiB - kMiB);  // more than was counted, but no more than it may have
  measure(2 * kGiB - kMiB);
  EXPECT_FALSE(Frozen(guest));
  measure(3 * kGiB);
  EXPECT_FALSE(Frozen(guest)) << "it may have freed that meanwhile";
  measure(3 * kGiB);
  EXPECT_TRUE(Frozen(guest));
  EXPECT_TRUE(Frozen(guest, 20));
  gpu_.Freeze(guest.process, true);
  gpu_.Freeze(guest.process, false);
  EXPECT_TRUE(Frozen(guest)) << "an operator's thaw does not undo it";
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = kGiB}, low_.spec.compute));
  EXPECT_TRUE(Frozen(guest));
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 4 * kGiB}, low_.spec.compute));
  EXPECT_FALSE(Frozen(guest));
  EXPECT_FALSE(Frozen(guest, 20));
}

TEST_F(SteeringServerTest, WhoIsNotListedAnyMoreHasNothing) {
  Member& guest = Guest(low_);
  guest.process.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute));
  ASSERT_TRUE(gpu_.Hold(guest.process, kGiB));
  const auto measure = [&](std::unordered_map<pid_t, std::uint64_t> by_process) {
    gpu_.BeginMeasurement();
    gpu_.Reconcile({.by_process = std::move(by_process)});
  };
  measure({{guest.process.pid, 3 * kGiB}});
  measure({});
  EXPECT_FALSE(Frozen(guest));
  measure({{guest.process.pid, 3 * kGiB}});
  measure({{guest.process.pid, 3 * kGiB}});
  ASSERT_TRUE(Frozen(guest));
  measure({});
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(SteeringServerTest, ALimitThatIsLoweredBelowWhatTheGateGrantedIsNoOffence) {
  Member& guest = Guest(low_);
  guest.process.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 4 * kGiB}, low_.spec.compute));
  ASSERT_TRUE(gpu_.Hold(guest.process, 3 * kGiB));
  const auto measure = [&] {
    gpu_.BeginMeasurement();
    gpu_.Reconcile({.by_process = {{guest.process.pid, 3 * kGiB + 5 * kContext}}});
  };
  measure();
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = kGiB}, low_.spec.compute));
  measure();
  measure();
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(SteeringServerTest, WhatADriverTakesForItselfIsNoOffence) {
  Member& guest = Guest(low_);
  guest.process.guarded = true;
  ASSERT_TRUE(gpu_.Resize(low_, {.limit = {}, .max = 2 * kGiB}, low_.spec.compute));
  ASSERT_TRUE(gpu_.Hold(guest.process, 2 * kGiB));
  for (int i = 0; i < 3; ++i) {
    gpu_.BeginMeasurement();
    gpu_.Reconcile({.by_process = {{guest.process.pid, 2 * kGiB + kContext}}});
  }
  EXPECT_FALSE(Frozen(guest));
}

TEST_F(SteeringServerTest, AVgpuThatIsRemovedStopsItsPrograms) {
  Member& low = Running(low_);
  gpu_.Remove(low_);
  EXPECT_EQ(low.Order(), wire::Gate::kClosed);
  EXPECT_TRUE(Frozen(low));
}

}  // namespace
}  // namespace tessera::server
