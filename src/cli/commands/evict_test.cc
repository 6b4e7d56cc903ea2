#include "cli/commands/evict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/size.h"

namespace tessera::cli {
using client::Json;

namespace {

const Json kEvictions = Json::array({{{"pid", 7}, {"gpu", 0}, {"evicting_bytes", 96 * kMiB}}});

Json Process(std::uint64_t evicting, Json error = nullptr, int pid = 7, int gpu = 0) {
  return {{"pid", pid}, {"gpu", gpu}, {"memory_evicting_bytes", evicting}, {"evict_error", std::move(error)}};
}

TEST(StandingOf, WhatIsOnItsWayIsLeft) {
  const auto standing = StandingOf(kEvictions, Json::array({Process(64 * kMiB, "an earlier one failed")}));
  EXPECT_EQ(standing.left, 64 * kMiB);
  EXPECT_EQ(standing.error, "");
}

TEST(StandingOf, DoneWhenNothingIsLeft) {
  const auto standing = StandingOf(kEvictions, Json::array({Process(0)}));
  EXPECT_EQ(standing.left, 0u);
  EXPECT_EQ(standing.error, "");
}

TEST(StandingOf, WhatTheMoverGaveUpHasAReason) {
  EXPECT_EQ(StandingOf(kEvictions, Json::array({Process(0, "full")})).error, "full");
}

TEST(StandingOf, WhoHasEndedIsDone) {
  const Json others = Json::array({Process(32 * kMiB, "x", 8), Process(32 * kMiB, "x", 7, 1), "odd", nullptr});
  const auto standing = StandingOf(kEvictions, others);
  EXPECT_EQ(standing.left, 0u);
  EXPECT_EQ(standing.error, "");
}

TEST(Patience, LastsAsLongAsMemoryIsMoved) {
  Patience patience;
  const Nanos begin = 1000 * kSecond;
  Nanos now = begin;
  for (std::uint64_t left = 10 * kGiB; left > 0; left -= kGiB, now += kPatience - kSecond)
    EXPECT_TRUE(patience.Lasts(left, now)) << "a minute and more, in steps";
  EXPECT_TRUE(patience.Lasts(kGiB, now));
  EXPECT_FALSE(patience.Lasts(kGiB, now + 2 * kSecond)) << "nothing was moved for 30 s";
}

}  // namespace
}  // namespace tessera::cli
