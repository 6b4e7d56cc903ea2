#include "cli/top/model/top_history.h"

#include <gtest/gtest.h>

namespace tessera::cli::top {
namespace {

using Pieces = std::vector<std::optional<double>>;

TEST(History, TheNewestIsLast) {
  History history;
  const Nanos begin = 600 * kSecond;
  history.Add(begin, 10);
  history.Add(begin + 20 * kSecond, 30);
  history.Add(begin + 25 * kSecond, 50);
  EXPECT_EQ(history.Pieces(begin + 25 * kSecond, 3), (Pieces{std::nullopt, 10, 40}));
  EXPECT_EQ(history.Pieces(begin + 25 * kSecond, 0), Pieces{});
}

TEST(History, WhereNothingCameItIsAsBefore) {
  History history;
  history.Add(600 * kSecond, 10);
  EXPECT_EQ(history.Pieces(650 * kSecond, 6), (Pieces{10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(history.Pieces(620 * kSecond, 6), (Pieces{std::nullopt, std::nullopt, std::nullopt, 10, 10, 10}));
}

TEST(History, APieceStaysWhatItIsUntilItIsFull) {
  History history;
  for (int second = 0; second < 60; ++second) history.Add((600 + second) * kSecond, second);
  const auto before = history.Pieces(659 * kSecond, 6);
  EXPECT_EQ(before, (Pieces{4.5, 14.5, 24.5, 34.5, 44.5, 54.5}));
  history.Add(660 * kSecond, 60);
  EXPECT_EQ(history.Pieces(660 * kSecond, 6), (Pieces{14.5, 24.5, 34.5, 44.5, 54.5, 60}));
}

TEST(History, WhatIsOlderThanAMinuteIsForgotten) {
  History history;
  for (int second = 0; second < 3600; ++second) history.Add(second * kSecond, second < 3000 ? 100 : 0);
  for (const auto& piece : history.Pieces(3599 * kSecond, 60)) EXPECT_EQ(piece, 0);
}

}  // namespace
}  // namespace tessera::cli::top
