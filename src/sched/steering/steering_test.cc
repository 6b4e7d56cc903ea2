// Steering event by event. src/plan tests the shares that it gives in the long run.
#include "sched/steering/steering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sched/shares/min_share.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {

bool operator==(const Order& a, const Order& b) { return a.kind == b.kind && a.vgpu == b.vgpu && a.time == b.time; }

void PrintTo(const Order& order, std::ostream* out) {
  constexpr const char* kNames[] = {"stop ", "go ", "slice ", "grace "};
  *out << kNames[static_cast<int>(order.kind)] << order.vgpu << " " << order.time;
}

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::Le;
using testing::UnorderedElementsAre;

Order StopOf(VgpuId id) { return {Order::Kind::kStop, id}; }
Order GoOf(VgpuId id) { return {Order::Kind::kGo, id}; }
Order Slice(VgpuId id, Nanos slice) { return {Order::Kind::kSlice, id, slice}; }
Order GraceOf(VgpuId id, Nanos grace) { return {Order::Kind::kGrace, id, grace}; }

class SteeringTest : public testing::Test {
 protected:
  explicit SteeringTest(SteeringConfig config = {.mean_slice = 10 * kMs}) : steering_(config) {}

  void Add(VgpuId id, Shares shares = {}, Nanos now = 0) { ASSERT_TRUE(steering_.Add(id, shares, now)); }
  void IdleSince(VgpuId id, Nanos now) { steering_.Idle(id, now, now); }
  // Orders but for graces, which most tests are not about.
  std::vector<Order> Take() {
    auto orders = steering_.TakeOrders();
    std::erase_if(orders, [](const Order& order) { return order.kind == Order::Kind::kGrace; });
    return orders;
  }
  std::vector<Order> TakeGraces() {
    auto orders = steering_.TakeOrders();
    std::erase_if(orders, [](const Order& order) { return order.kind != Order::Kind::kGrace; });
    return orders;
  }
  // Advances at every deadline up to `until`; the orders of each that has some, with the time of the last.
  std::vector<Order> Run(Nanos until) {
    std::vector<Order> all;
    while (steering_.NextDeadline() <= until) {
      const Nanos now = steering_.NextDeadline();
      steering_.Advance(now);
      const auto orders = Take();
      if (!orders.empty()) last_ = now;
      all.insert(all.end(), orders.begin(), orders.end());
    }
    return all;
  }

  Steering steering_;
  Nanos last_ = 0;
};

TEST_F(SteeringTest, AdmissionRefusesWhatCannotBeKept) {
  EXPECT_EQ(steering_.Add(1, {.limit_pct = 0}, 0).error().code, ERANGE);
  EXPECT_EQ(steering_.Add(1, {.priority = 16}, 0).error().code, ERANGE);
  EXPECT_EQ(steering_.Add(1, {.request_pct = 50, .limit_pct = 40}, 0).error().code, EINVAL);
  Add(1, {.request_pct = 70});
  EXPECT_EQ(steering_.Add(1, {}, 0).error().code, EEXIST);
  const auto too_much = steering_.Add(2, {.request_pct = 40}, 0);
  EXPECT_EQ(too_much.error().code, ENOSPC);
  EXPECT_THAT(too_much.error().message, testing::HasSubstr("10 too many"));
  Add(2, {.request_pct = 30});
  EXPECT_EQ(steering_.Update(3, {}, 0).error().code, ENOENT);
  EXPECT_EQ(steering_.Update(2, {.request_pct = 31}, 0).error().code, ENOSPC);
  EXPECT_TRUE(steering_.Update(1, {.request_pct = 60}, 0));
  EXPECT_TRUE(steering_.Update(2, {.request_pct = 40}, 0));
}

