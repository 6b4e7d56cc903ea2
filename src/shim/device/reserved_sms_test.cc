#include "shim/device/reserved_sms.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera::shim {
namespace {

using Pair = std::pair<std::size_t, std::size_t>;
const std::vector<unsigned> kH100 = [] {
  std::vector<unsigned> sizes(15, 8);
  sizes.push_back(12);
  return sizes;
}();
const std::vector<unsigned> kEven(50, 2);

// The groups of a part, as first and count.
Pair Groups(unsigned from, unsigned to, const std::vector<unsigned>& sizes) {
  const SmGroups own = GroupsOf(from, to, sizes);
  return {own.first, own.count};
}

TEST(GroupsOf, EachEndIsRoundedDownToTheBeginningOfAGroup) {
  EXPECT_EQ(Groups(0, 10000, kH100), (Pair{0, 16}));
  EXPECT_EQ(Groups(0, 5000, kH100), (Pair{0, 8}));
  EXPECT_EQ(Groups(5000, 10000, kH100), (Pair{8, 8}));
  EXPECT_EQ(Groups(0, 2500, kH100), (Pair{0, 4}));
  EXPECT_EQ(Groups(2500, 10000, kH100), (Pair{4, 12}));
  EXPECT_EQ(Groups(0, 3330, kEven), (Pair{0, 16}));
  EXPECT_EQ(Groups(3330, 6660, kEven), (Pair{16, 17}));
}

TEST(GroupsOf, LessThanAGroupIsNone) {
  EXPECT_EQ(Groups(0, 600, kH100).second, 0u);
  EXPECT_EQ(Groups(0, 607, kH100), (Pair{0, 1}));
  EXPECT_EQ(Groups(9100, 9900, kH100).second, 0u) << "the last group is longer";
  EXPECT_EQ(Groups(0, 10000, {}).second, 0u);
}

RC_GTEST_PROP(GroupsOf, NeighboursShareNoneAndLeaveOutNone, ()) {
  const auto sizes = *rc::gen::container<std::vector<unsigned>>(rc::gen::inRange(1u, 20u));
  const auto a = *rc::gen::inRange(0u, 10001u), b = *rc::gen::inRange(a, 10001u), c = *rc::gen::inRange(b, 10001u);
  const SmGroups one = GroupsOf(a, b, sizes), two = GroupsOf(b, c, sizes), both = GroupsOf(a, c, sizes);
  RC_ASSERT(one.count == 0 || two.count == 0 || one.first + one.count == two.first);
  RC_ASSERT(both.count == one.count + two.count);
  RC_ASSERT(both.first + both.count <= sizes.size());
}

}  // namespace
}  // namespace tessera::shim
