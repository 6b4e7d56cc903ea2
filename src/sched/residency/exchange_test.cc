#include "sched/residency/exchange.h"

#include <gtest/gtest.h>

namespace tessera::sched {
namespace {

constexpr std::uint64_t kGiB = 1u << 30;

TEST(Exchange, BeginsAtOnceWhereSomethingIsHot) {
  const Exchange exchange;
  EXPECT_EQ(exchange.Bytes(0, 0), 0u);
  EXPECT_EQ(exchange.Bytes(kGiB, 0), kGiB);
}

TEST(Exchange, OneIsBounded) {
  const Exchange exchange;
  EXPECT_EQ(exchange.Bytes(100 * kGiB, kSecond), Exchange::kMostBytes);
}

TEST(Exchange, RestsAfterAShortOneUntilTheProgramHasLooked) {
  Exchange exchange;
  exchange.Done(kMillisecond, kSecond);
  EXPECT_EQ(exchange.Bytes(kGiB, kSecond + Exchange::kShortestRest - 1), 0u);
  EXPECT_EQ(exchange.Bytes(kGiB, kSecond + Exchange::kShortestRest), kGiB);
}

// A program that always says that something is hot, on links of several speeds.
class Thrashing : public testing::TestWithParam<Nanos> {};
INSTANTIATE_TEST_SUITE_P(TimePerGiB, Thrashing,
                         testing::Values(10 * kMillisecond, 40 * kMillisecond, 300 * kMillisecond, 3 * kSecond));

TEST_P(Thrashing, TakesATenthOfTheTimeAtMost) {
  Exchange exchange;
  Nanos moving = 0, now = 0;
  for (const Nanos end = 600 * kSecond; now < end;) {
    const std::uint64_t bytes = exchange.Bytes(50 * kGiB, now);
    const Nanos took = static_cast<Nanos>(2 * bytes / kGiB) * GetParam();
    now += took;
    moving += took;
    if (bytes > 0) exchange.Done(took, now);
    now += kMillisecond;
  }
  EXPECT_GT(moving, 0);
  EXPECT_LE(static_cast<double>(moving),
            0.1 * static_cast<double>(now) +
                static_cast<double>(2 * Exchange::kMostBytes / kGiB) * static_cast<double>(GetParam()));
}

}  // namespace
}  // namespace tessera::sched
