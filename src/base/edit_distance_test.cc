#include "base/edit_distance.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(EditDistance, CountsEveryKindOfMistake) {
  EXPECT_EQ(EditDistance("memory", "memory"), 0u);
  EXPECT_EQ(EditDistance("memroy", "memory"), 1u);   // swapped
  EXPECT_EQ(EditDistance("memor", "memory"), 1u);    // missing
  EXPECT_EQ(EditDistance("memmory", "memory"), 1u);  // too many
  EXPECT_EQ(EditDistance("nemory", "memory"), 1u);   // wrong
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
}

}  // namespace
}  // namespace tessera
