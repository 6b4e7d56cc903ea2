// The slices that a steering server gives the processes of a vGPU.
#include <gtest/gtest.h>

#include <cmath>

#include "server/testing/steered_gpu.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;

using SteeredSlicesTest = SteeredGpuTest;

// One of two goes idle: the other has the whole slice of their vGPU.
TEST_F(SteeredSlicesTest, WhoIsLeftOfAVgpuHasItsWholeSlice) {
  Member& one = Running(high_);
  Member& two = Running(high_);
  VGpu& other = Another(2);
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
}

// With the driver's own slices a tenth of the time would go into changes.
TEST_F(SteeredSlicesTest, ProcessesThatCompeteWithOneAnotherAloneHaveLongerSlices) {
  Member& one = Running(high_);
  EXPECT_EQ(control_->slices[one.process.pid], 0) << "nobody competes with it";
  Member& two = Running(high_);
  EXPECT_TRUE(HasSlice(one, 10 * kMillisecond));
  EXPECT_TRUE(HasSlice(two, 10 * kMillisecond));
}

// Seen on a real GPU: one that came while its vGPU was stopped kept the driver's slice.
TEST_F(SteeredSlicesTest, WhoComesWhileItsVgpuIsStoppedGetsItsPartWhenThatGoes) {
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

TEST_F(SteeredSlicesTest, ProcessesOfAVgpuShareItsSlice) {
  Member& one = Running(high_);
  Running(high_);
  VGpu& other = Another(2);
  Member& rival = Running(other);
  ASSERT_GT(control_->slices[rival.process.pid], 0);
  EXPECT_TRUE(HasSlice(one, control_->slices[rival.process.pid] / 2));
}

// A vGPU of a high class that gives way.
class SoftSlicesTest : public SteeredGpuTest {
 protected:
  void SetUp() override {
    SteeredGpuTest::SetUp();
    soft_.spec.compute.patience = 200 * kMicrosecond;
    Make(soft_, 7, 3);
  }
  Nanos SliceOf(const Member& member) { return control_->slices[member.process.pid]; }

  VGpu& soft_ = others_.emplace_back();
};

TEST_F(SoftSlicesTest, ALowerClassRunsOnWithTheSliceThatIsOrdered) {
  Running(soft_);
  Member& low = Running(low_);
  Pass(kMillisecond);
  EXPECT_EQ(SliceOf(low), 200 * kMicrosecond);
  EXPECT_FALSE(Frozen(low));
}

TEST_F(SoftSlicesTest, WhatRunsIsFrozenUntilItsSliceIsShort) {
  Member& low = Running(low_);
  const auto freezes = control_->Counts().freezes;
  Member& soft = Running(soft_);
  EXPECT_EQ(control_->Counts().freezes, freezes + 1);
  Pass(kMillisecond);
  EXPECT_EQ(SliceOf(low), 200 * kMicrosecond);
  EXPECT_FALSE(Frozen(low));
  for (int i = 0; i < 10; ++i) {
    Rests(soft);
    Works(soft);
  }
  EXPECT_EQ(control_->Counts().freezes, freezes + 1) << "gaps need no calls";
}

TEST_F(SoftSlicesTest, ProcessesShareTheShortSlice) {
  Running(soft_);
  Member& one = Running(low_);
  Member& two = Running(low_);
  EXPECT_TRUE(HasSlice(one, 100 * kMicrosecond));
  EXPECT_TRUE(HasSlice(two, 100 * kMicrosecond));
}

TEST_F(SoftSlicesTest, WhoWasIdleWhenSlicesBecameShortHasAShortOneWhenItRuns) {
  Member& one = Running(low_);
  Running(Another(12));
  ASSERT_TRUE(HasSlice(one, 20 * kMillisecond));
  Member& two = Running(low_);
  ASSERT_TRUE(HasSlice(two, 10 * kMillisecond));
  Rests(two);
  Running(soft_);
  Rests(*members_[1]);
  Pass(kMillisecond);
  Works(two);
  EXPECT_LE(SliceOf(two), 200 * kMicrosecond);
}

}  // namespace
}  // namespace tessera::server