TEST_F(SteeringTest, OneAloneRunsWithoutOrders) {
  Add(1);
  steering_.Active(1, 0);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(steering_.NextDeadline(), kNever);
  steering_.Idle(1, 10 * kMs, 9 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(steering_.UsageOf(1, 20 * kMs).busy, 9 * kMs);
}

TEST_F(SteeringTest, EventsThatMakeNoSenseAreIgnored) {
  Add(1);
  steering_.Active(7, 0);
  steering_.Idle(7, 0, 0);
  steering_.Remove(7, 0);
  steering_.Idle(1, 0, 0);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_FALSE(steering_.AtLimit(7));
  EXPECT_EQ(steering_.SliceOf(7), 0);
  EXPECT_EQ(steering_.UsageOf(7, kMs).busy, 0);
}

// Classes.

TEST_F(SteeringTest, AHigherClassStopsLowerOnesAtOnceWhetherBusyOrIdle) {
  Add(1, {.priority = 2});
  Add(2, {.priority = 9});
  Add(3, {.priority = 12});
  steering_.Active(2, 0);
  EXPECT_THAT(Take(), ElementsAre(StopOf(3)));
  steering_.Active(1, 5 * kMs);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2)));
  // A vGPU that wants to run meanwhile waits.
  steering_.Active(3, 6 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  steering_.Idle(1, 12 * kMs, 10 * kMs);
  EXPECT_THAT(Take(), ElementsAre(GoOf(2)));
  steering_.Idle(2, 20 * kMs, 19 * kMs);
  EXPECT_THAT(Take(), ElementsAre(GoOf(3)));
  EXPECT_EQ(steering_.UsageOf(3, 20 * kMs).waited, 14 * kMs);
}

// The GPU begins with the first. If the gaps of a higher class are shorter than slices, it gets no further.
TEST_F(SteeringTest, ThoseThatGoTogetherGoFirstByTheirWeights) {
  Add(1, {.priority = 2});
  Add(2, {.weight = 300});
  Add(3, {.weight = 100});
  for (const VgpuId id : {2, 3}) steering_.Active(id, 0);
  std::map<VgpuId, int> firsts;
  for (Nanos now = 0; now < 40 * kSecond; now += kSecond) {
    steering_.Active(1, now + 500 * kMs);
    Take();
    steering_.Idle(1, now + 600 * kMs, now + 600 * kMs);
    std::vector<Order> goes = Take();
    std::erase_if(goes, [](const Order& order) { return order.kind != Order::Kind::kGo; });
    ASSERT_EQ(goes.size(), 2u);
    ++firsts[goes.front().vgpu];
  }
  EXPECT_NEAR(firsts[2], 30, 1);
  EXPECT_NEAR(firsts[3], 10, 1);
}

TEST_F(SteeringTest, AStoppedVgpuIsBilledUntilTheFreezeIsDone) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(2, 0);
  steering_.Active(1, 10 * kMs);
  Take();
  EXPECT_EQ(steering_.UsageOf(2, 20 * kMs).busy, 10 * kMs + 500 * kMicrosecond);
  steering_.Idle(1, 30 * kMs, 30 * kMs);
  EXPECT_EQ(steering_.UsageOf(2, 40 * kMs).busy, 20 * kMs + 250 * kMicrosecond) << "and from the thaw on";
}

TEST_F(SteeringTest, WhatWasNotTakenYetIsTakenBack) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(2, 0);
  Take();
  steering_.Active(1, kMs);
  steering_.Idle(1, 3 * kMs, 2 * kMs);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(steering_.UsageOf(2, 5 * kMs).waited, 2 * kMs) << "and then it ran on";
}

TEST_F(SteeringTest, WhoComesWhileAHigherClassRunsIsStopped) {
  Add(1, {.priority = 2});
  steering_.Active(1, 0);
  Add(2, {}, kMs);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2)));
  steering_.Remove(1, 2 * kMs);
  EXPECT_THAT(Take(), ElementsAre(GoOf(2)));
}

TEST_F(SteeringTest, AChangeOfPriorityTakesEffectAtOnce) {
  Add(1);
  Add(2);
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  Take();
  ASSERT_TRUE(steering_.Update(2, {.priority = 3}, kMs));
  EXPECT_THAT(Take(), ElementsAre(StopOf(1)));
  ASSERT_TRUE(steering_.Update(2, {.priority = 9}, 2 * kMs));
  EXPECT_THAT(Take(), ElementsAre(StopOf(2), GoOf(1)));
}

