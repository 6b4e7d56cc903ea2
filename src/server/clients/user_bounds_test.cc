#include "server/clients/user_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tessera::server {
namespace {

using testing::HasSubstr;
using Kind = UserBounds::Kind;

constexpr uid_t kHostile = 1000, kHarmless = 1001, kRoot = 0;
constexpr UserBounds::Most kMost = {.gated = 2, .gated_processes = 5, .descriptors = 20};

TEST(UserBounds, AUserAtItsBoundIsRefusedAndOthersAreNot) {
  UserBounds bounds(kMost);
  std::vector<UserBounds::Claim> claims;
  for (std::size_t i = 0; i < kMost.gated; ++i) claims.push_back(std::move(*bounds.Take(kHostile, Kind::kGated, 1)));
  EXPECT_EQ(bounds.CountOf(kHostile, Kind::kGated), 2u);
  const auto refused = bounds.Take(kHostile, Kind::kGated, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EMFILE);
  EXPECT_THAT(refused.error().Text(), HasSubstr("user 1000 has 2 programs under the kernel gate"));
  EXPECT_TRUE(bounds.Take(kHarmless, Kind::kGated, 1));
  EXPECT_TRUE(bounds.Take(kHostile, Kind::kConnection, 1)) << "that is another bound";
  claims.pop_back();
  EXPECT_TRUE(bounds.Take(kHostile, Kind::kGated, 1));
  claims.clear();
  EXPECT_EQ(bounds.CountOf(kHostile, Kind::kGated), 0u);
}

TEST(UserBounds, DescriptorsOfAllKindsCountTogether) {
  UserBounds bounds(kMost);
  const auto connection = bounds.Take(kHostile, Kind::kConnection, 10);
  const auto gated = bounds.Take(kHostile, Kind::kGated, 10);
  ASSERT_TRUE(connection && gated);
  const auto refused = bounds.Take(kHostile, Kind::kOther, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().Text(), HasSubstr("20 of the daemon's file descriptors"));
  EXPECT_TRUE(bounds.Take(kHarmless, Kind::kOther, 20));
  EXPECT_TRUE(bounds.Take(kRoot, Kind::kOther, 40)) << "root has twice as much";
  EXPECT_FALSE(bounds.Take(kRoot, Kind::kOther, 41));
}

TEST(UserBounds, WhatIsMovedIsGivenBackOnce) {
  UserBounds bounds(kMost);
  {
    auto first = bounds.Take(kHostile, Kind::kOther, 20);
    ASSERT_TRUE(first);
    UserBounds::Claim second = std::move(*first);
    second = {};
    EXPECT_TRUE(bounds.Take(kHostile, Kind::kOther, 20));
  }
  EXPECT_TRUE(bounds.Take(kHostile, Kind::kOther, 20));
}

TEST(UserBounds, ProgramsOfAUserShareTheirProcesses) {
  UserBounds bounds(kMost);
  {
    const auto one = bounds.GatedProcesses(kHostile), two = bounds.GatedProcesses(kHostile);
    EXPECT_EQ(one, two);
    EXPECT_EQ(*one, 5);
    *one -= 3;
    EXPECT_EQ(*bounds.GatedProcesses(kHostile), 2);
    EXPECT_EQ(*bounds.GatedProcesses(kHarmless), 5);
  }
  EXPECT_EQ(*bounds.GatedProcesses(kHostile), 5);
}

// As the service has: LimitNOFILE=65536.
TEST(UserBounds, AUserGetsAQuarterOfTheDescriptors) {
  const auto most = UserBounds::ForDescriptors(65536);
  EXPECT_EQ(most.descriptors, 16384u);
  EXPECT_EQ(most.gated_processes, 4096u);
  EXPECT_EQ(UserBounds::ForDescriptors(1 << 20).gated_processes, 4096u);
}

}  // namespace
}  // namespace tessera::server
