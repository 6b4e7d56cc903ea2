#include "server/memory/pinned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace tessera::server {
namespace {

using Claims = std::array<std::uint64_t, wire::kPinReasons>;

std::uint64_t Sum(const PinnedByReason& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}); }
std::uint64_t Of(const PinnedByReason& bytes, const std::string& name) {
  return bytes[static_cast<std::size_t>(std::ranges::find(kPinNames, name) - kPinNames.begin())];
}
std::size_t At(wire::PinReason reason) { return static_cast<std::size_t>(reason); }

TEST(Pinned, WhatIsClaimedTrulyStandsUnderItsReason) {
  Claims claims{};
  claims[At(wire::PinReason::kPool)] = 30;
  claims[At(wire::PinReason::kExported)] = 20;
  claims[At(wire::PinReason::kGraph)] = 4;
  const auto bytes = DividePinned(claims, {.counted = 50, .context = 7, .driver = 5});
  EXPECT_EQ(Of(bytes, "pool"), 30u);
  EXPECT_EQ(Of(bytes, "exported"), 20u);
  EXPECT_EQ(Of(bytes, "graph"), 4u);
  EXPECT_EQ(Of(bytes, "driver"), 1u);
  EXPECT_EQ(Of(bytes, "context"), 7u);
  EXPECT_EQ(Of(bytes, "other"), 0u);
}

TEST(Pinned, WhatNobodyClaimsIsOther) { EXPECT_EQ(Of(DividePinned({}, {.counted = 50}), "other"), 50u); }

TEST(Pinned, WhatAProgramWithoutAShimHasIsThat) {
  EXPECT_EQ(Of(PinnedWithoutShim(9), "no_shim"), 9u);
  EXPECT_EQ(Of(DividePinned({}, {.no_shim = 9}), "no_shim"), 9u);
}

TEST(Pinned, WhateverIsClaimedItAddsUpToWhatIsKnown) {
  std::mt19937_64 random(7);
  const auto any = [&] {
    const std::uint64_t number = random() >> random() % 64;
    return random() % 4 == 0 ? UINT64_MAX - number : number;
  };
  for (int i = 0; i < 10'000; ++i) {
    Claims claims{};
    for (std::uint64_t& claim : claims) claim = any();
    const PinnedTotals totals{.counted = random() >> 24, .context = random() >> 24, .driver = random() >> 24};
    const auto bytes = DividePinned(claims, totals);
    ASSERT_EQ(Sum(bytes), totals.Sum());
    for (std::size_t reason = 0; reason < claims.size(); ++reason) ASSERT_LE(bytes[reason], claims[reason]);
  }
}

}  // namespace
}  // namespace tessera::server
