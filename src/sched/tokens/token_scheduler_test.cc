// The scheduler event by event. src/plan tests the shares that it gives in the long run.
#include "sched/tokens/token_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/milliseconds.h"

namespace tessera::sched {

bool operator==(const Decision& a, const Decision& b) {
  return a.kind == b.kind && a.vgpu == b.vgpu && a.expires == b.expires && a.bounded == b.bounded;
}

void PrintTo(const Decision& d, std::ostream* out) {
  *out << (d.kind == Decision::Kind::kGrant ? "grant " : "revoke ") << d.vgpu << " until " << d.expires
       << (d.bounded ? "" : " unbounded");
}

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Decision Grant(VgpuId id, Nanos expires) { return {Decision::Kind::kGrant, id, expires, true}; }
Decision OpenGrant(VgpuId id) { return {Decision::Kind::kGrant, id, kNever, false}; }
Decision Revoke(VgpuId id) { return {Decision::Kind::kRevoke, id}; }

class TokenSchedulerTest : public testing::Test {
 protected:
  void Add(VgpuId id, Shares shares = {}) { ASSERT_TRUE(scheduler_.Add(id, shares)); }
  std::vector<Decision> Take() { return scheduler_.TakeDecisions(); }

  TokenScheduler scheduler_;
};

TEST_F(TokenSchedulerTest, AdmissionRefusesWhatCannotBeKept) {
  EXPECT_EQ(scheduler_.Add(1, {.request_pct = -1}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.request_pct = 101}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.request_pct = NAN}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.limit_pct = 0}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.limit_pct = 100.5}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.weight = 0}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.weight = 10001}).error().code, ERANGE);
  EXPECT_EQ(scheduler_.Add(1, {.request_pct = 50, .limit_pct = 40}).error().code, EINVAL);

  Add(1, {.request_pct = 70});
  EXPECT_EQ(scheduler_.Add(1, {}).error().code, EEXIST);
  const auto too_much = scheduler_.Add(2, {.request_pct = 40});
  EXPECT_EQ(too_much.error().code, ENOSPC);
  EXPECT_THAT(too_much.error().message, testing::HasSubstr("10 too many"));
  Add(2, {.request_pct = 30});
}

TEST_F(TokenSchedulerTest, UpdateRefusesAndChangesNothing) {
  Add(1, {.request_pct = 70});
  Add(2, {.request_pct = 30});
  EXPECT_EQ(scheduler_.Update(3, {}, 0).error().code, ENOENT);
  EXPECT_EQ(scheduler_.Update(2, {.request_pct = 31}, 0).error().code, ENOSPC);
  EXPECT_EQ(scheduler_.Update(2, {.weight = 0}, 0).error().code, ERANGE);
  EXPECT_TRUE(scheduler_.Update(1, {.request_pct = 60}, 0));
  EXPECT_TRUE(scheduler_.Update(2, {.request_pct = 40}, 0));
  scheduler_.Remove(1, 0);
  EXPECT_TRUE(scheduler_.Update(2, {.request_pct = 100}, 0));
}

TEST_F(TokenSchedulerTest, AloneWithoutALimitIsUnbounded) {
  Add(1);
  EXPECT_EQ(scheduler_.NextDeadline(), kNever);
  scheduler_.Wants(1, 5 * kMs);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1)));
  EXPECT_EQ(scheduler_.NextDeadline(), kNever);
  scheduler_.Wants(1, 6 * kMs);
  EXPECT_THAT(Take(), IsEmpty()) << "it holds what it wants";
}

TEST_F(TokenSchedulerTest, AloneWithALimitIsHeldToIt) {
  Add(1, {.limit_pct = 30});
  scheduler_.Wants(1, 0);
  EXPECT_THAT(Take(), ElementsAre(Grant(1, 30 * kMs)));
  EXPECT_EQ(scheduler_.NextDeadline(), 30 * kMs);
  scheduler_.Advance(30 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Revoke(1)));
  scheduler_.Wants(1, 30 * kMs);
  scheduler_.Released(1, 30 * kMs, 30 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  const Nanos refilled = scheduler_.NextDeadline();
  EXPECT_GT(refilled, 60 * kMs);
  EXPECT_LE(refilled, 101 * kMs);
  scheduler_.Advance(refilled);
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(TokenSchedulerTest, AnOpenEndedHolderMakesWayAtOnce) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  Take();
  scheduler_.Wants(2, 3600 * kSecond);
  EXPECT_THAT(Take(), ElementsAre(Revoke(1)));
  scheduler_.Released(1, 3600 * kSecond + kMs, 3600 * kSecond + kMs);
  const Nanos expires = 3600 * kSecond + 26 * kMs;
  EXPECT_THAT(Take(), ElementsAre(Grant(2, expires))) << "two of equal weight take turns of a quarter window";
  scheduler_.Wants(1, 3600 * kSecond + kMs);
  EXPECT_THAT(Take(), IsEmpty());
  scheduler_.Advance(expires);
  EXPECT_THAT(Take(), ElementsAre(Revoke(2))) << "an hour alone is not held against the first";
}

