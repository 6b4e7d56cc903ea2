#include "sched/tokens/account.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using Pays = Account::Pays;

TEST(Account, AFirstRunLastsForTheWindowsQuota) {
  for (double limit : {5.0, 30.0, 50.0, 95.0}) {
    Account account({.limit_pct = limit}, {}, 0);
    EXPECT_NEAR(account.Available(), limit * kMs, 10) << limit;
  }
  EXPECT_EQ(Account({}, {}, 0).Available(), kNever);
}

TEST(Account, OverrunIsDebtThatIsPaidBackAtTheRateOfTheLimit) {
  Account account({.limit_pct = 10}, {}, 0);
  account.BeginWait(0, 0);
  account.Run(0, Pays::kSurplus);
  account.Stop(100 * kMs);  // one kernel of 100 ms
  EXPECT_FALSE(account.Eligible());
  account.BeginWait(100 * kMs, 0);
  EXPECT_EQ(account.Available(), 0);
  // Of 100 ms, 9 were there and 10 were earned meanwhile: 81 ms of debt. A run of 5 ms needs 4.5 ms more.
  EXPECT_NEAR(account.EligibleAt(), (100 + 855) * kMs, 2 * kMicrosecond);
  account.Settle(account.EligibleAt());
  EXPECT_TRUE(account.Eligible());
}

TEST(Account, ARemainderBelowTheMinimumSliceIsSaved) {
  Account account({.limit_pct = 10}, {}, 0);
  account.Run(0, Pays::kSurplus);
  account.Stop(9 * kMs);
  EXPECT_LT(account.Available(), 2 * kMs);
  EXPECT_FALSE(account.Eligible());
  account.BeginWait(9 * kMs, 0);
  account.Settle(20 * kMs);
  EXPECT_GT(account.Available(), 2 * kMs);
  EXPECT_FALSE(account.Eligible()) << "half a window's quota is worth a switch, not just any slice";
  account.Settle(account.EligibleAt());
  EXPECT_TRUE(account.Eligible());
  EXPECT_GE(account.Available(), 5 * kMs);
}

TEST(Account, TinyLimitsSaveUpForAWholeSlice) {
  Account account({.limit_pct = 0.5}, {}, 0);
  EXPECT_NEAR(account.Available(), 2 * kMs, 10);
  account.Run(0, Pays::kSurplus);
  account.Stop(2 * kMs);
  account.BeginWait(2 * kMs, 0);
  EXPECT_NEAR(account.EligibleAt(), 400 * kMs, 4 * kMs);
}

TEST(Account, OnOffUseCannotBeatTheWindow) {
  Account account({.limit_pct = 30}, {}, 0);
  Nanos now = 0;
  for (Nanos used = 0; used < 30 * kMs; used += 5 * kMs) {  // 5 ms of work, 10 ms of thinking
    account.Run(now, Pays::kSurplus);
    account.Stop(now + 5 * kMs);
    account.Settle(now += 15 * kMs);
  }
  EXPECT_NEAR(account.UsageAt(now, now).window_pct, 30, 0.1);
  EXPECT_LE(account.Available(), 7.5 * kMs) << "the allowance alone has earned more meanwhile";
}

TEST(Account, GuaranteedRunsSpendWhatTheRequestIsOwed) {
  Account account({.request_pct = 20}, {}, 0);
  EXPECT_TRUE(account.Owed());
  EXPECT_DOUBLE_EQ(account.UnmetFraction(), 1);
  account.Run(0, Pays::kRequest);
  account.Settle(10 * kMs);
  EXPECT_DOUBLE_EQ(account.UnmetFraction(), 0.5);
  EXPECT_DOUBLE_EQ(account.request().Fraction(), 0.6);
  account.Stop(30 * kMs);
  EXPECT_FALSE(account.Owed());
  EXPECT_DOUBLE_EQ(account.request().Fraction(), -0.2) << "an overrun is debt";
  EXPECT_DOUBLE_EQ(account.virtual_time(), 0);
  account.Settle(10 * kSecond);
  EXPECT_DOUBLE_EQ(account.request().Fraction(), 1) << "no more than a window's worth while idle";
}

TEST(Account, SurplusIsPaidInVirtualTime) {
  Account account({.request_pct = 20, .weight = 50}, {}, 0);
  account.Run(0, Pays::kSurplus);
  account.Stop(10 * kMs);
  EXPECT_DOUBLE_EQ(account.virtual_time(), 10.0 * kMs / 50);
  EXPECT_TRUE(account.Owed());
}

