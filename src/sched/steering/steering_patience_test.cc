// Steering where higher classes give way by short slices, event by event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/steering/steering.h"
#include "sched/testing/milliseconds.h"

namespace tessera::sched {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
constexpr Nanos kUs = kMicrosecond;

MATCHER_P(StopOf, id, "") { return arg.kind == Order::Kind::kStop && arg.vgpu == VgpuId(id); }
MATCHER_P(GoOf, id, "") { return arg.kind == Order::Kind::kGo && arg.vgpu == VgpuId(id); }
MATCHER_P2(SliceOf, id, slice, "") {
  return arg.kind == Order::Kind::kSlice && arg.vgpu == VgpuId(id) && arg.time == slice;
}

class PatienceTest : public testing::Test {
 protected:
  explicit PatienceTest(const SteeringConfig& config = {}) : steering_(config) {}

  void Add(VgpuId id, const Shares& shares) { ASSERT_TRUE(steering_.Add(id, shares, now_)); }
  void Active(VgpuId id, Nanos after = 0) { steering_.Active(id, now_ += after); }
  void Idle(VgpuId id, Nanos after = 0) {
    now_ += after;
    steering_.Idle(id, now_, now_);
  }
  // The orders but for graces, those included that are due at once.
  std::vector<Order> Take() {
    std::vector<Order> all;
    do {
      for (const Order& order : steering_.TakeOrders()) {
        if (order.kind != Order::Kind::kGrace) all.push_back(order);
      }
      if (steering_.NextDeadline() > now_ + 1) return all;
      steering_.Advance(now_ = steering_.NextDeadline());
    } while (true);
  }
  std::vector<Order> Run(Nanos duration) {
    std::vector<Order> all = Take();
    const Nanos end = now_ + duration;
    while (steering_.NextDeadline() <= end) {
      steering_.Advance(now_ = steering_.NextDeadline());
      for (const Order& order : Take()) all.push_back(order);
    }
    now_ = end;
    return all;
  }
  // A higher vGPU 1 that has work, and a lower one 2 whose slice is in force.
  void Pair(const Shares& high = {.priority = 2, .patience = 100 * kUs}) {
    Add(1, high);
    Add(2, {});
    Active(1);
    Active(2);
    Take();
  }

  Steering steering_;
  Nanos now_ = 0;
};

TEST_F(PatienceTest, PatienceIsInRange) {
  EXPECT_EQ(steering_.Add(1, {.patience = -1}, 0).error().code, ERANGE);
  EXPECT_EQ(steering_.Add(1, {.patience = kSecond + 1}, 0).error().code, ERANGE);
  EXPECT_TRUE(steering_.Add(1, {.patience = kSecond}, 0));
}

TEST_F(PatienceTest, ALowerClassRunsWithAShortSlice) {
  Add(1, {.priority = 2, .patience = 100 * kUs});
  Add(2, {});
  Active(1);
  EXPECT_THAT(Take(), IsEmpty());
  Active(2);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2), SliceOf(2, 100 * kUs), GoOf(2), SliceOf(1, 100 * kMs)))
      << "no work before the slice is short";
}

TEST_F(PatienceTest, GapsCauseNoOrders) {
  Pair();
  for (int i = 0; i < 1000; ++i) {
    Idle(1, kMs / 2);
    Active(1, 3 * kMs);
  }
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(PatienceTest, AStrictVgpuOfTheTopClassStopsLowerOnesWhileItHasWork) {
  Pair();
  Add(3, {.priority = 2});
  EXPECT_THAT(Take(), IsEmpty());
  Active(3, kMs);
  EXPECT_THAT(Take(), testing::Contains(StopOf(2)));
  Idle(3, kMs);
  EXPECT_THAT(Take(), ElementsAre(GoOf(2)));
}

TEST_F(PatienceTest, TheLeastPatienceCounts) {
  Pair();
  Add(3, {.priority = 2, .patience = 70 * kUs});
  Active(3, kMs);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2), SliceOf(2, 70 * kUs), SliceOf(3, 20 * kMs), GoOf(2)));
  EXPECT_EQ(steering_.SliceOf(2), 70 * kUs);
}

struct SoftModeTest : PatienceTest {
  SoftModeTest() : PatienceTest({.patience = 200 * kUs}) {}
};

TEST_F(SoftModeTest, TheConfigurationSaysThePatienceOfVgpusThatStateNone) {
  Pair({.priority = 2});
  EXPECT_EQ(steering_.SliceOf(2), 200 * kUs);
}