TEST_F(SteeringTest, NewsOfAHigherClassAreUrgentWhileALowerRuns) {
  Add(1, {.priority = 2});
  Add(2);
  EXPECT_FALSE(steering_.Urgent());
  steering_.Active(2, 0);
  EXPECT_TRUE(steering_.Urgent());
  steering_.Active(1, 0);
  EXPECT_FALSE(steering_.Urgent()) << "it is active already";
  steering_.Idle(2, kMs, kMs);
  steering_.Idle(1, kMs, kMs);
  EXPECT_FALSE(steering_.Urgent());
}

TEST_F(SteeringTest, ThawsWaitWhenTheDriverHasBeenCalledTooOften) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(2, 0);
  Nanos now = 0;
  for (int i = 0; i < 100; ++i) {
    steering_.Active(1, now += kMs);
    IdleSince(1, now += kMs);
    EXPECT_THAT(Take(), IsEmpty()) << "taken back, so no call is made";
  }
  int cycles = 0;
  for (; cycles < 100; ++cycles) {
    steering_.Active(1, now += kMs);
    EXPECT_THAT(Take(), ElementsAre(StopOf(2))) << "never waits";
    IdleSince(1, now += kMs);
    if (Take().empty()) break;
  }
  EXPECT_THAT(cycles, AllOf(Ge(4), Le(8))) << "10 calls saved, two a cycle";
  const Nanos due = steering_.NextDeadline();
  ASSERT_LE(due, now + 40 * kMs);
  EXPECT_THAT(Run(due), ElementsAre(GoOf(2)));
}

// Limits.

TEST_F(SteeringTest, ALimitStopsOnceAWindow) {
  Add(1, {.limit_pct = 30});
  steering_.Active(1, 0);
  EXPECT_THAT(Run(50 * kMs), ElementsAre(StopOf(1)));
  EXPECT_NEAR(static_cast<double>(last_), 29.5 * kMs, 0.1 * kMs) << "a freeze of 0.5 ms before the end of the quota";
  EXPECT_THAT(Run(110 * kMs), ElementsAre(GoOf(1)));
  EXPECT_NEAR(static_cast<double>(last_), 105 * kMs, 7 * kMs);
  EXPECT_THAT(Run(170 * kMs), ElementsAre(StopOf(1)));
}

TEST_F(SteeringTest, WhoIsIdleAtItsLimitWakesNobody) {
  Add(1, {.limit_pct = 30});
  steering_.Active(1, 0);
  Run(50 * kMs);
  steering_.Idle(1, 60 * kMs, 60 * kMs);
  EXPECT_EQ(steering_.NextDeadline(), kNever);
  steering_.Active(1, kSecond);
  EXPECT_THAT(Take(), ElementsAre(GoOf(1)));
}

TEST_F(SteeringTest, LowerClassesRunWhileAHigherIsAtItsLimit) {
  Add(1, {.limit_pct = 30, .priority = 2});
  Add(2);
  steering_.Active(2, 0);
  Take();
  steering_.Active(1, 0);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2)));
  EXPECT_THAT(Run(50 * kMs), ElementsAre(StopOf(1), GoOf(2)));
  EXPECT_THAT(Run(120 * kMs), ElementsAre(StopOf(2), GoOf(1)));
}

TEST_F(SteeringTest, LimitsThatSlicesKeepNeedNoStop) {
  Add(1, {.limit_pct = 30});
  Add(2);
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  EXPECT_THAT(Take(), UnorderedElementsAre(Slice(1, 6 * kMs), Slice(2, 14 * kMs)));
  EXPECT_THAT(Run(10 * kSecond), IsEmpty());
}

TEST_F(SteeringTest, AHigherLimitTakesEffectAtOnce) {
  Add(1, {.limit_pct = 10});
  steering_.Active(1, 0);
  EXPECT_THAT(Run(20 * kMs), ElementsAre(StopOf(1)));
  ASSERT_TRUE(steering_.Update(1, {}, 20 * kMs));
  EXPECT_THAT(Take(), ElementsAre(GoOf(1)));
}

// Slices.

