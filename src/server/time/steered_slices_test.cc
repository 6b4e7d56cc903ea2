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

}  // namespace
}  // namespace tessera::server
