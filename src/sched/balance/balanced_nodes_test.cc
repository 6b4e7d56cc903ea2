#include "sched/balance/balanced_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/size.h"

namespace tessera::sched {
namespace {

using testing::Each;
using testing::Le;

constexpr std::size_t kIntervals = 300;

FleetGpu Card(std::size_t node) {
  return {.memory = 80 * kGiB, .move_bytes_per_second = 50e9, .interval = 60 * kSecond, .node = node};
}

BalancedFleet Pack(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t least, std::size_t most) {
  std::vector<double> sizes;
  for (const FleetTenant& tenant : tenants) sizes.push_back(MeanSize(tenant, gpu));
  return PackNodes(tenants, sizes, gpu, least, most);
}

// Works in those of each `of` intervals that are named.
FleetTenant Works(double duty, std::vector<std::size_t> in, std::size_t of, std::int32_t mib = 1024) {
  std::vector<std::int32_t> duties(kIntervals);
  for (std::size_t i = 0; i < kIntervals; ++i) {
    if (std::ranges::find(in, i % of) != in.end())
      duties[i] = static_cast<std::int32_t>(duty * UseSeries::kWholeInterval);
  }
  FleetTenant tenant{.memory = static_cast<std::uint64_t>(mib) * kMiB};
  tenant.use = UseSeries::Of(std::move(duties), std::vector<std::int32_t>(kIntervals, mib));
  return tenant;
}

// Any two of the three work at the same time at some time, so that two GPUs are too few if all stay.
const std::vector<FleetTenant> kThree{Works(0.6, {0, 1, 2, 3}, 6), Works(0.6, {2, 3, 4, 5}, 6),
                                      Works(0.6, {4, 5, 0, 1}, 6)};

TEST(PackNodes, ProgramsThatMoveNeedFewerGpus) {
  const BalancedFleet stay = Pack(kThree, Card(1), 1, 3);
  EXPECT_EQ(stay.placement.gpus, 3u);
  EXPECT_EQ(stay.moves, 0u);
  const BalancedFleet move = Pack(kThree, Card(2), 1, 3);
  EXPECT_EQ(move.placement.gpus, 2u);
  EXPECT_EQ(move.Over(), 0);
  EXPECT_GE(move.moves, kIntervals / 6);
  EXPECT_LE(move.moves, kIntervals / 2) << "one move for each change";
}

TEST(PackNodes, AProgramStaysOnItsNode) {
  const BalancedFleet fleet = Pack(kThree, Card(2), 3, 3);
  EXPECT_EQ(fleet.placement.gpus, 3u);
  std::vector<std::size_t> on(3);
  for (const Placement::Seat& seat : fleet.placement.seats) ++on[seat.gpus.at(0)];
  EXPECT_EQ(on, (std::vector<std::size_t>{1, 1, 1})) << "the second node has one GPU";
  EXPECT_EQ(fleet.moves, 0u);
}

TEST(PackNodes, MoreGpusThanTenants) {
  const BalancedFleet fleet = Pack(kThree, Card(2), 9, 9);
  EXPECT_EQ(fleet.placement.gpus, 9u);
  EXPECT_EQ(fleet.over, std::vector<double>(9));
  EXPECT_EQ(Pack({}, Card(2), 1, 1).placement.gpus, 0u);
}

TEST(PackNodes, TheSizesSayWhoComesToWhichNode) {
  std::vector<FleetTenant> two{Works(0.6, {0}, 1), Works(0.6, {0}, 1), Works(0.1, {0}, 1), Works(0.1, {0}, 1)};
  EXPECT_EQ(PackNodes(two, {0.6, 0.6, 0.1, 0.1}, Card(1), 2, 2).Over(), 0);
  EXPECT_EQ(PackNodes(two, {0.1, 0.9, 0.8, 0.1}, Card(1), 2, 2).Over(), 0);
  EXPECT_EQ(PackNodes(two, {0.1, 0.1, 0.9, 0.3}, Card(1), 2, 2).Over(), 0.5) << "both large ones on the second";
}

TEST(PackNodes, SaysOfTooFewByHowMuch) {
  const BalancedFleet fleet = Pack(kThree, Card(2), 1, 1);
  EXPECT_EQ(fleet.placement.gpus, 1u);
  EXPECT_EQ(fleet.Over(), 1);
  EXPECT_EQ(fleet.tenants_over, 1);
  EXPECT_THAT(fleet.over, Each(Le(1)));
}

// What takes longer to move than there is time is no remedy.
TEST(PackNodes, MovesTakeTime) {
  std::vector<FleetTenant> large;
  for (const FleetTenant& small : kThree) {
    large.push_back(small);
    large.back().use = UseSeries::Of(small.use.duty, std::vector<std::int32_t>(kIntervals, 60 * 1024));
  }
  FleetGpu slow = Card(2);
  slow.move_bytes_per_second = 1e9;
  EXPECT_EQ(Pack(large, Card(2), 1, 3).placement.gpus, 2u);
  EXPECT_EQ(Pack(large, slow, 1, 3).placement.gpus, 3u);
}

TEST(PackNodes, TheSameRecordGivesTheSamePlacement) {
  std::vector<FleetTenant> many;
  for (std::size_t i = 0; i < 20; ++i) many.push_back(Works(0.1 * static_cast<double>(1 + i % 7), {i % 5, i % 3}, 5));
  const BalancedFleet one = Pack(many, Card(4), 1, 20), other = Pack(many, Card(4), 1, 20);
  EXPECT_EQ(one.placement.gpus, other.placement.gpus);
  EXPECT_EQ(one.over, other.over);
  EXPECT_EQ(one.moves, other.moves);
  EXPECT_LE(one.Over(), Card(4).most_over);
}

}  // namespace
}  // namespace tessera::sched
