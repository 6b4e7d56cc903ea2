#include "cli/top/top_draw.h"

#include <gtest/gtest.h>

#include "base/size.h"

namespace tessera::cli::top {
namespace {

std::string BarText(int width, const BarValues& bar) {
  Screen screen(width > 0 ? width : 1, 1, true);
  DrawBar(screen, 0, 0, width, bar);
  return screen.Text();
}

TEST(ShortSize, TakesFiveCharactersAtMost) {
  EXPECT_EQ(ShortSize(0), "0");
  EXPECT_EQ(ShortSize(512), "512B");
  EXPECT_EQ(ShortSize(999), "999B");
  EXPECT_EQ(ShortSize(1000), "1K");
  EXPECT_EQ(ShortSize(kMiB + kMiB / 2), "1.5M");
  EXPECT_EQ(ShortSize(128 * kMiB), "128M");
  EXPECT_EQ(ShortSize(1023 * kMiB), "1G");
  EXPECT_EQ(ShortSize(80 * kGiB), "80G");
  EXPECT_EQ(ShortSize(UINT64_MAX), "16E");
  for (std::uint64_t bytes = 1; bytes < UINT64_MAX / 3; bytes = bytes * 3 / 2 + 1)
    EXPECT_LE(ShortSize(bytes).size(), 5u) << bytes;
}

TEST(Bar, TellsUsedBeyondAndOwed) {
  EXPECT_EQ(BarText(12, {.used = 0.5, .promised = 0.3}), "[|||++     ]\n");
  EXPECT_EQ(BarText(12, {.used = 0.1, .promised = 0.3}), "[|..       ]\n");
  EXPECT_EQ(BarText(12, {.used = 7, .promised = -1}), "[++++++++++]\n");
  EXPECT_EQ(BarText(12, {.used = 1, .promised = 1, .text = "12.5%"}), "[|||||12.5%]\n");
}

TEST(Bar, WhatHasNoRoomIsLeftOut) {
  EXPECT_EQ(BarText(5, {.text = "12.5%"}), "[12.]\n");
  EXPECT_EQ(BarText(2, {.used = 1}), "\n");
  Screen screen(4, 1, true);
  DrawBar(screen, 2, 0, 10, {.used = 1, .promised = 1});
  EXPECT_EQ(screen.Text(), "  [|\n");
}

TEST(History, IsDrawnInEighths) {
  Screen screen(7, 1, true);
  DrawHistory(screen, 0, 0, {std::nullopt, 0, 13, 50, 99, 100, 180});
  EXPECT_EQ(screen.Text(), " ▁▂▅███\n");
  Screen ascii(7, 1, false);
  DrawHistory(ascii, 0, 0, {std::nullopt, 0, 13, 50, 99, 100, 180});
  EXPECT_EQ(ascii.Text(), " _.=###\n");
}

}  // namespace
}  // namespace tessera::cli::top
