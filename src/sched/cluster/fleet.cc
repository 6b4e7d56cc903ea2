#include "sched/cluster/fleet.h"

#include <algorithm>

namespace tessera::sched {

Fleet::Fleet(const std::vector<NodeRoom>& nodes) : states_of_nodes_(nodes.size()), pods_of_nodes_(nodes.size()) {
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    Change(node, nodes[node]);
    all_milli_ += nodes[node].TotalMilli();
  }
}

std::size_t Fleet::NumberOf(const Demand& demand) {
  const auto [found, is_new] = numbers_of_demands_.try_emplace(demand, demands_.size());
  if (is_new) demands_.push_back(demand);
  return found->second;
}

std::size_t Fleet::Put(std::size_t demand, const FleetSpot& spot) {
  pods_.push_back({demand, spot});
  Enter(pods_.size() - 1, spot);
  return pods_.size() - 1;
}

void Fleet::Move(std::size_t pod, const FleetSpot& spot) {
  Leave(pod);
  Enter(pod, spot);
}

void Fleet::Change(std::size_t node, const NodeRoom& room) {
  ++changes_;
  const auto [found, is_new] = numbers_of_states_.try_emplace(room, states_.size());
  if (is_new) states_.push_back(room);
  states_of_nodes_[node] = found->second;
}

void Fleet::Enter(std::size_t pod, const FleetSpot& spot) {
  pods_[pod].spot = spot;
  pods_of_nodes_[spot.node].push_back(pod);
  const Demand& demand = demands_[pods_[pod].demand];
  NodeRoom room = RoomOf(spot.node);
  room.Take(demand, spot.gpus);
  Change(spot.node, room);
  taken_milli_ += demand.TotalMilli();
}

void Fleet::Leave(std::size_t pod) {
  ++departures_;
  const auto [number, spot] = pods_[pod];
  auto& others = pods_of_nodes_[spot.node];
  others.erase(std::ranges::find(others, pod));
  NodeRoom room = RoomOf(spot.node);
  room.Give(demands_[number], spot.gpus);
  room.kinds = 0;
  for (const std::size_t other : others) room.kinds |= NodeRoom::KindOf(demands_[pods_[other].demand]);
  Change(spot.node, room);
  taken_milli_ -= demands_[number].TotalMilli();
}

}  // namespace tessera::sched
