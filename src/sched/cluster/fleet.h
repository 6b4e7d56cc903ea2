#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "sched/cluster/demand.h"
#include "sched/cluster/node_room.h"

namespace tessera::sched {

// Where a pod is, or could be.
struct FleetSpot {
  std::size_t node = 0;
  GpuSet gpus = 0;
};

// Nodes, and the pods on them. Many nodes are in the same state, and many pods ask for the same; each state and each
// demand has a number, by which what was computed for them can be found again.
class Fleet {
 public:
  struct Pod {
    std::size_t demand = 0;  // number
    FleetSpot spot;
  };

  explicit Fleet(const std::vector<NodeRoom>& nodes);

  std::size_t nodes() const { return states_of_nodes_.size(); }
  // The number of what is left of the node.
  std::size_t StateOf(std::size_t node) const { return states_of_nodes_[node]; }
  const NodeRoom& RoomOf(std::size_t node) const { return states_[states_of_nodes_[node]]; }
  const NodeRoom& State(std::size_t number) const { return states_[number]; }
  // The pods on the node.
  const std::vector<std::size_t>& PodsOn(std::size_t node) const { return pods_of_nodes_[node]; }

  std::size_t NumberOf(const Demand& demand);
  const Demand& DemandOf(std::size_t number) const { return demands_[number]; }

  const Pod& PodOf(std::size_t pod) const { return pods_[pod]; }
  std::size_t pods() const { return pods_.size(); }
  std::int64_t all_milli() const { return all_milli_; }      // of all GPUs
  std::int64_t taken_milli() const { return taken_milli_; }  // of these, what pods have

  // Grows whenever a pod is put somewhere or moved; at least 1.
  std::uint64_t changes() const { return changes_; }
  // Grows whenever a pod leaves its place; at least 1. Until then what fits nowhere does not fit later.
  std::uint64_t departures() const { return departures_; }

  // Returns the pod's number; they count from 0. It fits there.
  std::size_t Put(std::size_t demand, const FleetSpot& spot);
  // It fits there, once it has left its place.
  void Move(std::size_t pod, const FleetSpot& spot);

 private:
  void Change(std::size_t node, const NodeRoom& room);
  void Enter(std::size_t pod, const FleetSpot& spot);
  void Leave(std::size_t pod);

  std::vector<NodeRoom> states_;
  std::unordered_map<NodeRoom, std::size_t, NodeRoomHash> numbers_of_states_;
  std::vector<std::size_t> states_of_nodes_;
  std::vector<std::vector<std::size_t>> pods_of_nodes_;
  std::vector<Demand> demands_;
  std::map<Demand, std::size_t> numbers_of_demands_;
  std::vector<Pod> pods_;
  std::int64_t all_milli_ = 0;
  std::int64_t taken_milli_ = 0;
  std::uint64_t changes_ = 1;
  std::uint64_t departures_ = 1;
};

}  // namespace tessera::sched
