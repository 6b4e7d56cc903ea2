#include "server/model/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kGpuBytes = 100 * kGiB;

class LedgerTest : public testing::Test {
 protected:
  Ledger ledger_{0, kGpuBytes, 10 * kGiB};
};

TEST_F(LedgerTest, APromiseIsKeptWhateverOthersTake) {
  ASSERT_TRUE(ledger_.Set(1, {.request = 30 * kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {}));
  EXPECT_EQ(ledger_.Available(2), 60 * kGiB);
  EXPECT_TRUE(ledger_.Charge(2, 60 * kGiB));
  EXPECT_FALSE(ledger_.Charge(2, 1));
  EXPECT_TRUE(ledger_.Charge(1, 30 * kGiB));
  EXPECT_FALSE(ledger_.Charge(1, 1)) << "nothing is left beyond its promise";
  EXPECT_EQ(ledger_.Held(), 90 * kGiB);
  EXPECT_EQ(ledger_.Unclaimed(), 0u);
}

TEST_F(LedgerTest, TheUnpromisedShareWhatIsLeft) {
  ASSERT_TRUE(ledger_.Set(1, {}));
  ASSERT_TRUE(ledger_.Set(2, {}));
  ASSERT_TRUE(ledger_.Charge(1, 50 * kGiB));
  EXPECT_EQ(ledger_.Available(1), 40 * kGiB);
  EXPECT_EQ(ledger_.Available(2), 40 * kGiB);
  EXPECT_EQ(ledger_.Max(2), 90 * kGiB);
  ledger_.GiveBack(1, 20 * kGiB);
  EXPECT_EQ(ledger_.Available(2), 60 * kGiB);
}

TEST_F(LedgerTest, MaxBoundsWithoutPromising) {
  ASSERT_TRUE(ledger_.Set(1, {.max = 5 * kGiB}));
  EXPECT_EQ(ledger_.Max(1), 5 * kGiB);
  EXPECT_EQ(ledger_.Promised(), 0u);
  EXPECT_TRUE(ledger_.Charge(1, 5 * kGiB));
  EXPECT_FALSE(ledger_.Charge(1, 1));
}

TEST_F(LedgerTest, RefusalNamesTheFigures) {
  ASSERT_TRUE(ledger_.Set(1, {.request = 40 * kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {.request = 30 * kGiB}));
  ASSERT_TRUE(ledger_.Set(3, {}));
  ASSERT_TRUE(ledger_.Charge(3, 8 * kGiB));
  const auto refused = ledger_.Set(4, {.request = 20 * kGiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_EQ(refused.error().message,
            "cannot promise 20 GiB: GPU 0 has 12 GiB left of 100 GiB (2 vGPUs hold promises, 8 GiB in use beyond "
            "promises, 10 GiB kept back)");
  EXPECT_THAT(refused.error().hint, HasSubstr("at most 12 GiB"));
  EXPECT_EQ(ledger_.Promised(), 70 * kGiB);
}

TEST_F(LedgerTest, ChangeIsAllOrNothing) {
  ASSERT_TRUE(ledger_.Set(1, {.request = 40 * kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {.request = 40 * kGiB}));
  EXPECT_FALSE(ledger_.Set(1, {.request = 51 * kGiB}));
  EXPECT_EQ(ledger_.Max(1), 50 * kGiB) << "what was not promised to the other";
  EXPECT_TRUE(ledger_.Set(1, {.request = 50 * kGiB}));
  EXPECT_EQ(ledger_.Promised(), 90 * kGiB);
}

TEST_F(LedgerTest, ALimitBoundsWithoutPromising) {
  ASSERT_TRUE(ledger_.Set(1, {.limit = 40 * kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {.limit = 80 * kGiB}));
  EXPECT_EQ(ledger_.Promised(), 0u);
  EXPECT_TRUE(ledger_.Charge(2, 80 * kGiB));
  EXPECT_EQ(ledger_.Available(1), 10 * kGiB);
  EXPECT_EQ(ledger_.Spare(), (90 - 40 - 80) * static_cast<std::int64_t>(kGiB));
}

TEST_F(LedgerTest, ALimitMayFallBelowWhatIsHeld) {
  ASSERT_TRUE(ledger_.Set(1, {.limit = 40 * kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {}));
  ASSERT_TRUE(ledger_.Charge(1, 40 * kGiB));
  ASSERT_TRUE(ledger_.Set(1, {.limit = 10 * kGiB}));
  EXPECT_EQ(ledger_.Available(1), 0u);
  EXPECT_EQ(ledger_.Available(2), 50 * kGiB);
  ledger_.GiveBack(1, 35 * kGiB);
  EXPECT_EQ(ledger_.Available(1), 5 * kGiB);
  EXPECT_EQ(ledger_.Available(2), 85 * kGiB);
}

// 90 GiB on the GPU, and 30 in host memory.
TEST(LedgerWithSwapTest, APromiseIsLentAndHasAPlaceAllTheSame) {
  Ledger ledger(0, kGpuBytes, 10 * kGiB, 30 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.request = 40 * kGiB}));
  ASSERT_TRUE(ledger.Set(2, {}));
  EXPECT_EQ(ledger.Max(2), 90 * kGiB);
  EXPECT_TRUE(ledger.Charge(2, 80 * kGiB)) << "40 of them can go to host memory and to what is not promised";
  EXPECT_FALSE(ledger.Charge(2, 1));
  EXPECT_TRUE(ledger.Charge(1, 40 * kGiB));
  EXPECT_FALSE(ledger.Set(1, {.request = 41 * kGiB})) << "what others hold would have no place";
}

// 90 GiB on the GPU, and 32 in host memory.
TEST(LedgerWithSwapTest, WhatWouldLeaveSlotsBlankTakesTheirPlace) {
  Ledger ledger(0, kGpuBytes, 10 * kGiB, 32 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.max = 200 * kGiB}));
  ASSERT_TRUE(ledger.Set(2, {.max = 200 * kGiB}));
  ASSERT_TRUE(ledger.Charge(1, 80 * kGiB));
  ledger.SetBlank(2, 22 * kGiB);
  EXPECT_TRUE(ledger.HasPlace(2));
  EXPECT_EQ(ledger.Available(1), 20 * kGiB);
  EXPECT_EQ(ledger.Available(2), 20 * kGiB);
  ASSERT_TRUE(ledger.Charge(2, 20 * kGiB));
  EXPECT_TRUE(ledger.HasPlace(2));
  ledger.SetBlank(2, 22 * kGiB + 1);
  EXPECT_FALSE(ledger.HasPlace(2)) << "not all of it could be moved";
  EXPECT_EQ(ledger.Available(1), 0u);
  ledger.Close(2);
  EXPECT_EQ(ledger.Available(1), 42 * kGiB);
}

TEST(LedgerWithSwapTest, WhatMayNotGoOutLeavesNothingBlank) {
  Ledger ledger(0, kGpuBytes, 10 * kGiB, 32 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.max = 200 * kGiB}));
  ASSERT_TRUE(ledger.Set(2, {.swap = 0}));
  ASSERT_TRUE(ledger.Charge(1, 80 * kGiB));
  ASSERT_TRUE(ledger.Charge(2, kGiB));
  ledger.SetBlank(2, 31 * kGiB);
  EXPECT_EQ(ledger.Available(1), 41 * kGiB);
  ASSERT_TRUE(ledger.Set(2, {.swap = 3 * kMiB}));
  ledger.SetBlank(2, 31 * kGiB);
  EXPECT_EQ(ledger.Available(1), 41 * kGiB - 124 * kMiB) << "two slots, and 2 MiB in each";
  ledger.SetBlank(2, kMiB);
  EXPECT_EQ(ledger.Available(1), 41 * kGiB - kMiB);
  ASSERT_TRUE(ledger.Set(2, {.swap = UINT64_MAX}));
  ledger.SetBlank(2, 31 * kGiB);
  EXPECT_EQ(ledger.Available(1), 10 * kGiB);
}

TEST(LedgerWithSwapTest, WhatFitsOnTheGpuHasAPlaceHoweverThinItLies) {
  Ledger ledger(0, kGpuBytes, 10 * kGiB, 32 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.max = 200 * kGiB}));
  ASSERT_TRUE(ledger.Charge(1, 90 * kGiB));
  ledger.SetBlank(1, 31 * 90 * kGiB);
  EXPECT_TRUE(ledger.HasPlace(1));
  EXPECT_EQ(ledger.Available(1), kGiB) << "each slot holds something";
  EXPECT_EQ(ledger.Max(1), 122 * kGiB) << "the size of its GPU does not change";
  ASSERT_TRUE(ledger.Set(1, {.limit = 80 * kGiB, .max = 200 * kGiB}));
  EXPECT_FALSE(ledger.HasPlace(1)) << "what is beyond the limit cannot be moved";
}

