#include "server/channels/freezer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/testing/context_events.h"
#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

namespace abi = channel::abi;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = channel::ObjectEvent::Kind;
using Source = ChannelServer::Source;

using FreezerTest = SteeredGpuTest;

TEST_F(FreezerTest, NewChannelsOfAFrozenProcessAreFrozen) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 12, abi::kAnyChannel, 0}, Source::kShim, Now());
  EXPECT_TRUE(Frozen(low, 12));
}

// Seen on a real GPU: channels that were taken off twice did not come back with one thaw.
TEST_F(FreezerTest, NoChannelIsTakenOffTwice) {
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

TEST_F(FreezerTest, AHandleThatCameBackIsAnotherChannel) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  const std::uint32_t client = ClientOf(low);
  channels_.Observe(low.process.pid, {.kind = Kind::kFree, .fd = 5, .client = client, .object = 11}, Source::kShim,
                    Now());
  control_->frozen.erase({client, 11});
  channels_.Observe(low.process.pid, {Kind::kAlloc, 5, client, kGroup, 11, abi::kAnyChannel, 0}, Source::kShim, Now());
  EXPECT_TRUE(Frozen(low, 11));
}

TEST_F(FreezerTest, WhatAnEarlierDaemonFrozeIsThawedOnce) {
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

TEST_F(FreezerTest, ClaimsToAnothersChannelsAreNotBelieved) {
  Member& liar = Join(low_);
  control_->foreign.insert(ClientOf(liar));
  MakeContext(liar);
  Works(liar);
  Running(high_);
  EXPECT_THAT(control_->frozen, IsEmpty());
  EXPECT_TRUE(Steers()) << "its neighbour keeps its channels";
  EXPECT_EQ(liar.Order(), wire::GateOrder::kClosed) << "it is stopped by its gate";
}

TEST_F(FreezerTest, AFrozenOnesClaimsToAnothersChannelsAreNotBelievedEither) {
  Member& liar = Running(low_);
  Running(high_);
  ASSERT_TRUE(Frozen(liar));
  const std::uint32_t neighbour = 0xc1d0ffff;
  control_->foreign.insert(neighbour);
  for (const auto& event : ContextEvents(neighbour, 7, 70))
    channels_.Observe(liar.process.pid, event, Source::kShim, Now());
  EXPECT_FALSE(control_->frozen.contains({neighbour, 70}));
}

TEST_F(FreezerTest, WhatTheKernelGateTellsNoShimUndoes) {
  Member& guest = Guest(low_);
  channels_.Observe(guest.process.pid, {Kind::kAlloc, 5, 0xc1d0ffff, 0, 0xc1d0ffff, abi::kRootClient, 0}, Source::kShim,
                    Now());
  control_->foreign.insert(0xc1d0ffff);
  Running(high_);
  EXPECT_TRUE(Frozen(guest));
}

TEST_F(FreezerTest, AFreezeThatFailedAccusesNobody) {
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

TEST_F(FreezerTest, OneThatCannotBeFrozenKeepsNobodyElseRunning) {
  Member& low = Running(low_);
  Member& other = Running(low_);
  control_->fails_for = low.process.pid;
  Running(high_);
  EXPECT_FALSE(Frozen(low));
  EXPECT_TRUE(Frozen(other));
}

TEST_F(FreezerTest, NobodyIsStillWhoseChannelsAreNotKnown) {
  Member& low = Join(low_);
  Freeze(low.process, true);
  EXPECT_EQ(channels_.Freezer().StatusOf(low.process.pid, 0).still_since, 0);
}

TEST_F(FreezerTest, WhatAnOperatorFrozeStaysFrozenWhenItsConnectionCloses) {
  const pid_t pid = getpid();  // one that lives
  for (const auto& event : ContextEvents(1)) channels_.Observe(pid, event, Source::kGuard, Now());
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

TEST_F(FreezerTest, WhoIsForgottenInTheMiddleOfAMoveIsThawedWhenItCouldGoOn) {
  const pid_t pid = getpid();  // one that lives
  auto page = SharedPage::Create(0);
  ASSERT_TRUE(page);
  for (const auto& event : ContextEvents(1)) channels_.Observe(pid, event, Source::kGuard, Now());
  channels_.Freezer().HeedMoveGuard(pid, 0, page->Fd(), offsetof(wire::Page, guard));
  (*page)->guard.unsafe = 1;
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kMove));
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kPolicy));
  channels_.Forget(pid);
  channels_.Freezer().CatchUp();
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_EQ((*page)->guard.released, 1u);
  (*page)->guard.unsafe = 0;
  channels_.Freezer().CatchUp();
  EXPECT_THAT(control_->frozen, IsEmpty());
  // It ends, and nothing is left of it.
  channels_.Forget(pid);
  EXPECT_FALSE(channels_.Knows(pid, 0));
}

// Work of the one GPU may reach the memory on the other.
TEST_F(FreezerTest, WhoIsForgottenWhileItsMemoryOnAnotherGpuIsMovedWaitsForThat) {
  const pid_t pid = getpid();  // one that lives
  auto here = SharedPage::Create(0), there = SharedPage::Create(1);
  ASSERT_TRUE(here && there);
  for (const auto& event : ContextEvents(1)) channels_.Observe(pid, event, Source::kGuard, Now());
  channels_.Freezer().HeedMoveGuard(pid, 0, here->Fd(), offsetof(wire::Page, guard));
  channels_.Freezer().HeedMoveGuard(pid, 1, there->Fd(), offsetof(wire::Page, guard));
  (*there)->guard.unsafe = 1;
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid, 1}, FreezeReason::kMove));
  channels_.Forget(pid);
  channels_.Freezer().CatchUp();
  EXPECT_THAT(control_->frozen, SizeIs(1));
  EXPECT_EQ((*there)->guard.released, 1u) << "it takes part in no more moves there";
  (*there)->guard.unsafe = 0;
  channels_.Freezer().CatchUp();
  EXPECT_THAT(control_->frozen, IsEmpty());
  channels_.Forget(pid);
}

// The driver refuses a thaw once.
TEST_F(FreezerTest, AThawThatFailedIsTriedAgain) {
  Member& low = Running(low_);
  Freeze(low.process, true);
  ASSERT_TRUE(Frozen(low));
  control_->thaw_fails = true;
  Freeze(low.process, false);
  channels_.Freezer().CatchUp();
  EXPECT_TRUE(Frozen(low));
  control_->thaw_fails = false;
  channels_.Freezer().CatchUp();
  EXPECT_FALSE(Frozen(low));
  Freeze(low.process, true);
  EXPECT_FALSE(control_->twice);
}

}  // namespace
}  // namespace tessera::server
