#include "server/access/quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/size.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

const QuotaBase kNode{.memory = 40 * kGiB, .swap = 80 * kGiB, .gpus = 2};
const UserQuota kQuota{.name = "@team",
                       .memory = "25%",
                       .swap = "20G",
                       .compute = 50,
                       .vgpus = 2,
                       .processes = 4,
                       .sessions = 8,
                       .priority = 8,
                       .weight = 100};
const QuotaWish kUsual{.memory = 0, .swap = 0, .compute = 0, .priority = 8, .weight = 100};

Caller User(uid_t uid, std::vector<gid_t> groups = {}) {
  return {.role = Caller::Role::kUser, .uid = uid, .groups = std::move(groups)};
}

TEST(Quota, TheMostSpecificOneCounts) {
  const std::vector<Quota> quotas = {
      {.name = "@b", .group = 20, .bounds = {.vgpus = 1}}, {.name = "default", .bounds = {.vgpus = 2, .weight = 7}},
      {.name = "@a", .group = 10, .bounds = {.vgpus = 3}}, {.name = "alice", .user = 1001, .bounds = {.vgpus = 4}},
      {.name = "nobody's", .bounds = {.vgpus = 5}},
  };
  EXPECT_EQ(QuotaFor(User(1001, {10, 20}), quotas)->name, "alice");
  EXPECT_EQ(QuotaFor(User(1002, {10, 20}), quotas)->name, "@b") << "the first one in the file";
  EXPECT_EQ(QuotaFor(User(1002, {10}), quotas)->name, "@a");
  EXPECT_EQ(QuotaFor(User(1002), quotas)->name, "default");
  EXPECT_EQ(QuotaFor(User(1001), quotas)->weight, 7u) << "what it does not say is the default's";
  EXPECT_EQ(QuotaFor(User(1001), quotas)->priority, UserQuota{}.priority);
  EXPECT_EQ(QuotaFor(User(1), {})->vgpus, UserQuota{}.vgpus);
  EXPECT_FALSE(QuotaFor({.role = Caller::Role::kOperator, .uid = 1001, .groups = {}}, quotas));
}

