#include "sched/fleet/interval_count.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {
namespace {

constexpr std::int32_t kWholeInterval = UseSeries::kWholeInterval;

// A part of the time of each interval, or MiB in it; nobody leaves or comes.
IntervalCounts CountOf(const std::vector<std::int32_t>& duty, const std::vector<std::int32_t>& memory,
                       const std::vector<std::int32_t>& active, const std::vector<std::int32_t>& woken,
                       const IntervalRoom& room) {
  const std::vector<std::int32_t> none(duty.size());
  const auto series = [&](const std::vector<std::int32_t>& sum) {
    return ChangedSeries{.sum = sum.data(), .minus = none.data(), .plus = none.data()};
  };
  return CountIntervals(
      duty.size(), {.duty = series(duty), .memory = series(memory), .active = series(active), .woken = series(woken)},
      room);
}

TEST(CountIntervals, WhoBeginsToWorkIsMovedInAsFarAsItIsOut) {
  // 1,000 MiB take a hundredth of an interval. 99.5 % of work leave no time for 1,000, but for 400.
  const IntervalRoom room{.memory = 1000, .by_interval = 10, .by_turn = 0, .most_moving = 0};
  const std::int32_t duty = kWholeInterval / 1000 * 995;
  const auto counts = CountOf({duty, duty, duty}, {2000, 1400, 2000}, {1000, 1000, 1000}, {1000, 1000, 0}, room);
  EXPECT_EQ(counts.over, 1);
  EXPECT_EQ(counts.beyond, 995'000 + 10'000 - 1'000'500);
  EXPECT_EQ(counts.most, 2000);
}

TEST(CountIntervals, TurnsTakeNoMoreThanTheyMay) {
  // Half a GPU's memory too much for those that work would take half of the time; a tenth is the most.
  const IntervalRoom room{.memory = 1000, .by_interval = 0, .by_turn = 1000, .most_moving = 100'000};
  const auto counts = CountOf({899'000, 901'000}, {1500, 1500}, {1500, 1500}, {0, 0}, room);
  EXPECT_EQ(counts.over, 1);
  EXPECT_EQ(counts.beyond, 500);
}

RC_GTEST_PROP(CountIntervalsProperty, WideVectorsCountTheSame, ()) {
  const auto intervals = *rc::gen::inRange<std::size_t>(0, 70);
  const auto random = [&](std::int32_t most) {
    return *rc::gen::container<std::vector<std::int32_t>>(intervals, rc::gen::inRange<std::int32_t>(0, most));
  };
  std::vector<std::vector<std::int32_t>> values;
  for (int i = 0; i < 3; ++i) {
    values.push_back(random(i == 0 ? 3 * kWholeInterval / 2 : kWholeInterval / 4));
    for (int series = 0; series < 3; ++series) values.push_back(random(100'000));
  }
  const auto series = [&](std::size_t which) {
    return ChangedSeries{
        .sum = values[which].data(), .minus = values[4 + which].data(), .plus = values[8 + which].data()};
  };
  const ChangedUse use{.duty = series(0), .memory = series(1), .active = series(2), .woken = series(3)};
  const IntervalRoom room{
      .memory = *rc::gen::inRange(0, 100'000), .by_interval = 0.37F, .by_turn = 2.1F, .most_moving = 100'000};
  RC_ASSERT(CountIntervals(intervals, use, room) == CountIntervalsPlainly(intervals, use, room));
}

}  // namespace
}  // namespace tessera::sched
