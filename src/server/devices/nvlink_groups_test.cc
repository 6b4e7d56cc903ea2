#include "server/devices/nvlink_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tessera::server {
namespace {

using Links = std::set<std::pair<std::uint32_t, std::uint32_t>>;

std::vector<std::optional<std::uint32_t>> Groups(std::uint32_t gpus, const Links& links) {
  return NvlinkGroups(gpus, [&](std::uint32_t a, std::uint32_t b) { return links.contains({a, b}); });
}

TEST(NvlinkGroups, ByTheLowestNumber) {
  constexpr std::nullopt_t kNone = std::nullopt;
  using testing::ElementsAre;
  EXPECT_TRUE(Groups(0, {}).empty());
  EXPECT_THAT(Groups(2, {}), ElementsAre(kNone, kNone));
  EXPECT_THAT(Groups(2, {{0, 1}}), ElementsAre(0, 0));
  EXPECT_THAT(Groups(4, {{0, 2}, {1, 3}}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Groups(5, {{1, 4}, {2, 4}}), ElementsAre(kNone, 1, 1, kNone, 1));
  EXPECT_THAT(Groups(4, {{0, 1}, {2, 3}, {1, 3}}), ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace tessera::server
