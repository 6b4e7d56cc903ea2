#include "sched/cluster/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sched/cluster/cutting_stock.h"
#include "sched/cluster/fleet_chooser.h"
#include "sched/cluster/fleet_policy.h"
#include "sched/cluster/fleet_value.h"
#include "sched/cluster/fragmentation.h"
#include "sched/cluster/room_maker.h"

namespace tessera::sched {
namespace {

// 12 processors for each GPU, if it is not told otherwise.
NodeRoom FleetNode(std::vector<std::int16_t> milli, std::int32_t cpu = 0, std::uint8_t model = 0) {
  NodeRoom room;
  room.cpu = cpu > 0 ? cpu : 12'000 * static_cast<std::int32_t>(milli.size());
  room.memory = 100'000;
  room.gpus = static_cast<std::uint8_t>(milli.size());
  room.model = model;
  std::copy(milli.begin(), milli.end(), room.gpu_milli.begin());
  return room;
}

Demand PartPod(std::int32_t milli, std::int32_t cpu = 1000) { return {cpu, 1000, 1, milli}; }
Demand WholePod(std::int32_t count, std::int32_t cpu = 1000) { return {cpu, 1000, count, kGpuMilli}; }
Demand PlainPod(std::int32_t cpu) { return {.cpu = cpu, .memory = 1000}; }

TEST(NodeRoom, TakesWhatFitsAndGivesItBack) {
  NodeRoom room = FleetNode({1000, 400, 600});
  EXPECT_TRUE(room.Fits(PartPod(500)));
  EXPECT_EQ(room.Tightest(PartPod(500)), 0b100u) << "the one with the least left";
  EXPECT_TRUE(room.Fits(WholePod(1)));
  EXPECT_EQ(room.Tightest(WholePod(1)), 0b001u);
  EXPECT_FALSE(room.Fits(WholePod(2))) << "only one is whole";
  EXPECT_FALSE(room.Fits(PartPod(100, 36'001))) << "processors";
  EXPECT_FALSE(room.Fits({1, 100'001, 0, 0})) << "memory";
  EXPECT_TRUE(room.Fits(PlainPod(36'000)));

  const NodeRoom before = room;
  room.Take(PartPod(500), 0b100);
  EXPECT_EQ(room.gpu_milli[2], 100);
  EXPECT_EQ(room.cpu, 35'000);
  EXPECT_EQ(room.memory, 99'000);
  room.Give(PartPod(500), 0b100);
  room.kinds = 0;
  EXPECT_EQ(room, before);
}

TEST(NodeRoom, HasOneTypeOfGpu) {
  const NodeRoom room = FleetNode({1000}, 0, 3);
  Demand demand = WholePod(1);
  demand.models = 0b1000;
  EXPECT_TRUE(room.Fits(demand));
  demand.models = 0b0111;
  EXPECT_FALSE(room.Fits(demand));
}

TEST(TypicalDemands, AreTheCommonestAndOneTogether) {
  std::vector<Demand> pods(12, PartPod(500));
  pods.resize(18, PartPod(250));
  pods.resize(20, PlainPod(4000));  // a tenth of all
  const auto typical = TypicalDemands(pods, 0.9);
  ASSERT_EQ(typical.size(), 2u);
  EXPECT_EQ(typical[0].demand.gpu_milli, 500);
  EXPECT_DOUBLE_EQ(typical[0].part, 12.0 / 18);
  EXPECT_DOUBLE_EQ(typical[1].part, 6.0 / 18);
  EXPECT_EQ(TypicalDemands(pods, 0.95).size(), 3u);
}

TEST(Fragmentation, IsWhatTheExpectedPodCannotUse) {
  const Fragmentation parts({{PartPod(600, 2000), 1}});
  EXPECT_DOUBLE_EQ(parts.Of(FleetNode({500, 1000})), 500) << "the GPU that is too full";
  EXPECT_DOUBLE_EQ(parts.Of(FleetNode({500, 500})), 1000) << "all, as it does not fit";
  EXPECT_DOUBLE_EQ(parts.Of(FleetNode({500, 1000}, 1999)), 1500) << "all, as processors are missing";
  const Fragmentation none({{PlainPod(1000), 1}});
  EXPECT_DOUBLE_EQ(none.Of(FleetNode({500, 1000})), 1500) << "it uses no GPU";
  const Fragmentation mixed({{PartPod(600, 2000), 0.25}, {PartPod(600, 8000), 0.25}, {WholePod(2), 0.5}});
  EXPECT_DOUBLE_EQ(mixed.Of(FleetNode({500, 1000}, 4000)), 0.25 * 500 + 0.25 * 1500 + 0.5 * 1500);
}

// Sizes of 1,000: with 190 left nobody can do anything, and three parts of 330 fill a GPU.
TEST(CutBars, CountsBarsAndPricesPieces) {
  const Cutting cutting = CutBars(1000, {{330, 30}, {810, 5}, {400, 10}, {600, 10}});
  EXPECT_NEAR(cutting.bars, 10 + 5 + 10, 1e-6);
  EXPECT_NEAR(cutting.prices[0], 1.0 / 3, 1e-6);
  EXPECT_NEAR(cutting.prices[1], 1, 1e-6);
  EXPECT_NEAR(cutting.prices[2] + cutting.prices[3], 1, 1e-6);
  EXPECT_NEAR(cutting.worth[190], 0, 1e-6);
  EXPECT_NEAR(cutting.worth[329], 0, 1e-6);
  EXPECT_NEAR(cutting.worth[330], 1.0 / 3, 1e-6);
  EXPECT_NEAR(cutting.worth[1000], 1, 1e-6);
}

// Pieces of 450 fill no bar, but two of them and one of 100 do: there are too few of these, so they cost nothing.
TEST(CutBars, WhatFillsGapsCostsNothing) {
  const Cutting cutting = CutBars(1000, {{100, 10}, {450, 100}});
  EXPECT_NEAR(cutting.bars, 50, 1e-6);
  EXPECT_NEAR(cutting.prices[0], 0, 1e-6);
  EXPECT_NEAR(cutting.prices[1], 0.5, 1e-6);
}

TEST(CutBars, OfNothing) {
  const Cutting cutting = CutBars(1000, {});
  EXPECT_EQ(cutting.bars, 0);
  EXPECT_EQ(cutting.worth.back(), 0);
}

TEST(FleetValue, IsWhatCanBeSoldWithTheProcessorsThatAreLeft) {
  const std::vector<Demand> pods = {PartPod(500, 6000), PartPod(500, 6000)};  // 12 processors for each GPU
  const FleetValue value(pods, {FleetNode({1000, 1000})});
  EXPECT_DOUBLE_EQ(value.least_gpus(), 1);
  EXPECT_DOUBLE_EQ(value.Of(FleetNode({1000, 1000})), 2);
  EXPECT_DOUBLE_EQ(value.Of(FleetNode({999, 499})), 0.5);
  EXPECT_DOUBLE_EQ(value.Of(FleetNode({1000, 1000}, 6000)), 0.5) << "processors for half a GPU";
}

TEST(FleetValue, OfATypeThatIsWantedIsHigher) {
  std::vector<Demand> pods(4, WholePod(1));
  pods[0].models = 0b10;
  const NodeRoom any = FleetNode({1000, 1000, 1000}, 0, 0), wanted = FleetNode({1000}, 0, 1);
  const FleetValue value(pods, {any, wanted});
  EXPECT_DOUBLE_EQ(value.Of(any), 3);
  EXPECT_DOUBLE_EQ(value.Of(wanted), 2) << "a quarter of the pods wants this quarter of the GPUs";
}

// Which node the policy chooses.
std::size_t Chosen(FleetPolicy policy, const std::vector<NodeRoom>& nodes, const Demand& demand,
                   const std::vector<Demand>& pods) {
  const Fragmentation fragmentation(TypicalDemands(pods));
  const FleetValue value(pods, nodes);
  Fleet fleet(nodes);
  FleetChooser chooser(policy, fragmentation, value, 1);
  const auto spot = chooser.Choose(fleet, fleet.NumberOf(demand));
  return spot ? spot->node : nodes.size();
}

TEST(FleetPolicy, HasNames) {
  for (const char* name : {"random", "dotprod", "clustering", "packing", "bestfit", "fgd", "tessera"}) {
    const auto policy = FleetPolicyOf(name);
    ASSERT_TRUE(policy) << name;
    EXPECT_EQ(NameOf(*policy), name);
  }
  EXPECT_FALSE(FleetPolicyOf("worstfit"));
}

TEST(FleetPolicy, EachChoosesByItsMeasure) {
  const std::vector<Demand> pods = {PartPod(400), PartPod(600), WholePod(1)};
  const std::vector<NodeRoom> nodes = {FleetNode({1000, 1000}), FleetNode({500, 500}, 24'000), FleetNode({1000, 400})};
  EXPECT_EQ(Chosen(FleetPolicy::kBestFit, nodes, PartPod(400), pods), 1u) << "least is left";
  EXPECT_EQ(Chosen(FleetPolicy::kPacking, nodes, PartPod(400), pods), 2u) << "the fullest GPU that has room";
  EXPECT_EQ(Chosen(FleetPolicy::kFgd, nodes, PartPod(400), pods), 2u) << "it leaves no fragment";
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, nodes, PartPod(400), pods), 1u) << "nobody else can use 500";
  const std::vector<NodeRoom> large_and_small = {FleetNode(std::vector<std::int16_t>(8, 1000)), FleetNode({1000})};
  EXPECT_EQ(Chosen(FleetPolicy::kDotProduct, large_and_small, WholePod(1, 12'000), pods), 1u) << "least like the pod";
  for (const FleetPolicy policy :
       {FleetPolicy::kRandom, FleetPolicy::kDotProduct, FleetPolicy::kClustering, FleetPolicy::kPacking,
        FleetPolicy::kBestFit, FleetPolicy::kFgd, FleetPolicy::kTessera}) {
    EXPECT_EQ(Chosen(policy, nodes, WholePod(3), pods), nodes.size()) << NameOf(policy) << ": it fits nowhere";
    EXPECT_EQ(Chosen(policy, nodes, WholePod(2), pods), 0u) << NameOf(policy) << ": it fits there only";
  }
}

TEST(FleetPolicy, ClusteringPutsPodsBesideTheirKind) {
  std::vector<NodeRoom> nodes = {FleetNode({1000, 1000}), FleetNode({1000, 1000}), FleetNode({1000, 1000})};
  nodes[1].Take(WholePod(1), 0b1);
  nodes[2].Take(PartPod(500), 0b1);
  EXPECT_EQ(Chosen(FleetPolicy::kClustering, nodes, PartPod(100), {PartPod(100)}), 2u);
  EXPECT_EQ(Chosen(FleetPolicy::kClustering, nodes, WholePod(1), {PartPod(100)}), 1u);
  nodes.erase(nodes.begin() + 1);
  EXPECT_EQ(Chosen(FleetPolicy::kClustering, nodes, WholePod(1), {PartPod(100)}), 0u)
      << "an idle one before one of another kind";
}

// Parts of 810 leave 190 that only the small ones can use, so these do not go where others fit.
TEST(FleetPolicy, TesseraFillsWhatNobodyElseCanUse) {
  std::vector<Demand> pods(10, PartPod(810));
  pods.resize(20, PartPod(500));
  pods.resize(22, PartPod(190));
  const std::vector<NodeRoom> nodes = {FleetNode({1000}), FleetNode({500}), FleetNode({190})};
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, nodes, PartPod(190), pods), 2u);
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, nodes, PartPod(500), pods), 1u);
}

TEST(FleetPolicy, TesseraKeepsProcessorsBesideGpusAndTypesThatAreWanted) {
  std::vector<Demand> pods(8, WholePod(1, 12'000));
  const std::vector<NodeRoom> nodes = {FleetNode({1000, 1000}), FleetNode({1000}, 40'000)};
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, nodes, PlainPod(8000), pods), 1u) << "it has more than its GPU needs";
  pods[0].models = 0b10;
  const std::vector<NodeRoom> types = {FleetNode({1000}, 0, 1), FleetNode({1000, 1000}, 0, 0)};
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, types, WholePod(1), pods), 1u) << "others can use only the first";
  EXPECT_EQ(Chosen(FleetPolicy::kTessera, types, pods[0], pods), 0u);
}

// A fleet of two nodes, each with half a GPU in use.
class RoomMakerTest : public testing::Test {
 protected:
  RoomMakerTest() {
    for (std::size_t node = 0; node < 2; ++node) fleet_.Put(fleet_.NumberOf(PartPod(500)), {node, 0b1});
  }
  std::vector<Demand> pods_ = {PartPod(500), WholePod(1)};
  Fleet fleet_{{FleetNode({1000}), FleetNode({1000})}};
  FleetValue value_{pods_, {FleetNode({1000}), FleetNode({1000})}};
};

TEST_F(RoomMakerTest, MovesOneSoThatAnotherFits) {
  RoomMaker maker(value_, 100);
  const std::size_t whole = fleet_.NumberOf(WholePod(1));
  ASSERT_TRUE(maker.MakeRoom(fleet_, whole));
  EXPECT_EQ(maker.moves(), 1u);
  EXPECT_EQ(fleet_.taken_milli(), 1000) << "both still run";
  EXPECT_EQ(fleet_.PodOf(0).spot.node, fleet_.PodOf(1).spot.node);
  EXPECT_TRUE(fleet_.RoomOf(1 - fleet_.PodOf(0).spot.node).Fits(WholePod(1)));
}

TEST_F(RoomMakerTest, MovesNoMoreThanItMay) {
  RoomMaker none(value_, 0), few(value_, 49);
  const std::size_t whole = fleet_.NumberOf(WholePod(1));
  EXPECT_FALSE(none.MakeRoom(fleet_, whole));
  EXPECT_FALSE(few.MakeRoom(fleet_, whole)) << "one of two is 50 %";
  EXPECT_EQ(fleet_.RoomOf(0).gpu_milli[0], 500);
}

TEST_F(RoomMakerTest, LeavesAllAsItIsIfNoMoveHelps) {
  RoomMaker maker(value_, 100);
  const auto before = fleet_.changes();
  EXPECT_FALSE(maker.MakeRoom(fleet_, fleet_.NumberOf(WholePod(2))));
  EXPECT_EQ(fleet_.changes(), before);
  fleet_.Put(fleet_.NumberOf(PartPod(400)), {0, 0b1});
  fleet_.Put(fleet_.NumberOf(PartPod(400)), {1, 0b1});
  EXPECT_FALSE(maker.MakeRoom(fleet_, fleet_.NumberOf(WholePod(1)))) << "nothing fits elsewhere";
  EXPECT_EQ(maker.moves(), 0u);
}

}  // namespace
}  // namespace tessera::sched
