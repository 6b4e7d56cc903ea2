// Freezes that an earlier daemon left behind, and freezes of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "server/testing/context_events.h"
#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Another daemon froze the channel of `pid_`, which is older than this one.
class LeftOver : public SteeredGpuTest {
 protected:
  void LeftFrozen() {
    for (const auto& event : ContextEvents(1)) channels_.Observe(pid_, event, ChannelServer::Source::kGuard, Now());
    control_->frozen.insert({1, 10});
  }
  void Guard() { channels_.Freezer().HeedMoveGuard(pid_, 0, page_->Fd(), offsetof(wire::Page, guard)); }
  void SetUnsafe(bool unsafe) { (*page_)->guard.unsafe = unsafe ? 1 : 0; }

  const pid_t pid_ = 1;  // older than this "daemon", by more than the clock ticks that such times are told in
  Result<SharedPage> page_ = SharedPage::Create(0);
};

// RM counts. One daemon froze it, the next one is told to, by a vGPU that is frozen.
TEST_F(LeftOver, WhatADaemonBeforeFrozeIsNotTakenOffTwice) {
  LeftFrozen();
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid_, 1}, FreezeReason::kOperator));
  EXPECT_FALSE(control_->twice);
  EXPECT_THAT(control_->frozen, SizeIs(1));
  ASSERT_TRUE(channels_.Freezer().Thaw(0, {&pid_, 1}, FreezeReason::kOperator));
  EXPECT_THAT(control_->frozen, IsEmpty());
  channels_.Forget(pid_);
}

// Its memory is in the swap file: it would fault as soon as it ran.
TEST_F(LeftOver, WhoADaemonBeforeFrozeInTheMiddleOfAMoveDoesNotRunMeanwhile) {
  LeftFrozen();
  SetUnsafe(true);
  Guard();
  channels_.Freezer().ThawLeftOver(0, pid_);
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid_, 1}, FreezeReason::kMove));
  EXPECT_THAT(control_->thawed, IsEmpty());
  EXPECT_THAT(control_->frozen, testing::Not(IsEmpty()));
  EXPECT_NE(channels_.Freezer().StatusOf(pid_, 0).still_since, 0);
  SetUnsafe(false);
  ASSERT_TRUE(channels_.Freezer().Thaw(0, {&pid_, 1}, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, IsEmpty());
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid_, 1}, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, SizeIs(1));
  channels_.Forget(pid_);
}

// While a new daemon tests its control memory is moved by gates, or was.
TEST_F(LeftOver, WhoIsMovedByGatesAndNotFrozenIsFrozenWhenChannelsTakeOver) {
  LeftFrozen();
  control_->frozen.clear();  // the watchdog thawed it
  channels_.Availability().BeginTest();
  Guard();
  channels_.Freezer().ThawLeftOver(0, pid_);
  SetUnsafe(true);
  channels_.Availability().EndTest({});
  ASSERT_TRUE(channels_.Freezer().Freeze(0, {&pid_, 1}, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, SizeIs(1));
  SetUnsafe(false);
  ASSERT_TRUE(channels_.Freezer().Thaw(0, {&pid_, 1}, FreezeReason::kMove));
  EXPECT_THAT(control_->frozen, IsEmpty());
  channels_.Forget(pid_);
}

}  // namespace
}  // namespace tessera::server
