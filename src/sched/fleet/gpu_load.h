#pragma once

#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {

// What binds on a GPU: of what it has the least left, in proportion.
enum class Binds { kNothing, kMemory, kTime, kBandwidth, kUse };

// "memory", "time and SMs", …: for people.
std::string_view NameOf(Binds binds);

// What tenants ask of the GPU that they lie on together. Tenants and GPU outlive it.
class GpuLoad {
 public:
  GpuLoad(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu) : tenants_(&tenants), gpu_(&gpu) {}

  void Add(std::size_t tenant);
  void Remove(std::size_t tenant);
  const std::vector<std::size_t>& members() const { return members_; }

  // What they ask for beyond what there is.
  struct Excess {
    double promised = 0;  // as a part of it, summed over what is short; 0: all promises can be kept
    double over = 0;      // part of the intervals in which they used more, [0, 1]
    double beyond = 0;    // by how much, of the time of all intervals
  };
  Excess Now() const;
  // If one member left and another tenant came; kNobody: none does.
  static constexpr std::size_t kNobody = SIZE_MAX;
  Excess After(std::size_t leaves, std::size_t comes) const;
  // Promises can be kept if the tenant comes, and at most FleetGpu::most_over of the intervals are over.
  bool HasRoomFor(std::size_t tenant) const;

  // Figures as parts of what the GPU has; above 1: too much.
  double PromisedMemory() const;  // and what cannot move
  double Memory() const;          // all that they allocate; the most of what was seen
  double Time() const;            // in which all promises are kept, switches included
  Binds WhatBinds() const;

  // How each member gets what it was promised, in the order of members().
  std::vector<Placement::Seat> Seats() const { return promises().seats; }

 private:
  struct Promises {
    Part time = 0;                       // in which all are kept
    double bandwidth = 0;                // the most that any space uses, of what there is
    std::vector<Placement::Seat> seats;  // of the members
  };
  // Of the use that was seen.
  struct Seen {
    double over = 0;    // part of the intervals
    double beyond = 0;  // what was asked for in these beyond what there was, of all intervals
    double most = 0;    // bytes in any interval
  };

  Excess Of(const std::vector<std::size_t>& members, const Promises& promises, const Seen& seen) const;
  // If `less` left and `more` came; null: nobody does.
  Seen See(const UseSeries* less, const UseSeries* more) const;
  double OverPromised(const std::vector<std::size_t>& members) const;
  Promises Promise(const std::vector<std::size_t>& members) const;
  const Promises& promises() const;

  const std::vector<FleetTenant>* tenants_;
  const FleetGpu* gpu_;
  std::vector<std::size_t> members_;
  UseSeries sums_;
  mutable Promises promises_;  // of members_, if known_
  mutable bool known_ = false;
};

}  // namespace tessera::sched
