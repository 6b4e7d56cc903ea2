#include "sched/steering/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
constexpr SliceBounds kBounds = {.mean = 10 * kMs, .least = kMs, .most = kSecond};

auto Near(double part) { return DoubleNear(part, 1e-9); }

std::vector<double> Parts(const std::vector<Shares>& shares) { return DueParts(shares); }
std::vector<Nanos> Slices(const std::vector<double>& parts) { return SlicesFor(parts, kBounds); }

TEST(DueParts, ByWeight) {
  EXPECT_THAT(Parts({{}}), ElementsAre(Near(1)));
  EXPECT_THAT(Parts({{.weight = 700}, {.weight = 100}}), ElementsAre(Near(0.875), Near(0.125)));
}

TEST(DueParts, RequestsAreAddedToTheWeight) {
  EXPECT_THAT(Parts({{.request_pct = 50, .weight = 1}, {.request_pct = 20, .weight = 1}, {.weight = 4}}),
              ElementsAre(Near(0.55), Near(0.25), Near(0.2)));
  EXPECT_THAT(Parts({{.request_pct = 60}, {.request_pct = 40}, {}}), ElementsAre(Near(0.6), Near(0.4), Near(0)));
}

TEST(DueParts, WhatALimitLeavesGoesToTheOthers) {
  EXPECT_THAT(Parts({{.limit_pct = 10}, {}, {}}), ElementsAre(Near(0.1), Near(0.45), Near(0.45)));
  EXPECT_THAT(Parts({{.limit_pct = 10}, {.limit_pct = 40}, {}}), ElementsAre(Near(0.1), Near(0.4), Near(0.5)));
  EXPECT_THAT(Parts({{.limit_pct = 30}, {.limit_pct = 20}}), ElementsAre(Near(0.3), Near(0.2)));
}

TEST(DueParts, RequestsAreOfTheTimeThatSwitchesTakeToo) {
  EXPECT_THAT(DueParts(std::vector<Shares>{{.request_pct = 45}, {.request_pct = 18}, {}}, 0.1),
              ElementsAre(Near(0.6), Near(0.3), Near(0.1)));
  EXPECT_THAT(DueParts(std::vector<Shares>{{.weight = 300}, {.weight = 100}}, 0.1),
              ElementsAre(Near(0.75), Near(0.25)));
  EXPECT_THAT(DueParts(std::vector<Shares>{{.request_pct = 50, .limit_pct = 50}, {}}, 0.1),
              ElementsAre(Near(0.5), Near(0.5)));
  EXPECT_THAT(DueParts(std::vector<Shares>{{.request_pct = 75}, {.request_pct = 25}}, 0.1),
              ElementsAre(Near(0.75), Near(0.25)));
}

TEST(SlicesFor, KeepTheMean) {
  EXPECT_THAT(Slices({0.5, 0.5}), ElementsAre(10 * kMs, 10 * kMs));
  EXPECT_THAT(Slices({0.875, 0.125}), ElementsAre(17'500'000, 2'500'000));
  EXPECT_THAT(Slices({0.2, 0.2}), ElementsAre(10 * kMs, 10 * kMs));
}

TEST(SlicesFor, AreLongerForTheSakeOfATinyShare) {
  const auto slices = Slices({100, 1});
  EXPECT_NEAR(static_cast<double>(slices[0]), 100 * kMs, 10);
  EXPECT_NEAR(static_cast<double>(slices[1]), kMs, 10);
}

TEST(SlicesFor, ButNotWithoutEnd) {
  EXPECT_THAT(Slices({10'000, 1}), ElementsAre(testing::Le(kMostStretched), kMs));
  EXPECT_THAT(Slices({1, 0}), ElementsAre(testing::Le(kMostStretched), kMs));
}

RC_GTEST_PROP(SlicesProperty, PartsAreWithinRequestAndLimitAndUseTheGpuUp, ()) {
  std::vector<Shares> all(static_cast<std::size_t>(*rc::gen::inRange(1, 20)));
  int left = 100;
  double limits = 0;
  for (Shares& shares : all) {
    const int request = *rc::gen::inRange(0, left + 1) * *rc::gen::inRange(0, 2);
    left -= request;
    shares = {.request_pct = static_cast<double>(request),
              .limit_pct = static_cast<double>(*rc::gen::inRange(std::max(request, 1), 101)),
              .weight = *rc::gen::inRange(1u, 10'001u)};
    limits += shares.limit_pct / 100;
  }
  const auto parts = DueParts(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    RC_ASSERT(parts[i] >= all[i].request_pct / 100 - 1e-9);
    RC_ASSERT(parts[i] <= all[i].limit_pct / 100 + 1e-9);
  }
  RC_ASSERT(std::abs(std::accumulate(parts.begin(), parts.end(), 0.0) - std::min(1.0, limits)) < 1e-6);
  const auto with_losses = DueParts(all, *rc::gen::inRange(0, 30) / 1000.0);
  for (std::size_t i = 0; i < all.size(); ++i) RC_ASSERT(with_losses[i] <= all[i].limit_pct / 100 + 1e-9);
  RC_ASSERT(std::abs(std::accumulate(with_losses.begin(), with_losses.end(), 0.0) - std::min(1.0, limits)) < 1e-6);
  for (const Nanos slice : Slices(parts)) RC_ASSERT(slice >= kBounds.least && slice <= kBounds.most);
}

}  // namespace
}  // namespace tessera::sched