TEST(Quota, ARefusalNamesQuotaBoundUseAndRequest) {
  QuotaWish wish = kUsual;
  wish.memory = 5 * kGiB;
  EXPECT_TRUE(CheckQuota(kQuota, kNode, {.memory = 5 * kGiB}, wish, nullptr));
  const auto refused = CheckQuota(kQuota, kNode, {.memory = 6 * kGiB}, wish, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_EQ(refused.error().message, "quota @team allows memory of 10 GiB: 6 GiB in use, 5 GiB asked for");
}

// A latency goal goes before others of its priority, so it needs a priority below the first that is allowed.
TEST(Quota, ALatencyGoalIsAClassOfItsOwn) {
  QuotaWish wish = kUsual;
  wish.first = true;
  const auto refused = CheckQuota(kQuota, kNode, {}, wish, &kUsual);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_THAT(refused.error().message, HasSubstr("goes before others"));
  EXPECT_THAT(refused.error().hint, HasSubstr("priority 9"));
  EXPECT_TRUE(CheckQuota(kQuota, kNode, {}, wish, &wish)) << "an operator let it";
  wish.priority = 9;
  EXPECT_TRUE(CheckQuota(kQuota, kNode, {}, wish, nullptr));
}

TEST(Quota, EachBoundHolds) {
  const auto message = [](const QuotaClaims& others, const QuotaWish& wish) {
    const auto checked = CheckQuota(kQuota, kNode, others, wish, nullptr);
    return checked ? "" : checked.error().message;
  };
  QuotaWish wish = kUsual;
  EXPECT_EQ(message({}, wish), "");
  EXPECT_THAT(message({.vgpus = 2}, wish), HasSubstr("vgpus of 2"));
  wish.compute = 60;  // 50 % of two GPUs is 100 % of one
  EXPECT_EQ(message({.compute = 40}, wish), "");
  EXPECT_THAT(message({.compute = 41}, wish), HasSubstr("compute of 100 % of a GPU: 41 % in use, 60 % asked for"));
  wish = kUsual;
  wish.swap = 8 * kGiB;
  EXPECT_EQ(message({.swap = 12 * kGiB}, wish), "");
  EXPECT_THAT(message({.swap = 13 * kGiB}, wish), HasSubstr("swap of 20 GiB"));
  wish.swap.reset();
  EXPECT_THAT(message({}, wish), HasSubstr("swap of 20 GiB")) << "no bound is all host memory";
  wish = kUsual;
  wish.priority = 7;
  EXPECT_THAT(message({}, wish), HasSubstr("priority 8 and higher"));
  wish = kUsual;
  wish.weight = 101;
  EXPECT_THAT(message({}, wish), HasSubstr("weight of 100"));
}

TEST(Quota, WhatDoesNotGrowIsNotRefused) {
  const QuotaWish before{.memory = 30 * kGiB, .swap = {}, .compute = 190, .priority = 0, .weight = 10'000};
  QuotaWish after = before;
  after.memory -= 1;
  EXPECT_TRUE(CheckQuota(kQuota, kNode, {.memory = kGiB, .vgpus = 9}, after, &before));
  after.memory = before.memory + 1;
  EXPECT_FALSE(CheckQuota(kQuota, kNode, {}, after, &before));
}

TEST(Quota, HostMemoryIsSharedEvenly) {
  EXPECT_EQ(SwapShare(kQuota, kNode, {}), 10 * kGiB);
  EXPECT_EQ(SwapShare(kQuota, kNode, {.swap = 17 * kGiB}), 3 * kGiB);
  UserQuota without = kQuota;
  without.swap = "max";
  EXPECT_FALSE(SwapShare(without, kNode, {}));
}

TEST(Quota, CountsAreBounded) {
  EXPECT_TRUE(CheckQuotaCount(kQuota, "sessions", 8, 7));
  EXPECT_EQ(CheckQuotaCount(kQuota, "sessions", 8, 8).error().message,
            "quota @team allows sessions of 8: 8 in use, 1 asked for");
}

// Whatever is asked for, in whatever order: what was admitted never exceeds a bound.
TEST(QuotaProperty, SumsStayWithinTheBounds) {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int history = 0; history < 200; ++history) {
    std::vector<QuotaWish> vgpus;
    for (int step = 0; step < 60; ++step) {
      const bool change = !vgpus.empty() && below(2) == 0;
      const std::size_t which = change ? below(vgpus.size()) : vgpus.size();
      QuotaClaims others;
      for (std::size_t i = 0; i < vgpus.size(); ++i) {
        if (i == which) continue;
        others.memory += vgpus[i].memory;
        others.swap += *vgpus[i].swap;
        others.compute += vgpus[i].compute;
        ++others.vgpus;
      }
      QuotaWish wish{.memory = below(12) * kGiB,
                     .swap = below(24) * kGiB,
                     .compute = static_cast<double>(below(120)),
                     .priority = below(16),
                     .weight = below(200)};
      if (below(4) == 0) wish.swap = SwapShare(kQuota, kNode, others);
      if (!CheckQuota(kQuota, kNode, others, wish, change ? &vgpus[which] : nullptr)) continue;
      if (!change) vgpus.emplace_back();
      vgpus[which] = wish;
      ASSERT_LE(others.memory + wish.memory, 10 * kGiB);
      ASSERT_LE(others.swap + *wish.swap, 20 * kGiB);
      ASSERT_LE(others.compute + wish.compute, 100);
      ASSERT_LE(vgpus.size(), 2u);
      ASSERT_GE(wish.priority, 8u);
      ASSERT_LE(wish.weight, 100u);
    }
    if (below(3) == 0 && !vgpus.empty()) vgpus.pop_back();
  }
}

}  // namespace
}  // namespace tessera::server