TEST_F(PatienceTest, LowerVgpusOfAClassTakeTurnsByWeight) {
  Pair();
  Add(3, {.weight = 300});
  EXPECT_THAT(Take(), ElementsAre(StopOf(3))) << "idle, by its gate";
  Active(3, kMs);
  EXPECT_THAT(Take(), IsEmpty());
  Run(kSecond);
  const Usage two = steering_.UsageOf(2, now_);
  const Usage three = steering_.UsageOf(3, now_);
  const auto orders = Run(10 * kSecond);
  const auto ran = [&](VgpuId id, const Usage& before) {
    return static_cast<double>(steering_.UsageOf(id, now_).busy - before.busy) / kSecond;
  };
  EXPECT_NEAR(ran(2, two), 2.5, 0.15);
  EXPECT_NEAR(ran(3, three), 7.5, 0.3);
  EXPECT_LE(orders.size(), 90u) << "a turn of 250 ms each";
}

TEST_F(PatienceTest, WithMorePatienceSeveralRunAtOnce) {
  Pair({.priority = 2, .patience = 4 * kMs});
  Add(3, {.weight = 300});
  Active(3, kMs);
  Run(kSecond);
  EXPECT_EQ(steering_.SliceOf(2), kMs);
  EXPECT_EQ(steering_.SliceOf(3), 3 * kMs);
  EXPECT_THAT(Run(10 * kSecond), IsEmpty());
}

TEST_F(PatienceTest, UsualSlicesComeBackASecondAfterTheLastWork) {
  Pair();
  Add(3, {});
  Active(3);
  Idle(1, kMs);
  EXPECT_THAT(Run(990 * kMs), testing::Not(testing::Contains(SliceOf(2, 20 * kMs))));
  Run(200 * kMs);
  EXPECT_EQ(steering_.SliceOf(2), 20 * kMs);
  EXPECT_EQ(steering_.SliceOf(3), 20 * kMs);
  EXPECT_TRUE(steering_.Urgent()) << "long slices would be in its way";
  Active(1);
  EXPECT_FALSE(steering_.Urgent());
  EXPECT_THAT(steering_.TakeOrders(), testing::AllOf(testing::Contains(StopOf(2)), testing::Contains(StopOf(3))))
      << "nobody waits for a long slice to end";
}

TEST_F(PatienceTest, AMiddleClassThatIsStrictStopsTheLast) {
  Pair();
  Add(3, {.priority = 12});
  Active(3, kMs);
  Run(kSecond);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(steering_.UsageOf(3, now_).busy, 0);
  Idle(2);
  EXPECT_THAT(Take(), ElementsAre(SliceOf(3, 100 * kUs), GoOf(3)));
}

TEST_F(PatienceTest, AMiddleClassThatGivesWayLeavesTheLastTheLeast) {
  Add(1, {.priority = 2, .patience = 3 * kMs});
  Add(2, {.patience = 100 * kUs});
  Add(3, {.priority = 12});
  for (const VgpuId id : {1, 2, 3}) Active(id);
  Run(kSecond);
  EXPECT_EQ(steering_.SliceOf(1), 100 * kMs);
  EXPECT_EQ(steering_.SliceOf(2), 2950 * kUs);
  EXPECT_EQ(steering_.SliceOf(3), 50 * kUs);
}

TEST_F(PatienceTest, ALimitHoldsInTheGaps) {
  Add(1, {.priority = 2, .patience = 100 * kUs});
  Add(2, {.limit_pct = 30});
  Active(1);
  Active(2);
  Run(10 * kSecond);
  EXPECT_LE(steering_.UsageOf(2, now_).busy, 3 * kSecond + 100 * kMs);
  EXPECT_GE(steering_.UsageOf(2, now_).busy, 3 * kSecond - 200 * kMs);
}

TEST_F(PatienceTest, GracesAreRelaxedWhereNobodyStandsStill) {
  Add(1, {.priority = 2, .patience = 100 * kUs});
  Add(2, {});
  Active(2);
  Active(1);
  for (const Order& order : steering_.TakeOrders()) {
    if (order.kind == Order::Kind::kGrace) EXPECT_EQ(order.time, 5 * kMs);
  }
}

TEST_F(SoftModeTest, WhoIsStrictHasNoPatience) {
  Add(1, {.priority = 2, .strict = true});
  Add(2, {.priority = 8});
  Active(2);
  (void)Take();
  Active(1, kSecond);
  EXPECT_THAT(Take(), ElementsAre(StopOf(2)));
}

}  // namespace
}  // namespace tessera::sched
