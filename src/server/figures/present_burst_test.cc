#include "server/figures/present_burst.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(PresentBurst, LastsFromTheFirstWorkToTheLast) {
  PresentBurst present;
  present.Works(10, 100, true);
  present.Works(12, 101, true);  // another process
  EXPECT_FALSE(present.Idle(30, /*others_work=*/true, 105));
  const auto burst = present.Idle(25, /*others_work=*/false, 108);  // told later, but ended before
  ASSERT_TRUE(burst);
  EXPECT_EQ(burst->begin, 10);
  EXPECT_EQ(burst->end, 30);
  EXPECT_EQ(burst->submissions, 8u);
  EXPECT_TRUE(burst->alone);
  EXPECT_FALSE(present.Idle(40, false, 108)) << "that was told already";
}

TEST(PresentBurst, IsAloneIfNobodyElseWorksMeanwhile) {
  PresentBurst present;
  present.Works(10, 0, false);
  EXPECT_FALSE(present.Idle(20, false, 1)->alone);
  present.Works(30, 1, true);
  present.Share();
  EXPECT_FALSE(present.Idle(40, false, 2)->alone);
  present.Share();  // between two bursts
  present.Works(50, 2, true);
  EXPECT_TRUE(present.Idle(60, false, 3)->alone);
  present.Works(70, 3, true);
  present.Works(75, 3, false);  // another process, and meanwhile another vGPU
  EXPECT_FALSE(present.Idle(80, false, 4)->alone);
}

TEST(PresentBurst, EndsNotBeforeItBegan) {
  PresentBurst present;
  present.Works(10, 100, true);
  const auto burst = present.Idle(5, false, 90);  // a program may say and count what it likes
  ASSERT_TRUE(burst);
  EXPECT_EQ(burst->end, 10);
  EXPECT_EQ(burst->submissions, 0u);
}

TEST(PresentBurst, GoesOnAcrossAClosedGate) {
  PresentBurst present;
  present.Drain(5, 6);
  EXPECT_EQ(present.DrainedAt(), kNever) << "there is none";
  present.Works(10, 0, true);
  present.Drain(20, 25);
  EXPECT_EQ(present.DrainedAt(), 25);
  present.Works(26, 3, true);
  EXPECT_EQ(present.DrainedAt(), kNever);
  present.Drain(40, 45);
  EXPECT_EQ(present.End(), 40);
  const auto burst = present.Idle(present.End(), false, 7);
  ASSERT_TRUE(burst);
  EXPECT_EQ(burst->begin, 10);
  EXPECT_EQ(burst->end, 40);
  EXPECT_EQ(burst->submissions, 7u);
  EXPECT_EQ(present.DrainedAt(), kNever);
}

TEST(PresentBurst, OfAProcessThatEndedIsNotCounted) {
  PresentBurst present;
  present.Works(10, 0, true);
  present.Drop();
  EXPECT_FALSE(present.Idle(20, false, 1));
  present.Works(30, 1, true);
  EXPECT_EQ(present.Idle(35, false, 2)->begin, 30);
}

}  // namespace
}  // namespace tessera::server
