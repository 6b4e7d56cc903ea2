#include "sched/bursts/burst_meter.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

class BurstMeterTest : public testing::Test {
 protected:
  // A burst that ends now.
  bool Add(Nanos length, std::uint64_t submissions, bool alone = false) {
    now_ += 10 * kMs + length;
    const Burst burst = {now_ - length, now_, submissions, alone};
    meter_.AddWork(burst, now_);
    return meter_.AddBurst(burst, now_);
  }

  BurstMeter meter_{5 * kMs};
  Nanos now_ = 0;
};

TEST_F(BurstMeterTest, CountsWhatIsLongerThanTheTarget) {
  EXPECT_FALSE(Add(5 * kMs, 1));
  EXPECT_TRUE(Add(5 * kMs + 1, 1));
  EXPECT_EQ(meter_.since_start().bursts(), 2u);
  EXPECT_EQ(meter_.since_start().violations, 1u);
}

TEST_F(BurstMeterTest, ForgetsWhatIsOlderThanAMinute) {
  Add(9 * kMs, 1);
  EXPECT_EQ(meter_.LastMinute(now_ + 44 * kSecond).violations, 1u);
  EXPECT_EQ(meter_.LastMinute(now_ + 61 * kSecond).violations, 0u);
  EXPECT_EQ(meter_.LastMinute(now_ + 3600 * kSecond).bursts(), 0u);
  EXPECT_EQ(meter_.since_start().violations, 1u);
}

TEST_F(BurstMeterTest, SpeedIsTheTimeAloneOverTheTimeNow) {
  EXPECT_EQ(meter_.since_start().Speed(), 1) << "not known";
  Add(8 * kMs, 8);
  EXPECT_EQ(meter_.since_start().Speed(), 1) << "still not: nothing was alone";
  Add(4 * kMs, 8, true);
  Add(16 * kMs, 8);
  EXPECT_NEAR(meter_.since_start().Speed(), (4.0 + 4) / (4 + 16), 1e-9);
}

TEST_F(BurstMeterTest, ComparesWithBurstsOfTheSameSize) {
  Add(1 * kMs, 1, true);
  Add(20 * kMs, 100, true);
  EXPECT_NEAR(meter_.solo().Of(1).value(), 1 * kMs, 1);
  EXPECT_NEAR(meter_.solo().Of(100).value(), 20 * kMs, 1);
  EXPECT_NEAR(meter_.solo().Of(120).value(), 24 * kMs, 1);
  EXPECT_NEAR(meter_.solo().Of(1000).value(), 200 * kMs, 1) << "the nearest size";
}

TEST_F(BurstMeterTest, TheSpeedAloneFollowsTheClock) {
  for (int i = 0; i < 100; ++i) Add(4 * kMs, 8, true);
  for (int i = 0; i < 100; ++i) Add(2 * kMs, 8, true);
  EXPECT_NEAR(meter_.solo().Of(8).value(), 2 * kMs, 0.02 * kMs);
}

TEST_F(BurstMeterTest, WorkThatMadeNoProgressCountsAsTime) {
  Add(4 * kMs, 8, true);
  meter_.AddWork({now_, now_ + 4 * kMs, 0, false}, now_ + 4 * kMs);
  EXPECT_NEAR(meter_.since_start().Speed(), 0.5, 1e-9);
}

TEST_F(BurstMeterTest, LoadIsTheTimeAloneOverAllTime) {
  EXPECT_EQ(meter_.Load(now_), 0);
  for (int i = 0; i < 10000; ++i) Add(10 * kMs, 4, i == 0);
  EXPECT_NEAR(meter_.Load(now_), 0.5, 0.01);
}

}  // namespace
}  // namespace tessera::sched