TEST_F(SteeringTest, WeightsAreSlices) {
  Add(1, {.weight = 700});
  Add(2);
  steering_.Active(1, 0);
  EXPECT_THAT(Take(), IsEmpty());
  steering_.Active(2, 0);
  EXPECT_THAT(Take(), UnorderedElementsAre(Slice(1, 17'500'000), Slice(2, 2'500'000)));
  EXPECT_EQ(steering_.SliceOf(1), 17'500'000);
  EXPECT_EQ(steering_.UsageOf(1, 80 * kMs).busy, 70 * kMs);
}

TEST_F(SteeringTest, ComingAndGoingCausesNoCalls) {
  for (VgpuId id = 0; id < 3; ++id) Add(id, {.request_pct = 10.0 * id});
  for (VgpuId id = 0; id < 3; ++id) steering_.Active(id, 0);
  Run(kSecond);
  Take();
  Nanos now = kSecond;
  for (int i = 0; i < 100; ++i) {
    IdleSince(2, now += 10 * kMs);
    EXPECT_THAT(Take(), IsEmpty());
    steering_.Active(2, now += 20 * kMs);
    EXPECT_THAT(Take(), IsEmpty());
  }
  // When it stays away, the others get what is due: 45 and 55 %.
  IdleSince(2, now += 10 * kMs);
  EXPECT_FALSE(Run(now + 200 * kMs).empty());
  EXPECT_LE(last_, now + 101 * kMs);
  EXPECT_NEAR(static_cast<double>(steering_.SliceOf(1)) / static_cast<double>(steering_.SliceOf(0)), 55.0 / 45, 0.03);
}

TEST_F(SteeringTest, AnOperatorsChangeOfWeightsComesAtOnce) {
  Add(1);
  Add(2);
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  Take();
  ASSERT_TRUE(steering_.Update(1, {.weight = 300}, kMs));
  EXPECT_THAT(Take(), UnorderedElementsAre(Slice(1, 15 * kMs), Slice(2, 5 * kMs)));
}

// Graces.

TEST_F(SteeringTest, GracesAreShortOnlyWhereALowerClassWaits) {
  Add(1, {.priority = 2});
  EXPECT_THAT(TakeGraces(), ElementsAre(GraceOf(1, 5 * kMs)));
  Add(2);
  EXPECT_THAT(TakeGraces(), ElementsAre(GraceOf(2, 5 * kMs)));
  steering_.Active(1, 0);
  EXPECT_THAT(TakeGraces(), IsEmpty());
  steering_.Active(2, kMs);
  EXPECT_THAT(TakeGraces(), ElementsAre(GraceOf(1, kMs)));
  steering_.Idle(2, 10 * kMs, 10 * kMs);
  EXPECT_THAT(TakeGraces(), IsEmpty()) << "it may be back soon";
  steering_.Advance(2 * kSecond);
  EXPECT_THAT(TakeGraces(), ElementsAre(GraceOf(1, 5 * kMs)));
}

TEST_F(SteeringTest, GracesFollowTheGaps) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(2, 0);
  steering_.Active(1, 0);
  TakeGraces();
  steering_.Idle(1, 11 * kMs, 10 * kMs);
  steering_.Active(1, 13 * kMs);
  const auto graces = TakeGraces();
  ASSERT_EQ(graces.size(), 1u);
  EXPECT_GT(graces[0].time, 3 * kMs);
  EXPECT_LT(graces[0].time, 4 * kMs);
}

// The other modes.

struct MinShareTest : SteeringTest {
  MinShareTest() : SteeringTest({.mean_slice = 10 * kMs, .min_share_pct = 5}) {}
};

TEST_F(MinShareTest, AStarvedClassGetsABlock) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2)));
  const auto begin = Run(510 * kMs);
  EXPECT_THAT(begin, testing::Contains(GoOf(2)));
  EXPECT_NEAR(static_cast<double>(last_), 500 * kMs, 1 * kMs);
  EXPECT_THAT(begin, testing::Not(testing::Contains(StopOf(1)))) << "the higher one runs on";
  EXPECT_THAT(Run(900 * kMs), testing::Contains(StopOf(2)));
  EXPECT_NEAR(static_cast<double>(last_), 555 * kMs, 5 * kMs) << "25 ms, in a block of twice that";
}

