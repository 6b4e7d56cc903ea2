#include "shim/device/reserved_sms.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera::shim {
namespace {

// The groups of a part, as first and count.
std::pair<unsigned, unsigned> Groups(unsigned from, unsigned to, unsigned groups) {
  const SmGroups own = GroupsWithin(from, to, groups);
  return {own.first, own.count};
}

using Pair = std::pair<unsigned, unsigned>;

TEST(GroupsWithin, RoundsDownToWholeGroups) {
  EXPECT_EQ(Groups(0, 10000, 15), (Pair{0, 15}));
  EXPECT_EQ(Groups(0, 5000, 15), (Pair{0, 7}));
  EXPECT_EQ(Groups(5000, 10000, 15), (Pair{8, 7}));
  EXPECT_EQ(Groups(0, 3330, 50), (Pair{0, 16}));
  EXPECT_EQ(Groups(3330, 6660, 50), (Pair{17, 16}));
}

TEST(GroupsWithin, LessThanAGroupIsNone) {
  EXPECT_EQ(Groups(0, 600, 15).second, 0u);
  EXPECT_EQ(Groups(0, 667, 15), (Pair{0, 1}));
  EXPECT_EQ(Groups(300, 967, 15).second, 0u) << "it would be one at another place";
  EXPECT_EQ(Groups(0, 10000, 0).second, 0u);
}

RC_GTEST_PROP(GroupsWithin, NeighboursShareNone, ()) {
  const auto groups = *rc::gen::inRange(1u, 200u);
  const auto a = *rc::gen::inRange(0u, 10001u), b = *rc::gen::inRange(a, 10001u), c = *rc::gen::inRange(b, 10001u);
  const SmGroups one = GroupsWithin(a, b, groups), two = GroupsWithin(b, c, groups);
  RC_ASSERT(one.count == 0 || two.count == 0 || one.first + one.count <= two.first);
  RC_ASSERT(two.first + two.count <= groups);
  RC_ASSERT(one.count * 10000 <= (b - a) * groups);
}

}  // namespace
}  // namespace tessera::shim
