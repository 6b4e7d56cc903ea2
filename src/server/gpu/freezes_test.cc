#include "server/gpu/freezes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using testing::IsEmpty;
using Kind = channel::ObjectEvent::Kind;
using Source = ChannelServer::Source;

using FreezesTest = SteeredGpuTest;

TEST_F(FreezesTest, AProcessStandsStillAsLongAsThereIsAnyReason) {
  Member& low = Running(low_);
  Process& process = low.process;
  const auto by_operator = [&](bool frozen) { Freeze(process, frozen); };
  const auto by_vgpu = [&](bool frozen) { Freeze(low_, frozen); };
  const auto by_residency = [&](bool frozen) {
    gpu_.Freezes().SetByResidency(process, frozen ? MemoryHold::kFrozen : MemoryHold::kNone, Now());
  };
  const auto overdrawn = [&](bool frozen) { gpu_.Freezes().SetOverdrawn(process, frozen, Now()); };
  const std::vector<std::function<void(bool)>> reasons = {by_operator, by_vgpu, by_residency, overdrawn};
  for (const auto& first : reasons) {
    for (const auto& second : reasons) {
      first(true);
      EXPECT_TRUE(Frozen(low));
      EXPECT_TRUE(Frozen(low, 20)) << "its copies stand still, too";
      EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
      second(true);
      first(false);
      if (&first != &second) {
        EXPECT_TRUE(Frozen(low, 20));
        EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
      }
      second(false);
      EXPECT_FALSE(Frozen(low));
      EXPECT_FALSE(Frozen(low, 20));
      EXPECT_EQ(low.Order(), wire::GateOrder::kFree);
      EXPECT_EQ(channels_.Freezer().StatusOf(process.pid, 0).reasons, FreezeReason::kNone);
    }
  }
}

TEST_F(FreezesTest, WhereNewWorkOnlyIsForbiddenNoChannelIsFrozen) {
  Member& low = Running(low_);
  gpu_.Freezes().SetByResidency(low.process, MemoryHold::kGate, Now());
  EXPECT_FALSE(Frozen(low));
  EXPECT_EQ(low.Order(), wire::GateOrder::kStopped);
  gpu_.Freezes().SetByResidency(low.process, MemoryHold::kNone, Now());
  EXPECT_EQ(low.Order(), wire::GateOrder::kFree);
}

TEST_F(FreezesTest, WhoWorksIsNotStillThoughNobodyHasSeenItWork) {
  Process& process = Running(low_).process;
  process.work.worked = false;  // its channels had gone, and it has others
  process.suspension.phase = SuspensionPhase::kDrains;
  gpu_.Freezes().SuspensionChanged(process, Now());
  EXPECT_FALSE(gpu_.Placement().Still(process));
  process.page->rests = 1;
  gpu_.Time().Released(process, now_, process.page.Epoch(), Now());
  EXPECT_TRUE(gpu_.Placement().Still(process));
}

TEST_F(FreezesTest, AProcessThatJoinsAFrozenVGpuIsFrozen) {
  Freeze(low_, true);
  Member& member = Join(low_);
  EXPECT_TRUE(member.process.gate.held);
  MakeContext(member);
  EXPECT_TRUE(Frozen(member));
  Freeze(low_, false);
  EXPECT_FALSE(Frozen(member));
}

// As after a daemon that was killed: its watchdog does not thaw what must not run.
TEST_F(FreezesTest, AProcessThatWasFrozenForMemoryStaysSoWhenItJoinsAgain) {
  Member& low = Running(low_);
  gpu_.Freezes().SetOverdrawn(low.process, true, Now());
  gpu_.Leave(low.process, Now());
  low.process.freeze = {};
  gpu_.Join(low_, low.process, 0, 1, Now());
  EXPECT_TRUE(low.process.freeze.overdrawn);
  EXPECT_TRUE(Frozen(low));
}

TEST_F(FreezesTest, WhoGoesOnWhileItIsFrozenIsLeftToItsGate) {
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
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels),
              testing::HasSubstr("went on while its channels were frozen"));
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  Freeze(low.process, false);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_FALSE(Steers());
  channels_.Forget(low.process.pid);
  gpu_.Leave(low.process, Now());
  members_.pop_back();
  EXPECT_TRUE(Steers());
}

TEST_F(FreezesTest, WorkThatEndedBeforeNewChannelsWereFrozenTooIsNoOffence) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  low.process.page->reached_ns = MonotonicNow();
  Reconcile({});
  const std::uint32_t client = ClientOf(low);
  low.process.page->reached_ns = MonotonicNow();
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, channel::abi::kAnyChannel, 0}, Source::kShim,
                    Now());
  Reconcile({});
  Reconcile({});
  EXPECT_TRUE(Steers());
}

// Its copies go on when policy freezes it, so what has ended says nothing.
TEST_F(FreezesTest, WorkThatEndsUnderAPolicysFreezeIsNoOffence) {
  Member& low = Running(low_);
  Running(high_);
  for (int look = 0; look < 3; ++look) {
    low.process.page->reached_ns = MonotonicNow();
    Reconcile({});
  }
  EXPECT_TRUE(Steers());
}

TEST_F(FreezesTest, WhoWasFrozenWhileThatCouldNotBeDoneIsFrozenLater) {
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

}  // namespace
}  // namespace tessera::server
