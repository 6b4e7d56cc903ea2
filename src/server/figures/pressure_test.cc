#include "server/figures/pressure.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(PressureTest, WhoNeverWaitedHasNone) {
  const auto figures = Pressure().At(kSecond);
  EXPECT_EQ(figures.avg10, 0);
  EXPECT_EQ(figures.avg300, 0);
  EXPECT_EQ(figures.total, 0);
}

TEST(PressureTest, AWaitCountsWhileItLasts) {
  Pressure pressure;
  pressure.Note(100 * kSecond, true);
  EXPECT_EQ(pressure.At(102 * kSecond).total, 2 * kSecond);
  EXPECT_NEAR(pressure.At(110 * kSecond).avg10, 63.2, 0.1);  // 1 - 1/e
  EXPECT_NEAR(pressure.At(160 * kSecond).avg60, 63.2, 0.1);
  EXPECT_NEAR(pressure.At(700 * kSecond).avg10, 100, 0.01);
}

TEST(PressureTest, ItIsForgottenByAndBy) {
  Pressure pressure;
  pressure.Note(100 * kSecond, true);
  pressure.Note(700 * kSecond, false);
  const auto figures = pressure.At(710 * kSecond);
  EXPECT_NEAR(figures.avg10, 36.8, 0.1);
  EXPECT_GT(figures.avg60, 80);
  EXPECT_GT(figures.avg300, figures.avg60 - 10);
  EXPECT_EQ(figures.total, 600 * kSecond);
  EXPECT_EQ(pressure.At(9000 * kSecond).total, 600 * kSecond);
}

TEST(PressureTest, EvenWaitsAreTheirShareOfTheTime) {
  Pressure pressure;
  for (int i = 0; i < 20'000; ++i) {  // every 100 ms a quarter of it
    pressure.Note(i * 100 * kMillisecond, true);
    pressure.Note(i * 100 * kMillisecond + 25 * kMillisecond, false);
  }
  const auto figures = pressure.At(2000 * kSecond);
  EXPECT_NEAR(figures.avg10, 25, 1);
  EXPECT_NEAR(figures.avg60, 25, 0.2);
  EXPECT_NEAR(figures.avg300, 25, 0.2);
}

TEST(PressureTest, AskingOftenChangesNothing) {
  Pressure seldom, often;
  seldom.Note(kSecond, true);
  for (int i = 0; i < 100; ++i) often.Note(kSecond + i * 100 * kMillisecond, true);
  EXPECT_NEAR(seldom.At(11 * kSecond).avg10, often.At(11 * kSecond).avg10, 1e-9);
  EXPECT_EQ(seldom.At(11 * kSecond).total, often.At(11 * kSecond).total);
}

}  // namespace
}  // namespace tessera::server
