#include "kubernetes/objects/quantity.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>

namespace tessera::kubernetes {
namespace {

TEST(Quantity, Reads) {
  constexpr std::pair<const char*, std::uint64_t> kRight[] = {
      {"0", 0},
      {"40", 40},
      {"60Gi", 60ull << 30},
      {"1.5Gi", 3ull << 29},
      {"1k", 1000},
      {"2e3", 2000},
      {"2E3", 2000},
      {"1E", 1'000'000'000'000'000'000},
      {"500m", 1},
      {"1001m", 2},
      {"1.", 1},
      {"9223372036854775807", 9223372036854775807},
      {"7Ki", 7168},
  };
  for (const auto& [text, value] : kRight) {
    const auto read = ParseQuantity(text);
    ASSERT_TRUE(read) << text << ": " << read.error().Text();
    EXPECT_EQ(*read, value) << text;
  }
}

TEST(Quantity, SaysWhatIsWrong) {
  for (const char* text :
       {"", "Gi", "-1", "+1", "1 Gi", "1gi", "1GiB", "1..5", "nan", "inf", "0x10", "1e", "1e3Gi", "e3"})
    EXPECT_EQ(ParseQuantity(text).error().code, EINVAL) << text;
  for (const char* text : {"9223372036854775808", "8Ei", "10E", "1e19", "99999999999999999999"})
    EXPECT_EQ(ParseQuantity(text).error().code, ERANGE) << text;
}

TEST(Quantity, WhatIsWrittenIsRead) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(60ull << 30), "60Gi");
  EXPECT_EQ(FormatBytes(1536ull << 20), "1536Mi");
  EXPECT_EQ(FormatBytes(5), "5");
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t bytes = (random() >> 1) >> random() % 60;
    EXPECT_EQ(ParseQuantity(FormatBytes(bytes)).value(), bytes);
  }
}

TEST(Quantity, AnyText) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = "0123456789.eEKMGTPimnku-+ "[random() % 25];
    (void)ParseQuantity(text);
  }
}

}  // namespace
}  // namespace tessera::kubernetes
