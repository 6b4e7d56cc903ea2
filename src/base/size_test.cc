#include "base/size.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ParseSize, Units) {
  EXPECT_EQ(ParseSize("0"), 0u);
  EXPECT_EQ(ParseSize("4096"), 4096u);
  EXPECT_EQ(ParseSize("512M"), 512 * kMiB);
  EXPECT_EQ(ParseSize("512MiB"), 512 * kMiB);
  EXPECT_EQ(ParseSize("20GB"), 20'000'000'000u);
  EXPECT_EQ(ParseSize("1.5G"), kGiB + kGiB / 2);
  EXPECT_EQ(ParseSize("2T"), 2048 * kGiB);
  EXPECT_EQ(ParseSize("3k"), 3 * kKiB);
  EXPECT_EQ(ParseSize("18446744073709551615"), UINT64_MAX);
}

TEST(ParseSize, PercentOfTheWhole) {
  EXPECT_EQ(ParseSize("25%", 16 * kGiB), 4 * kGiB);
  EXPECT_EQ(ParseSize("25%").error().code, EINVAL);
  EXPECT_EQ(ParseSize("101%", kGiB).error().code, ERANGE);
}

TEST(ParseSize, RefusesTheRest) {
  for (const char* bad : {"", "G", "-1G", "1 G", "1GX", "1e9", "0x10", "1..5G", ".", "1P", "nan", "1iB", "%"})
    EXPECT_EQ(ParseSize(bad, kGiB).error().code, EINVAL) << bad;
  for (const char* large : {"18446744073709551616", "99999999T", "16777216T"})
    EXPECT_EQ(ParseSize(large).error().code, ERANGE) << large;
}

TEST(FormatSize, OneDecimalAtMost) {
  EXPECT_EQ(FormatSize(512), "512 B");
  EXPECT_EQ(FormatSize(20 * kGiB), "20 GiB");
  EXPECT_EQ(FormatSize(kGiB + kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatSize(143155 * kMiB), "139.8 GiB");
}

TEST(ParsePercent, Range) {
  EXPECT_EQ(ParsePercent("30"), 30.0);
  EXPECT_EQ(ParsePercent("12.5%"), 12.5);
  EXPECT_EQ(ParsePercent("101").error().code, ERANGE);
  EXPECT_EQ(ParsePercent("-1").error().code, EINVAL);
  EXPECT_EQ(ParsePercent("ten").error().code, EINVAL);
}

}  // namespace
}  // namespace tessera