TEST(Account, WhoRanAloneIsOwedNothingAndOwesNothing) {
  Account account({.request_pct = 20}, {}, 0);
  account.Run(0, Pays::kRequestFirst);
  account.Stop(3600 * kSecond);
  EXPECT_FALSE(account.Owed());
  EXPECT_NEAR(account.request().Fraction(), 0, 1e-9);
  EXPECT_NEAR(account.virtual_time(), 0.8 * 3600 * kSecond / 100, kMs);
  account.Settle(3600 * kSecond + 100 * kMs);
  EXPECT_TRUE(account.Owed());
}

TEST(Account, IdleTimeGivesNoCredit) {
  Account account({}, {}, 0);
  account.Run(0, Pays::kSurplus);
  account.Stop(10 * kMs);
  EXPECT_TRUE(account.Competes(60 * kMs));
  account.BeginWait(60 * kMs, 40.0 * kMs);
  EXPECT_DOUBLE_EQ(account.virtual_time(), 0.1 * kMs) << "it was hardly away";
  account.Run(60 * kMs, Pays::kSurplus);
  account.Stop(60 * kMs);
  EXPECT_FALSE(account.Competes(160 * kMs));
  account.BeginWait(160 * kMs, 40.0 * kMs);
  EXPECT_DOUBLE_EQ(account.virtual_time(), 40 * kMs);
}

TEST(Account, WhatWasSavedWhileWaitingIsNotLostAtOnce) {
  Account account({.request_pct = 10, .limit_pct = 30}, {}, 0);
  account.BeginWait(0, 0);
  account.Settle(100 * kMs);
  EXPECT_DOUBLE_EQ(account.request().Fraction(), 2);
  const Nanos available = account.Available();
  EXPECT_GT(available, 40 * kMs);
  account.Run(100 * kMs, Pays::kRequest);
  account.Stop(100 * kMs);
  account.Settle(150 * kMs);
  EXPECT_DOUBLE_EQ(account.request().Fraction(), 2);
  EXPECT_EQ(account.Available(), available);
  account.Settle(200 * kMs);
  EXPECT_DOUBLE_EQ(account.request().Fraction(), 1);
  EXPECT_NEAR(account.Available(), 30 * kMs, 10);
}

TEST(Account, CreditIsBounded) {
  Account account({.weight = 10}, {}, 0);
  account.Settle(0, 100.0 * kSecond);
  EXPECT_DOUBLE_EQ(account.virtual_time(), 100.0 * kSecond - 50.0 * kMs / 10);
  account.Settle(0, 50.0 * kSecond);
  EXPECT_DOUBLE_EQ(account.virtual_time(), 100.0 * kSecond - 50.0 * kMs / 10);
}

TEST(Account, NewSharesHoldAtOnceAndDebtStays) {
  Account account({.limit_pct = 10}, {}, 0);
  account.Run(0, Pays::kSurplus);
  account.Stop(100 * kMs);
  account.SetShares({.limit_pct = 50}, 100 * kMs);
  account.BeginWait(100 * kMs, 0);
  EXPECT_NEAR(account.EligibleAt(), (100 + (81 + 12.5) / 0.5) * kMs, 2 * kMicrosecond);
  account.SetShares({.limit_pct = 100}, 101 * kMs);
  EXPECT_TRUE(account.Eligible());
}

TEST(Account, AnUnlimitedPastIsNoDebtButTheWindowCounts) {
  Account account({}, {}, 0);
  account.Run(0, Pays::kRequestFirst);
  account.Stop(3600 * kSecond);
  account.SetShares({.limit_pct = 30}, 3600 * kSecond);
  EXPECT_EQ(account.Available(), 0);
  account.BeginWait(3600 * kSecond, 0);
  EXPECT_NEAR(account.EligibleAt() - 3600 * kSecond, 62.5 * kMs, 2 * kMicrosecond);
}

TEST(Account, PaysItsPartWhenOthersRunWithIt) {
  Account account({}, {}, 0);
  account.Run(0, Pays::kSurplus);
  account.SetPart(10 * kMs, 0.5);
  account.Stop(30 * kMs);
  EXPECT_EQ(account.UsageAt(0, 0).busy, 20 * kMs);
}

}  // namespace
}  // namespace tessera::sched
