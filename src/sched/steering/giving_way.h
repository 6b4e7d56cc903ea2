#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/steering/order_list.h"
#include "sched/steering/steered_vgpu.h"
#include "sched/steering/steering_config.h"

namespace tessera::sched {

// Classes under Steering: which vGPUs a higher class bars from running, and how short the slices are of those that run
// in the gaps of a higher class that gives way (Shares::patience). A lower vGPU that may run there has a seat; where a
// class has more vGPUs with work than seats, they take turns.
//
// A function of the vGPUs' states and the time, which keeps its own in SteeredVgpu. Not thread-safe; times never go
// backwards.
class GivingWay {
 public:
  static constexpr std::uint32_t kNoClass = 16;  // below all

  explicit GivingWay(const SteeringConfig& config) : config_(config) {}

  // Sets `barred`, `cut`, `soft_slice` and the seats of all.
  void Update(SteeredVgpus& vgpus, OrderList& orders, Nanos now);

  // The lowest class in which a vGPU that claims the GPU is not barred; kNoClass if there is none.
  std::uint32_t lowest() const { return lowest_; }
  // Whether lower classes run in its gaps.
  bool GivesWay(const SteeredVgpu& vgpu) const { return PatienceOf(vgpu) > 0; }
  // Whether an idle vGPU would stop lower ones, or cut their slices, if it became active.
  bool WouldStop(const SteeredVgpu& vgpu, Nanos now) const;
  // When Update has to be called at the latest.
  Nanos Deadline() const { return deadline_; }

 private:
  using Members = std::vector<SteeredVgpu*>;
  // Room that classes leave to those below them.
  struct Room {
    Nanos left = kNever;        // what slices below may sum up to; kNever: no higher class has been active lately
    Nanos changes_at = kNever;  // a higher class will not have been active lately
    bool claimed = false;       // a higher class has work
    Members best;               // the seated of the best lower class
    Nanos best_left = 0;        // what their slices sum up to
  };

  Nanos PatienceOf(const SteeredVgpu& vgpu) const;
  Nanos LingersUntil(const SteeredVgpu& vgpu) const;
  void Seat(const Members& members, Room& room, OrderList& orders, Nanos now);
  void TakeTurns(Members& claimants, std::size_t seats, OrderList& orders, Nanos now);
  void Narrow(const Members& members, Room& room, Nanos now) const;
  void Divide(const Room& room) const;

  const SteeringConfig config_;
  std::array<Members, kNoClass> classes_;
  std::uint32_t lowest_ = kNoClass;
  Nanos deadline_ = kNever;
};

}  // namespace tessera::sched
