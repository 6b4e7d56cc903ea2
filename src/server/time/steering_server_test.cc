#include "server/time/steering_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;

using SteeringServerTest = SteeredGpuTest;

TEST_F(SteeringServerTest, SteersOnceTheChannelsAreKnown) {
  gpu_.Time().Choose(Now());
  EXPECT_TRUE(Steers());  // nobody is there whose channels could be unknown
  Member& member = Join(low_);
  Works(member);
  EXPECT_FALSE(Steers());
  EXPECT_THAT(gpu_.Time().Ways().WhyNot(Divider::kChannels), testing::HasSubstr("not known"));
  MakeContext(member);
  EXPECT_TRUE(Steers());
  EXPECT_EQ(member.Order(), wire::GateOrder::kFree);
}

TEST_F(SteeringServerTest, AHigherClassFreezesWhatComputesAndNothingElse) {
  Member& low = Running(low_);
  Member& high = Resting(high_);
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
  Member& low = Resting(low_);
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
  Member& low = Resting(low_);
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

TEST_F(SteeringServerTest, AVgpuThatIsRemovedStopsItsPrograms) {
  Member& low = Running(low_);
  gpu_.Remove(low_, Now());
  EXPECT_EQ(low.Order(), wire::GateOrder::kClosed);
  EXPECT_TRUE(Frozen(low));
}

// It slept at its gate, and sees only that this is free.
TEST_F(SteeringServerTest, WhoWaitedForTheTokenRunsWhenChannelsTakeOver) {
  channels_.Availability().BeginTest();
  Running(low_);
  VGpu& other = Another(12);
  Member& waiting = Running(other);
  ASSERT_EQ(waiting.process.gate.state, State::kWanting);
  channels_.Availability().EndTest({});
  gpu_.Time().Choose(Now());
  ASSERT_TRUE(Steers());
  EXPECT_EQ(waiting.process.gate.state, State::kRunning);
  EXPECT_GT(control_->slices[waiting.process.pid], 0);
}

// A program that is in two vGPUs. What it runs must count in one that may run.
TEST_F(SteeringServerTest, AVGpuThatGoesOnLiftsNoFreezeOfAProgramWithoutWorkThere) {
  Member& low = Running(low_);
  VGpu& middle = Another(6);
  Member& second = Join(middle, low.process.pid);
  Running(middle);
  ASSERT_TRUE(Frozen(low));
  Member& high = Running(high_);
  Rests(high);
  EXPECT_TRUE(Frozen(low));
  Works(high);
  Works(second);
  Rests(high);
  EXPECT_FALSE(Frozen(low)) << "it works for the other vGPU";
}

TEST_F(SteeringServerTest, AProgramThatLeavesAStoppedVGpuGoesOnInAnother) {
  Member& low = Running(low_);
  VGpu& middle = Another(6);
  Member& second = Join(middle, low.process.pid);
  Running(middle);
  Works(second);
  ASSERT_TRUE(Frozen(second));
  gpu_.Leave(low.process, Now());
  members_.erase(members_.begin());
  EXPECT_FALSE(Frozen(second));
}

}  // namespace
}  // namespace tessera::server