TEST(LedgerWithSwapTest, MaxDoesNotFollowALimitThatFalls) {
  Ledger ledger(0, kGpuBytes, 10 * kGiB, 100 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {}));
  EXPECT_EQ(ledger.Max(1), 90 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.limit = 10 * kGiB}));
  EXPECT_EQ(ledger.Max(1), 90 * kGiB);
  ASSERT_TRUE(ledger.Set(1, {.limit = 10 * kGiB, .max = 200 * kGiB, .swap = 20 * kGiB}));
  EXPECT_EQ(ledger.Max(1), 30 * kGiB);
}

TEST_F(LedgerTest, ChargesBeyondAllBoundsDoNotWrapAround) {
  ASSERT_TRUE(ledger_.Set(1, {.request = kGiB}));
  ASSERT_TRUE(ledger_.Set(2, {}));
  EXPECT_FALSE(ledger_.Charge(1, UINT64_MAX));
  ledger_.ChargeAnyway(1, 200 * kGiB);
  EXPECT_EQ(ledger_.Available(1), 0u);
  EXPECT_EQ(ledger_.Available(2), 0u);
  ledger_.GiveBack(1, UINT64_MAX);
  EXPECT_EQ(ledger_.Held(), 0u);
  EXPECT_EQ(ledger_.Unclaimed(), 89 * kGiB);
}

TEST_F(LedgerTest, ClosingGivesEverythingBack) {
  ASSERT_TRUE(ledger_.Set(1, {.request = 40 * kGiB}));
  ASSERT_TRUE(ledger_.Charge(1, 10 * kGiB));
  ledger_.Close(1);
  EXPECT_EQ(ledger_.Unclaimed(), 90 * kGiB);
  EXPECT_EQ(ledger_.Held(), 0u);
  EXPECT_EQ(ledger_.Promised(), 0u);
}

}  // namespace
}  // namespace tessera::server
