#include "server/model/present_burst.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(PresentBurst, LastsFromTheFirstWorkToTheLast) {
  PresentBurst present;
  present.Works(10, 100);
  present.Works(12, 101);  // another process
  EXPECT_FALSE(present.Idle(30, /*others_work=*/true, 105));
  const auto burst = present.Idle(25, /*others_work=*/false, 108);  // told later, but ended before
  ASSERT_TRUE(burst);
  EXPECT_EQ(burst->begin, 10);
  EXPECT_EQ(burst->end, 30);
  EXPECT_EQ(burst->submissions, 8u);
  EXPECT_FALSE(present.Idle(40, false, 108)) << "that was told already";
}

TEST(PresentBurst, EndsNotBeforeItBegan) {
  PresentBurst present;
  present.Works(10, 100);
  const auto burst = present.Idle(5, false, 90);  // a program may say and count what it likes
  ASSERT_TRUE(burst);
  EXPECT_EQ(burst->end, 10);
  EXPECT_EQ(burst->submissions, 0u);
}

TEST(PresentBurst, OfAProcessThatEndedIsNotCounted) {
  PresentBurst present;
  present.Works(10, 0);
  present.Drop();
  EXPECT_FALSE(present.Idle(20, false, 1));
  present.Works(30, 1);
  EXPECT_EQ(present.Idle(35, false, 2)->begin, 30);
}

}  // namespace
}  // namespace tessera::server
