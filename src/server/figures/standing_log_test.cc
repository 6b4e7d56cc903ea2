#include "server/figures/standing_log.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using Standing = Standing;

TEST(StandingLog, CountsWhatKeepsAVGpuFromItsGpu) {
  StandingLog log;
  EXPECT_FALSE(log.Note(1, Standing::kIdle, WaitReason::kNone));
  EXPECT_TRUE(log.Note(2, Standing::kWaiting, WaitReason::kTurn));
  EXPECT_EQ(log.At(3).preempted, 0u) << "it did not run yet";
  EXPECT_TRUE(log.Note(10, Standing::kRunning, WaitReason::kNone));
  EXPECT_FALSE(log.Note(11, Standing::kRunning, WaitReason::kLimit)) << "who runs waits for nothing";
  const auto ended = log.Note(20, Standing::kWaiting, WaitReason::kLimit);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->standing, Standing::kRunning);
  EXPECT_EQ(ended->since, 10);
  EXPECT_EQ(log.At(25).throttled, 1u);
  EXPECT_EQ(log.At(25).throttled_time, 5);
  EXPECT_TRUE(log.Note(30, Standing::kWaiting, WaitReason::kClass)) << "another reason now";
  EXPECT_EQ(log.At(35).throttled_time, 10);
  EXPECT_EQ(log.At(35).preempted, 0u);
  EXPECT_TRUE(log.Note(40, Standing::kRunning, WaitReason::kNone));
  EXPECT_TRUE(log.Note(50, Standing::kWaiting, WaitReason::kClass));
  EXPECT_EQ(log.At(60).preempted, 1u);
  EXPECT_EQ(log.At(60).throttled, 1u);
  EXPECT_TRUE(log.Note(60, Standing::kIdle, WaitReason::kNone));
  EXPECT_EQ(log.At(70).throttled_time, 10);
  EXPECT_EQ(log.At(70).with_work, 58) << "from 2 to 60, running or waiting";
}

}  // namespace
}  // namespace tessera::server