TEST_F(TokenSchedulerTest, AFreshHolderOfSurplusKeepsItForAShortSlice) {
  Add(1);
  Add(2, {.request_pct = 20});
  scheduler_.Wants(1, 0);
  Take();
  scheduler_.Wants(2, 1 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Grant(1, 4 * kMs)));
  scheduler_.Advance(4 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Revoke(1)));
}

TEST_F(TokenSchedulerTest, AGuaranteedTokenIsNotCut) {
  Add(1, {.request_pct = 50});
  Add(2, {.request_pct = 20});
  scheduler_.Wants(1, 0);
  scheduler_.Wants(2, 0);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1), Grant(1, 50 * kMs)));
  scheduler_.Advance(20 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(TokenSchedulerTest, TheLargestUnmetFractionGoesFirst) {
  Add(1);
  Add(2, {.request_pct = 20});
  Add(3, {.request_pct = 40});
  scheduler_.Wants(3, 0);
  scheduler_.Idle(3, 30 * kMs, 30 * kMs);  // 30 of its 40 ms
  scheduler_.Wants(1, 30 * kMs);
  scheduler_.Wants(2, 30 * kMs);
  scheduler_.Wants(3, 30 * kMs);
  Take();
  scheduler_.Advance(34 * kMs);
  scheduler_.Released(1, 34 * kMs, 34 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Revoke(1), Grant(2, 54 * kMs)));
}

TEST_F(TokenSchedulerTest, IdleReturnsTheToken) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  scheduler_.Wants(2, 0);
  Take();
  scheduler_.Idle(1, 3 * kMs, 2 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Grant(2, 28 * kMs)));
  EXPECT_EQ(scheduler_.UsageOf(1, 3 * kMs).busy, 2 * kMs);
  EXPECT_EQ(scheduler_.UsageOf(2, 3 * kMs).waited, 3 * kMs);
}

TEST_F(TokenSchedulerTest, NobodyElseWantsItSoItIsExtended) {
  Add(1);
  Add(2);
  scheduler_.Wants(2, 0);
  scheduler_.Wants(1, 0);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(2), Grant(2, 25 * kMs)));
  scheduler_.Idle(2, 5 * kMs, 5 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Grant(1, 30 * kMs)));
  for (Nanos t : {30 * kMs, 55 * kMs, 80 * kMs}) {
    scheduler_.Advance(t);
    EXPECT_THAT(Take(), ElementsAre(Grant(1, t + 25 * kMs))) << "bounded, as the other one may come back soon";
  }
  scheduler_.Advance(105 * kMs);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1)));
}

TEST_F(TokenSchedulerTest, WhoComesAndGoesNeedNotWaitForWholeSlicesForEver) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  Nanos now = 0;
  Nanos shortest = kNever;
  for (int burst = 0; burst < 10; ++burst) {  // 2 works for 1 ms whenever it gets the token, and is back 1 ms later
    scheduler_.Wants(2, now);
    const Nanos wished = now;
    now = scheduler_.NextDeadline();
    scheduler_.Advance(now);
    scheduler_.Released(1, now, now);
    shortest = std::min(shortest, now - wished);
    scheduler_.Wants(1, now);
    now += kMs;
    scheduler_.Idle(2, now, now);
    now += kMs;
  }
  EXPECT_EQ(shortest, 3 * kMs) << "4 ms after the grant";
  EXPECT_GT(scheduler_.UsageOf(1, now).busy, scheduler_.UsageOf(2, now).busy);
}

TEST_F(TokenSchedulerTest, RunsUntilTheNextOneMayRun) {
  Add(1);
  Add(2, {.limit_pct = 30});
  scheduler_.Wants(2, 0);
  scheduler_.Advance(30 * kMs);
  scheduler_.Wants(2, 30 * kMs);
  scheduler_.Released(2, 30 * kMs, 30 * kMs);
  const Nanos eligible = scheduler_.NextDeadline();
  Take();
  scheduler_.Wants(1, 40 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Grant(1, eligible))) << "bounded, as somebody waits, but one token";
}

TEST_F(TokenSchedulerTest, AStragglerNoLongerBlocksOthers) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  scheduler_.Wants(2, 100 * kMs);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1), Revoke(1)));
  EXPECT_EQ(scheduler_.NextDeadline(), 150 * kMs);
  scheduler_.Advance(149 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  scheduler_.Advance(150 * kMs);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(2)));
  scheduler_.Released(1, 190 * kMs, 190 * kMs);
  EXPECT_THAT(Take(), IsEmpty()) << "the token is with the other one";
  // Both ran for 40 ms, and each pays half.
  EXPECT_EQ(scheduler_.UsageOf(1, 200 * kMs).busy, 170 * kMs);
  EXPECT_EQ(scheduler_.UsageOf(2, 200 * kMs).busy, 30 * kMs);
}

