#include "server/daemon/limit_waits.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/size.h"

namespace tessera::server {
namespace {

// Says how much is over the limit, one figure for each look; the last one for ever.
std::function<Result<VGpuReport>()> Over(std::vector<std::uint64_t> bytes, std::string error = "") {
  return [bytes = std::move(bytes), error = std::move(error), next = std::size_t{0}]() mutable -> Result<VGpuReport> {
    VGpuReport report{.name = "a"};
    report.memory_over_limit = bytes[next];
    if (next + 1 < bytes.size()) ++next;
    if (report.memory_over_limit == bytes.back()) report.over_limit_error = error;
    return report;
  };
}

TEST(LimitWaitsTest, ReturnsWhenNothingIsOverTheLimit) {
  LimitWaits waits;
  const auto done = waits.Await(Over({2 * kGiB, kGiB, kGiB, 0}), false);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->memory_over_limit, 0u);
}

TEST(LimitWaitsTest, SaysWhyMemoryStays) {
  LimitWaits waits;
  const auto pinned = waits.Await(Over({2 * kGiB, kGiB}, "it is pinned"), false);
  ASSERT_FALSE(pinned);
  EXPECT_EQ(pinned.error().code, EBUSY);
  EXPECT_NE(pinned.error().message.find("1 GiB more are on the GPU: it is pinned"), std::string::npos);
}

TEST(LimitWaitsTest, EndsWhenNothingMoves) {
  LimitWaits waits({.patience = 0});
  const auto stalled = waits.Await(Over({kGiB}), false);
  ASSERT_FALSE(stalled);
  EXPECT_NE(stalled.error().message.find("stalled"), std::string::npos);
}

TEST(LimitWaitsTest, KeepsNoMoreThreadsThanItMay) {
  LimitWaits waits({.most = 1});
  int looks = 0;
  const auto outer = waits.Await(
      [&]() -> Result<VGpuReport> {
        VGpuReport report{.name = "a"};
        report.memory_over_limit = ++looks == 1 ? kGiB : 0;
        if (looks == 2) EXPECT_EQ(waits.Await(Over({kGiB}), true).error().code, EAGAIN);
        return report;
      },
      true);
  EXPECT_TRUE(outer);
  EXPECT_TRUE(waits.Await(Over({kGiB, 0}), true)) << "the place is free again";
}

TEST(LimitWaitsTest, UsersLeaveOperatorsPlaces) {
  LimitWaits waits;
  int looks = 0;
  const auto outer = waits.Await(
      [&]() -> Result<VGpuReport> {
        VGpuReport report{.name = "a"};
        report.memory_over_limit = ++looks == 1 ? kGiB : 0;
        if (looks == 2) {
          EXPECT_EQ(waits.Await(Over({kGiB}), false).error().code, EAGAIN);
          EXPECT_TRUE(waits.Await(Over({kGiB, 0}), true));
        }
        return report;
      },
      false);
  EXPECT_TRUE(outer);
  EXPECT_TRUE(waits.Await(Over({kGiB, 0}), false)) << "the place is free again";
}

}  // namespace
}  // namespace tessera::server
