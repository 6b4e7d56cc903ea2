#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sched/cluster/dice.h"
#include "sched/cluster/fleet.h"
#include "sched/cluster/fleet_policy.h"
#include "sched/cluster/fleet_value.h"
#include "sched/cluster/fragmentation.h"

namespace tessera::sched {

// Finds the node for a pod by a policy. What the policy says of a state and a demand is computed once. Of nodes that
// suit alike, the first takes the pod: an experiment shuffles the nodes.
class FleetChooser {
 public:
  // Both live longer. `seed`: of the random policy.
  FleetChooser(FleetPolicy policy, const Fragmentation& fragmentation, const FleetValue& value, std::uint64_t seed)
      : policy_(policy), fragmentation_(fragmentation), value_(value), dice_(seed) {}

  // By the demand's number. nullopt: the pod fits nowhere.
  std::optional<FleetSpot> Choose(const Fleet& fleet, std::size_t demand);
  // What the policy says of a state and a demand, by their numbers; nullptr: it does not fit. Valid until the next
  // call.
  const Suit* SuitIn(const Fleet& fleet, std::size_t state, std::size_t demand);

 private:
  struct Known {
    enum class Is : std::uint8_t { kUnknown, kFits, kDoesNotFit };
    Suit suit;
    Is is = Is::kUnknown;
  };
  std::optional<FleetSpot> Best(const Fleet& fleet, std::size_t demand);
  std::optional<FleetSpot> Any(const Fleet& fleet, std::size_t demand);
  std::vector<Known>& KnownOf(std::size_t demand, std::size_t state);

  FleetPolicy policy_;
  const Fragmentation& fragmentation_;
  const FleetValue& value_;
  Dice dice_;
  std::vector<std::vector<Known>> known_;  // by demand, then by state
  std::size_t known_size_ = 0;
  std::vector<std::uint64_t> nowhere_since_;  // by demand: Fleet::departures() since which it fits nowhere
};

}  // namespace tessera::sched
