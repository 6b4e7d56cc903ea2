#include "base/duration.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tessera {
namespace {

TEST(Duration, TakesANumberAndAUnit) {
  EXPECT_EQ(ParseDuration("500ms"), 500 * kMillisecond);
  EXPECT_EQ(ParseDuration("10s"), 10 * kSecond);
  EXPECT_EQ(ParseDuration("10"), 10 * kSecond);
  EXPECT_EQ(ParseDuration("2min"), 120 * kSecond);
  EXPECT_EQ(ParseDuration("2m"), 120 * kSecond);
  EXPECT_EQ(ParseDuration("1.5h"), 5400 * kSecond);
  EXPECT_EQ(ParseDuration("0"), 0);
}

TEST(Duration, RefusesTheRest) {
  for (const char* wrong : {"", "s", "-1s", "10 s", "10us", "1e3", "nan", "inf", "10s ", "1s2", "0x10"})
    EXPECT_EQ(ParseDuration(wrong).error().code, EINVAL) << wrong;
  EXPECT_EQ(ParseDuration("9999999999h").error().code, ERANGE);
}

}  // namespace
}  // namespace tessera
