#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sched/cluster/fleet.h"
#include "sched/cluster/fleet_chooser.h"
#include "sched/cluster/fleet_value.h"
#include "sched/cluster/fragmentation.h"

namespace tessera::sched {

// Local search: where a pod fits nowhere, moves another one to where it fits as well, so that there is room. Of all
// such moves it takes the one after which the fleet is worth most. It moves only pods on one GPU, by one move for each
// pod that is placed by it, and never stops one.
class RoomMaker {
 public:
  // `value` lives longer. `most_pct`: moves in percent of the pods that are placed, at any time; 0: it moves none.
  RoomMaker(const FleetValue& value, double most_pct);

  // Whether the pod fits somewhere now; else nothing has changed. The pod fitted nowhere.
  bool MakeRoom(Fleet& fleet, std::size_t demand);

  std::size_t moves() const { return moves_; }

 private:
  struct Move {
    std::size_t pod = 0;
    FleetSpot to;
    double worth = 0;  // of the fleet after it and with the new pod, against now; in GPUs
  };
  struct Refuge {  // the two best nodes for a demand, because a pod must not go where it is
    bool known = false;
    std::optional<std::size_t> first, second;
  };
  std::optional<Move> Best(const Fleet& fleet, std::size_t demand);
  std::optional<Move> Away(const Fleet& fleet, std::size_t pod, const Demand& newcomer);
  const Refuge& RefugeFor(const Fleet& fleet, std::size_t demand);

  const FleetValue& value_;
  const double most_pct_;
  const Fragmentation none_{std::vector<TypicalDemand>{}};  // the policy looks at none
  FleetChooser chooser_;
  std::size_t moves_ = 0;
  std::uint64_t refuges_at_ = 0;           // Fleet::changes() for which these were found
  std::vector<Refuge> refuges_;            // by demand
  std::vector<std::uint64_t> in_vain_at_;  // by demand: Fleet::departures() since which there is no move
};

}  // namespace tessera::sched
