#include "cli/terminal/output.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Output, PercentagesHaveNoNeedlessDigits) {
  EXPECT_EQ(FormatPercent(30), "30");
  EXPECT_EQ(FormatPercent(12.5), "12.5");
  EXPECT_EQ(FormatPercent(29.97), "30");
  EXPECT_EQ(FormatPercent(0), "0");
}

TEST(Output, TimesAreShort) {
  EXPECT_EQ(FormatMicroseconds(0), "0 us");
  EXPECT_EQ(FormatMicroseconds(999), "999 us");
  EXPECT_EQ(FormatMicroseconds(350'000), "350 ms");
  EXPECT_EQ(FormatMicroseconds(1'550'000), "1.5 s");
  EXPECT_EQ(FormatMicroseconds(59'999'999), "59.9 s");
  EXPECT_EQ(FormatMicroseconds(125'000'000), "2 min 5 s");
  EXPECT_EQ(FormatMicroseconds(7'500'000'000), "2 h 5 min");
}

}  // namespace
}  // namespace tessera::cli
