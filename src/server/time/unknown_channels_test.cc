#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unordered_set>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

// A process whose channels are not known, or not all, beside one whose channels are: the former is stopped by its own
// gate, the latter keeps its channels.
class UnknownChannelsTest : public SteeredGpuTest {
 protected:
  // It has told of work, and never made a channel.
  Member& Liar(VGpu& vgpu) {
    Member& liar = Join(vgpu);
    gpu_.Time().Wants(liar.process, false, Now());
    return liar;
  }
  // It asks for work before it has told of a channel.
  Member& Unknown(VGpu& vgpu) {
    Member& unknown = Join(vgpu);
    Works(unknown);
    return unknown;
  }
  void SeenToWork(std::unordered_set<pid_t> pids) { Reconcile({.worked = std::move(pids)}); }
  static pid_t PidOf(const Member& member) { return member.process.pid; }
  // The work that it has queued ends after its gate closed.
  void Drains(Member& member) { gpu_.Time().Released(member.process, now_, member.process.gate.closing_epoch, Now()); }
  // Goes on at two looks of the measurement while an operator has frozen it.
  void Evades(Member& member) {
    Freeze(member.process, true);
    for (int look = 0; look < 2; ++look) {
      member.process.page->reached_ns = MonotonicNow();
      Reconcile({});
    }
    Freeze(member.process, false);
  }
};

// A hostile client attaches in the highest class and says Wants: three packets, and no work for the GPU.
TEST_F(UnknownChannelsTest, ThreePacketsTakeNobodysChannels) {
  Member& neighbour = Running(low_);
  Member& liar = Liar(high_);
  EXPECT_TRUE(Steers());
  EXPECT_FALSE(Frozen(neighbour));
  EXPECT_EQ(neighbour.Order(), wire::GateOrder::kFree);
  EXPECT_TRUE(gpu_.Measurement().NeedsWatching()) << "the device must say whether it works";
  SeenToWork({PidOf(neighbour)});
  EXPECT_TRUE(Steers());
  EXPECT_FALSE(Frozen(neighbour));
  Pass(kSecond);
  EXPECT_FALSE(Frozen(neighbour));
  gpu_.Time().Idle(liar.process, now_, Now());
  EXPECT_FALSE(gpu_.Measurement().NeedsWatching());
}

TEST_F(UnknownChannelsTest, ThreePacketsBeforeTheFirstContextTakeNobodysChannels) {
  Liar(high_);
  Member& neighbour = Running(low_);
  EXPECT_TRUE(Steers());
  EXPECT_EQ(neighbour.Order(), wire::GateOrder::kFree);
  EXPECT_FALSE(Frozen(neighbour));
}

TEST_F(UnknownChannelsTest, WorkThatTheDeviceSeesIsBelievedWhileItSeesIt) {
  Member& neighbour = Running(low_);
  Member& worker = Liar(high_);
  SeenToWork({PidOf(worker)});
  EXPECT_TRUE(Frozen(neighbour)) << "it is of a higher class";
  SeenToWork({});
  EXPECT_TRUE(Frozen(neighbour)) << "samples have gaps";
  worker.process.work.seen_at -= 3 * kSecond;
  SeenToWork({});
  EXPECT_FALSE(Frozen(neighbour));
}

TEST_F(UnknownChannelsTest, WhereTheDeviceDoesNotTellItIsBelieved) {
  Member& neighbour = Running(low_);
  Liar(high_);
  Reconcile({});
  EXPECT_TRUE(Frozen(neighbour));
}

TEST_F(UnknownChannelsTest, ItsGateStopsItForAHigherClass) {
  Member& high = Resting(high_);
  Member& unknown = Unknown(low_);
  ASSERT_TRUE(Steers());
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kBounded) << "so that what it has queued ends soon";
  Works(high);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kClosed);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kDraining);
  Drains(unknown);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kParked);
  Works(unknown);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kWanting);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kClosed);
  Rests(high);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kBounded);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kRunning);
  EXPECT_EQ(control_->Counts().freezes, 0u);
}

// It goes again before what it has queued has ended.
TEST_F(UnknownChannelsTest, WhatDrainsAsksAgain) {
  Member& high = Resting(high_);
  Member& unknown = Unknown(low_);
  Works(high);
  Rests(high);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kDraining);
  Drains(unknown);
  Works(unknown);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kBounded);
}