TEST_F(TokenSchedulerTest, AStragglerMayBeGrantedAgain) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  scheduler_.Wants(2, 100 * kMs);
  scheduler_.Wants(1, 101 * kMs);
  scheduler_.Advance(150 * kMs);
  scheduler_.Idle(2, 160 * kMs, 160 * kMs);
  EXPECT_THAT(Take(), testing::Contains(Grant(1, 185 * kMs)));
  scheduler_.Released(1, 170 * kMs, 170 * kMs);  // of the revoke long ago
  scheduler_.Wants(2, 170 * kMs);
  scheduler_.Advance(185 * kMs);
  EXPECT_THAT(Take(), ElementsAre(Revoke(1))) << "the late release did not take the new token away";
}

TEST_F(TokenSchedulerTest, DeathOfTheHolderFreesTheToken) {
  Add(1);
  Add(2);
  scheduler_.Wants(1, 0);
  scheduler_.Wants(2, 0);
  Take();
  scheduler_.Remove(1, 1 * kMs);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(2)));
  Add(3);
  scheduler_.Wants(3, 100 * kMs);
  scheduler_.Remove(2, 101 * kMs);  // revoked, not drained
  EXPECT_THAT(Take(), ElementsAre(Revoke(2), OpenGrant(3)));
  scheduler_.Released(2, 102 * kMs, 102 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(TokenSchedulerTest, UpdateOfTheHolderTakesEffectAtOnce) {
  Add(1);
  scheduler_.Wants(1, 0);
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1)));
  EXPECT_TRUE(scheduler_.Update(1, {.limit_pct = 50}, 20 * kMs));
  const auto bounded = Take();
  ASSERT_EQ(bounded.size(), 1u);
  EXPECT_TRUE(bounded[0].bounded);
  EXPECT_LE(bounded[0].expires, 70 * kMs);
  EXPECT_TRUE(scheduler_.Update(1, {.limit_pct = 10}, 30 * kMs));
  EXPECT_THAT(Take(), ElementsAre(Revoke(1))) << "30 of 100 ms are more than 10 %";
  scheduler_.Released(1, 31 * kMs, 31 * kMs);
  scheduler_.Wants(1, 31 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_TRUE(scheduler_.Update(1, {}, 32 * kMs));
  EXPECT_THAT(Take(), ElementsAre(OpenGrant(1)));
}

TEST_F(TokenSchedulerTest, NonsenseIsIgnored) {
  Add(1);
  Add(2);
  scheduler_.Wants(9, 0);
  scheduler_.Idle(9, 0, 0);
  scheduler_.Released(9, 0, 0);
  scheduler_.Remove(9, 0);
  scheduler_.Idle(1, 0, 0);
  scheduler_.Released(1, 0, 0);
  EXPECT_THAT(Take(), IsEmpty());
  scheduler_.Wants(1, 10 * kMs);
  scheduler_.Wants(2, 10 * kMs);
  Take();
  scheduler_.Released(1, 11 * kMs, 11 * kMs);  // not revoked
  scheduler_.Idle(2, 11 * kMs, 11 * kMs);      // only waits
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(scheduler_.UsageOf(9, 10 * kMs).busy, 0);
}

TEST_F(TokenSchedulerTest, TimestampsOfClientsAreClamped) {
  Add(1);
  scheduler_.Wants(1, 10 * kMs);
  scheduler_.Idle(1, 15 * kMs, 3 * kMs);  // before the grant
  EXPECT_EQ(scheduler_.UsageOf(1, 15 * kMs).busy, 0);
  scheduler_.Wants(1, 20 * kMs);
  scheduler_.Idle(1, 25 * kMs, kNever);
  EXPECT_EQ(scheduler_.UsageOf(1, 25 * kMs).busy, 5 * kMs);
  scheduler_.Wants(1, 7 * kMs);  // the clock does not go back
  EXPECT_EQ(scheduler_.UsageOf(1, 26 * kMs).busy, 6 * kMs);
}

TEST_F(TokenSchedulerTest, WishDuringTheDrainIsKept) {
  Add(1, {.limit_pct = 50});
  scheduler_.Wants(1, 0);
  scheduler_.Advance(50 * kMs);
  scheduler_.Wants(1, 51 * kMs);
  scheduler_.Released(1, 53 * kMs, 50'500 * kMicrosecond);  // drained before it wished, said after
  EXPECT_EQ(scheduler_.UsageOf(1, 53 * kMs).busy, 50'500 * kMicrosecond);
  EXPECT_EQ(scheduler_.UsageOf(1, 61 * kMs).waited, 10 * kMs);
  Take();
  scheduler_.Advance(scheduler_.NextDeadline());
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(TokenSchedulerTest, UsageOfTheWindow) {
  Add(1);
  scheduler_.Wants(1, 0);
  scheduler_.Idle(1, 30 * kMs, 30 * kMs);
  EXPECT_DOUBLE_EQ(scheduler_.UsageOf(1, 50 * kMs).window_pct, 30);
  EXPECT_DOUBLE_EQ(scheduler_.UsageOf(1, 120 * kMs).window_pct, 10);
  EXPECT_DOUBLE_EQ(scheduler_.UsageOf(1, 130 * kMs).window_pct, 0);
  scheduler_.Wants(1, 200 * kMs);
  EXPECT_DOUBLE_EQ(scheduler_.UsageOf(1, 225 * kMs).window_pct, 25) << "of a running vGPU, too";
}

}  // namespace
}  // namespace tessera::sched
