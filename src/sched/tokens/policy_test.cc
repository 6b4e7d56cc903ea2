#include "sched/tokens/policy.h"

#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using Pays = Account::Pays;

Account Waiting(const Shares& shares, Nanos since = 0) {
  Account account(shares, {}, 0);
  account.BeginWait(since, 0);
  return account;
}

TEST(Precedes, WhoIsOwedItsRequest) {
  EXPECT_TRUE(Precedes(Waiting({.request_pct = 1}), Waiting({.weight = 10000})));
  EXPECT_FALSE(Precedes(Waiting({.weight = 10000}), Waiting({.request_pct = 1})));
}

TEST(Precedes, OfThoseWhoTheWindowSawLeastOf) {
  Account fresh = Waiting({.request_pct = 10}, 60 * kMs);
  Account busy({.request_pct = 40}, {}, 0);
  busy.Run(0, Pays::kRequest);
  busy.Stop(20 * kMs);
  busy.BeginWait(20 * kMs, 0);
  busy.Settle(80 * kMs);
  fresh.Settle(80 * kMs);
  EXPECT_GT(busy.request().Fraction(), fresh.request().Fraction()) << "it waited and saved";
  EXPECT_TRUE(Precedes(fresh, busy)) << "but had half of its request in this window";
}

TEST(Precedes, ThenByVirtualTimeThenByTheWait) {
  Account ran({}, {}, 0);
  ran.Run(0, Pays::kSurplus);
  ran.Stop(1);
  ran.BeginWait(1, 0);
  EXPECT_TRUE(Precedes(Waiting({}, 5), ran));
  EXPECT_TRUE(Precedes(Waiting({}, 4), Waiting({}, 5)));
  const Account holder({}, {}, 0);
  EXPECT_FALSE(Precedes(holder, Waiting({}, 5))) << "a tie goes against the holder";
}

TEST(TermFor, AloneAndUnlimitedHasNoEnd) {
  EXPECT_EQ(TermFor({}, Account({}, {}, 0), {}, 0).length, kNever);
  EXPECT_EQ(TermFor({}, Account({.limit_pct = 40}, {}, 0), {}, 0).length, 40 * kMs);
}

TEST(TermFor, AGuaranteedTokenIsTheRequestsPartOfTheWindow) {
  const Competition others = {.weight = 100};
  for (auto [request, slice] : {std::pair{1, 2}, {20, 20}, {50, 50}, {90, 50}}) {
    const Term term = TermFor({}, Account({.request_pct = static_cast<double>(request)}, {}, 0), others, 0);
    EXPECT_EQ(term.pays, Pays::kRequest);
    EXPECT_NEAR(term.length, slice * kMs, 10) << request;
  }
  EXPECT_NEAR(TermFor({}, Account({30, 30}, {}, 0), others, 0).length, 30 * kMs, 10);
}

TEST(TermFor, UntilTheFirstOneMayRunThatItsLimitHoldsBack) {
  EXPECT_EQ(TermFor({}, Account({}, {}, 0), {.eligible_at = 70 * kMs}, 10 * kMs).length, 60 * kMs);
  EXPECT_EQ(TermFor({}, Account({}, {}, 0), {.eligible_at = 11 * kMs}, 10 * kMs).length, 4 * kMs);
}

TEST(SurplusSlice, IsThePartByWeightOfWhatRequestsLeave) {
  EXPECT_EQ(SurplusSlice({}, {}, {.weight = 100}), 25 * kMs) << "a quarter of the window at most";
  EXPECT_EQ(SurplusSlice({}, {}, {.weight = 900}), 10 * kMs);
  EXPECT_EQ(SurplusSlice({}, {.request_pct = 20}, {.request_pct = 30, .weight = 400}), 10 * kMs);
  EXPECT_EQ(SurplusSlice({}, {.weight = 1}, {.request_pct = 100, .weight = 100}), 4 * kMs);
}

TEST(Preempts, WhoIsOwedOrFarBehind) {
  Account holder({}, {}, 0);
  EXPECT_TRUE(Preempts(Waiting({.request_pct = 10}), holder, 25 * kMs));
  EXPECT_FALSE(Preempts(Waiting({.request_pct = 10}), Account({.request_pct = 1}, {}, 0), 25 * kMs));
  holder.Run(0, Pays::kSurplus);
  holder.Settle(25 * kMs);
  EXPECT_FALSE(Preempts(Waiting({}), holder, 25 * kMs)) << "one slice is what taking turns costs";
  holder.Settle(26 * kMs);
  EXPECT_TRUE(Preempts(Waiting({}), holder, 25 * kMs));
}

}  // namespace
}  // namespace tessera::sched
