#include "cli/demo/demo_view.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(DemoView, BarsFillFromTheLeft) {
  EXPECT_EQ(Bar(0, 4), "    ");
  EXPECT_EQ(Bar(50, 4), "██  ");
  EXPECT_EQ(Bar(100, 4), "████");
  EXPECT_EQ(Bar(150, 4), "████");
  EXPECT_EQ(Bar(12.5, 4), "▌   ");
}

}  // namespace
}  // namespace tessera::cli