TEST_F(UnknownChannelsTest, ItsGateHoldsItsLimit) {
  ASSERT_TRUE(gpu_.Resize(low_, {}, {.limit_pct = 20, .priority = 2}, {}, Now()));
  Resting(high_);  // it is idle: where both work, slices hold limits
  Member& unknown = Unknown(low_);
  SeenToWork({PidOf(unknown)});
  ASSERT_EQ(unknown.Order(), wire::GateOrder::kBounded);
  EXPECT_TRUE(Becomes([&] { return unknown.Order() == wire::GateOrder::kClosed; }));
  Drains(unknown);
  Works(unknown);
  EXPECT_EQ(unknown.process.gate.state, GateRecord::State::kWanting);
  EXPECT_TRUE(Becomes([&] { return unknown.Order() == wire::GateOrder::kBounded; }));
}

TEST_F(UnknownChannelsTest, AnOperatorFreezesItByItsGate) {
  Resting(high_);
  Member& unknown = Unknown(low_);
  Freeze(unknown.process, true);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kClosed);
  Drains(unknown);
  Works(unknown);
  EXPECT_TRUE(wire::IsClosed(unknown.Order()));
  Freeze(unknown.process, false);
  EXPECT_EQ(unknown.Order(), wire::GateOrder::kBounded);
}

TEST_F(UnknownChannelsTest, OnceItsChannelsAreKnownTheyStopIt) {
  Member& high = Resting(high_);
  Member& late = Unknown(low_);
  ASSERT_EQ(late.Order(), wire::GateOrder::kBounded);
  MakeContext(late);
  EXPECT_EQ(late.Order(), wire::GateOrder::kFree);
  Works(high);
  EXPECT_TRUE(Frozen(late));
}

TEST_F(UnknownChannelsTest, WhatDrainedWhenItsChannelsBecameKnownIsFrozen) {
  Member& high = Resting(high_);
  Member& late = Unknown(low_);
  Works(high);
  ASSERT_EQ(late.process.gate.state, GateRecord::State::kDraining);
  MakeContext(late);
  EXPECT_TRUE(Frozen(late));
  Rests(high);
  EXPECT_FALSE(Frozen(late));
  EXPECT_EQ(late.Order(), wire::GateOrder::kFree);
}

// It was seen to go on while its channels were frozen: some are hidden.
TEST_F(UnknownChannelsTest, OneThatEvadesItsFreezeStandsAlone) {
  Member& neighbour = Resting(high_);
  Member& evader = Running(low_);
  Evades(evader);
  EXPECT_TRUE(Steers()) << "its neighbour keeps its channels";
  EXPECT_EQ(neighbour.Order(), wire::GateOrder::kFree);
  Drains(evader);
  Works(evader);
  ASSERT_EQ(evader.Order(), wire::GateOrder::kBounded);
  Works(neighbour);
  EXPECT_TRUE(Frozen(evader)) << "the channels that are known,";
  EXPECT_EQ(evader.Order(), wire::GateOrder::kClosed) << "and its gate";
  Rests(neighbour);
  EXPECT_FALSE(Frozen(evader));
  Drains(evader);
  Works(evader);
  EXPECT_EQ(evader.Order(), wire::GateOrder::kBounded);
}

TEST_F(UnknownChannelsTest, OneGpusFailedTestConcernsThatGpu) {
  Member& member = Running(low_);
  channels_.Availability().BeginTest();
  gpu_.Time().Choose(Now());
  ASSERT_FALSE(Steers());
  channels_.Availability().EndTest({{1, "its slices do not hold"}});
  gpu_.Time().Choose(Now());
  EXPECT_TRUE(Steers());
  EXPECT_TRUE(channels_.Knows(PidOf(member), 0));
  EXPECT_FALSE(channels_.Available(1));
  EXPECT_THAT(channels_.Why(1), testing::HasSubstr("slices"));
  channels_.Availability().EndTest({{0, "its slices do not hold"}});
  gpu_.Time().Choose(Now());
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), testing::HasSubstr("slices"));
}

}  // namespace
}  // namespace tessera::server
