#include "sched/bursts/length_histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

TEST(LengthHistogram, KnowsNothingAtFirst) {
  const LengthHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Quantile(0.99), 0);
}

TEST(LengthHistogram, TakesLengthsOfAnySize) {
  LengthHistogram histogram;
  for (const Nanos length : {Nanos{-1}, Nanos{0}, Nanos{kNever}}) histogram.Add(length);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.Quantile(0.5), kMicrosecond);
  EXPECT_GE(histogram.Quantile(1), 3600 * kSecond);
}

TEST(LengthHistogram, JoinsAndHalves) {
  LengthHistogram a;
  LengthHistogram b;
  for (int i = 0; i < 30; ++i) a.Add(kMillisecond);
  for (int i = 0; i < 10; ++i) b.Add(kSecond);
  a.Join(b);
  EXPECT_EQ(a.count(), 40u);
  EXPECT_LT(a.Quantile(0.75), 2 * kMillisecond);
  EXPECT_GE(a.Quantile(0.76), kSecond);
  a.Halve();
  EXPECT_EQ(a.count(), 20u);
  EXPECT_GE(a.Quantile(0.76), kSecond);
}

RC_GTEST_PROP(LengthHistogramProperty, QuantilesAreTheLengthsWithinTwoDigits, ()) {
  LengthHistogram histogram;
  std::vector<Nanos> lengths;
  const int count = *rc::gen::inRange(1, 200);
  for (int i = 0; i < count; ++i) {
    const Nanos most = Nanos{1} << *rc::gen::inRange(11, 41);
    lengths.push_back(*rc::gen::inRange<Nanos>(0, most));
    histogram.Add(lengths.back());
  }
  std::ranges::sort(lengths);
  for (const double part : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(part * count)));
    const auto exact = static_cast<double>(lengths.at(rank - 1));
    const auto told = static_cast<double>(histogram.Quantile(part));
    RC_ASSERT(told > exact);
    RC_ASSERT(told <= exact * (1 + 1.0 / 64) + kMicrosecond);
  }
}

}  // namespace
}  // namespace tessera::sched
