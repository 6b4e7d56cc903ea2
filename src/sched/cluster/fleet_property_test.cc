// Properties of fleets that hold for all nodes, pods and policies. The cases are the same on every run; RC_PARAMS looks
// further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "base/testing/same_cases.h"
#include "sched/cluster/cutting_stock.h"
#include "sched/cluster/fleet_chooser.h"
#include "sched/cluster/room_maker.h"

namespace tessera::sched {
namespace {

NodeRoom AnyNode() {
  NodeRoom node;
  node.gpus = *rc::gen::inRange<std::uint8_t>(0, 5);
  node.cpu = *rc::gen::inRange(1000, 64'000);
  node.memory = *rc::gen::inRange(1000, 64'000);
  node.model = *rc::gen::inRange<std::uint8_t>(0, 3);
  std::fill_n(node.gpu_milli.begin(), node.gpus, static_cast<std::int16_t>(kGpuMilli));
  return node;
}

Demand AnyDemand() {
  Demand demand;
  demand.cpu = *rc::gen::inRange(0, 16'000);
  demand.memory = *rc::gen::inRange(0, 16'000);
  demand.gpus = *rc::gen::element(0, 1, 1, 1, 2, 4);
  if (demand.gpus > 0) demand.gpu_milli = demand.gpus > 1 ? kGpuMilli : *rc::gen::inRange(1, 21) * 50;
  if (demand.gpus > 0 && *rc::gen::inRange(0, 4) == 0) demand.models = *rc::gen::inRange<GpuModels>(1, 8);
  return demand;
}

template <typename T>
std::vector<T> Several(T (*any)(), std::size_t most) {
  std::vector<T> all(*rc::gen::inRange<std::size_t>(1, most + 1));
  for (T& each : all) each = any();
  return all;
}

// What the nodes have left is what they had, without their pods, which are where they may be.
void RequireRight(const std::vector<NodeRoom>& empty, const Fleet& fleet) {
  std::vector<NodeRoom> left = empty;
  std::int64_t taken = 0;
  for (std::size_t pod = 0; pod < fleet.pods(); ++pod) {
    const auto& [number, spot] = fleet.PodOf(pod);
    const Demand& demand = fleet.DemandOf(number);
    RC_ASSERT(demand.gpus == 0 || left[spot.node].Allows(demand));
    RC_ASSERT(std::popcount(spot.gpus) == demand.gpus);
    left[spot.node].Take(demand, spot.gpus);
    taken += demand.TotalMilli();
  }
  RC_ASSERT(fleet.taken_milli() == taken);
  for (std::size_t node = 0; node < left.size(); ++node) {
    RC_ASSERT(fleet.RoomOf(node) == left[node]);
    RC_ASSERT(left[node].cpu >= 0 && left[node].memory >= 0);
    for (int gpu = 0; gpu < left[node].gpus; ++gpu) RC_ASSERT(left[node].gpu_milli[gpu] >= 0);
  }
}

RC_GTEST_PROP(FleetProperty, NothingIsGivenTwiceAndMovesOnlyAdd, ()) {
  const auto policy = static_cast<FleetPolicy>(*rc::gen::inRange(0, 7));
  const auto nodes = Several(AnyNode, 6);
  const auto pods = Several(AnyDemand, 8);
  const double most_pct = *rc::gen::element(0, 10, 100);
  const Fragmentation fragmentation(TypicalDemands(pods));
  const FleetValue value(pods, nodes);
  Fleet fleet(nodes);
  FleetChooser chooser(policy, fragmentation, value, 1);
  RoomMaker maker(value, most_pct);
  const int arrivals = *rc::gen::inRange(1, 40);
  for (int i = 0; i < arrivals; ++i) {
    const std::size_t demand = fleet.NumberOf(pods[*rc::gen::inRange<std::size_t>(0, pods.size())]);
    const auto fits = [&] {
      for (std::size_t node = 0; node < fleet.nodes(); ++node) {
        if (fleet.RoomOf(node).Fits(fleet.DemandOf(demand))) return true;
      }
      return false;
    };
    auto spot = chooser.Choose(fleet, demand);
    RC_ASSERT(spot.has_value() == fits());
    if (!spot) {
      const auto taken = fleet.taken_milli();
      const auto changes = fleet.changes();
      const bool made = maker.MakeRoom(fleet, demand);
      RC_ASSERT(made == fits());
      RC_ASSERT(fleet.taken_milli() == taken);
      RC_ASSERT(made || fleet.changes() == changes);
      RC_ASSERT(100.0 * static_cast<double>(maker.moves()) <= most_pct * static_cast<double>(fleet.pods()));
      if (made) spot = chooser.Choose(fleet, demand);
    }
    if (spot) fleet.Put(demand, *spot);
  }
  RequireRight(nodes, fleet);
}

RC_GTEST_PROP(FleetProperty, FragmentsAreAtMostWhatIsLeftAndValueAtMostTheGpus, ()) {
  const auto nodes = Several(AnyNode, 4);
  const auto pods = Several(AnyDemand, 8);
  const Fragmentation fragmentation(TypicalDemands(pods));
  const FleetValue value(pods, {});
  for (NodeRoom room : nodes) {
    for (int gpu = 0; gpu < room.gpus; ++gpu)
      room.gpu_milli[gpu] = static_cast<std::int16_t>(*rc::gen::inRange(0, kGpuMilli + 1));
    const double fragments = fragmentation.Of(room);
    RC_ASSERT(fragments >= -1e-6 && fragments <= room.TotalMilli() + 1e-6);
    RC_ASSERT(value.Of(room) >= 0 && value.Of(room) <= room.gpus + 1e-6);
    for (const Demand& demand : pods) {
      if (!room.Fits(demand)) continue;
      NodeRoom after = room;
      after.Take(demand, room.Tightest(demand));
      RC_ASSERT(value.Of(after) <= value.Of(room) + 1e-6);
    }
  }
}

// Whatever is cut of a bar, its pieces' prices are at most 1; and all pieces together cost as much as all bars.
RC_GTEST_PROP(FleetProperty, PricesOfPiecesAreTheDualSolution, ()) {
  std::map<std::int32_t, double> counts;
  const int sizes = *rc::gen::inRange(1, 12);
  for (int i = 0; i < sizes; ++i) counts[*rc::gen::inRange(1, 100) * 10] = *rc::gen::inRange(1, 50);
  std::vector<Pieces> pieces;
  for (const auto& [size, count] : counts) pieces.push_back({size, count});
  const Cutting cutting = CutBars(1000, pieces);
  double cost = 0, size = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    RC_ASSERT(cutting.prices[i] >= 0);
    cost += cutting.prices[i] * pieces[i].count;
    size += pieces[i].size * pieces[i].count;
    for (std::size_t at = static_cast<std::size_t>(pieces[i].size); at <= 1000; ++at) {
      const double rest = cutting.worth[at - static_cast<std::size_t>(pieces[i].size)];
      RC_ASSERT(cutting.worth[at] >= rest + cutting.prices[i] - 1e-6);
    }
  }
  RC_ASSERT(cutting.worth[1000] <= 1 + 1e-6);
  RC_ASSERT(std::abs(cost - cutting.bars) < 1e-4 * cutting.bars);
  RC_ASSERT(cutting.bars >= size / 1000 - 1e-6);
}

}  // namespace
}  // namespace tessera::sched