// Three slices of 42, 6 and 12: the parts of the two last ones are 0.3 but for rounding.
TEST(MinShare, APartThatIsTheRateButForRoundingEndsNoBlock) {
  MinShare share(30);
  share.Pass(0);
  share.Set(true, 0.1 + 0.2);
  share.Pass(kSecond);
  ASSERT_TRUE(share.open());
  EXPECT_EQ(share.Deadline(), kNever);
}

TEST_F(MinShareTest, WhoHadTheGpuIsNotStarved) {
  Add(1, {.priority = 2});
  Add(2);
  steering_.Active(2, 0);
  Nanos now = 0;
  for (int i = 0; i < 20; ++i) {
    steering_.Active(1, now += 100 * kMs);
    const auto orders = Run(now + 90 * kMs);
    EXPECT_THAT(orders, testing::Not(testing::Contains(GoOf(2))));
    IdleSince(1, now += 100 * kMs);
    Take();
  }
}

struct FixedSlicesTest : SteeringTest {
  FixedSlicesTest() : SteeringTest({.fixed_slices = true}) {}
};

TEST_F(FixedSlicesTest, PrioritiesAreSlicesAndNobodyIsStopped) {
  Add(1, {.priority = 2});
  EXPECT_THAT(Take(), ElementsAre(Slice(1, 131'072 * kMicrosecond)));
  Add(2, {.priority = 10});
  EXPECT_THAT(Take(), ElementsAre(Slice(2, 512 * kMicrosecond)));
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  EXPECT_THAT(Run(10 * kSecond), IsEmpty());
  EXPECT_FALSE(steering_.Urgent());
  ASSERT_TRUE(steering_.Update(2, {.priority = 0}, 11 * kSecond));
  EXPECT_THAT(Take(), ElementsAre(Slice(2, 524'288 * kMicrosecond)));
}

TEST_F(FixedSlicesTest, LimitsHoldAllTheSame) {
  Add(1, {.limit_pct = 50, .priority = 2});
  Take();
  steering_.Active(1, 0);
  EXPECT_THAT(Run(60 * kMs), ElementsAre(StopOf(1)));
}

TEST_F(SteeringTest, WhoStandsAsideLeavesTheGpuToLowerClasses) {
  Add(1, {.priority = 2});
  Add(2, {.priority = 8});
  Add(3, {.priority = 8});
  for (const VgpuId id : {1, 2, 3}) steering_.Active(id, 0);
  EXPECT_THAT(Take(), UnorderedElementsAre(StopOf(2), StopOf(3)));
  steering_.SetAside({1, 3}, kSecond);
  EXPECT_THAT(Take(), UnorderedElementsAre(StopOf(1), GoOf(2)));
  steering_.SetAside({}, kSecond + 20 * kMs);
  EXPECT_THAT(Take(), UnorderedElementsAre(GoOf(1), StopOf(2)));
}

TEST_F(SteeringTest, WhoStoodAsideGoesOnWithoutABudget) {
  Add(1);
  Add(2);
  steering_.Active(1, 0);
  steering_.Active(2, 0);
  (void)Take();
  for (int i = 0; i < 100; ++i) {
    steering_.SetAside({2}, i);
    EXPECT_THAT(Take(), testing::Contains(StopOf(2)));
    steering_.SetAside({}, i);
    EXPECT_THAT(Take(), testing::Contains(GoOf(2)));
  }
}

TEST_F(SteeringTest, WhoIsMeasuredHasTheLeastGrace) {
  Add(1, {.priority = 12, .patience = kMs, .measured = true});
  EXPECT_THAT(TakeGraces(), ElementsAre(GraceOf(1, kMs))) << "though nobody waits for it";
  for (int i = 1; i <= 200; ++i) {
    steering_.Active(1, i * 10 * kMs);
    steering_.Idle(1, (i * 10 + 7) * kMs, (i * 10 + 6) * kMs);
  }
  EXPECT_THAT(TakeGraces(), IsEmpty());
  ASSERT_TRUE(steering_.Update(1, {.priority = 12}, 3 * kSecond));
  const auto graces = TakeGraces();
  ASSERT_EQ(graces.size(), 1u);
  EXPECT_GE(graces[0].time, 5 * kMs);
}

}  // namespace
}  // namespace tessera::sched
