// What packing knows of a tenant and of a GPU. All GPUs of a fleet are alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/packing/rectangle.h"

namespace tessera::sched {

// A way to give a tenant what it was promised: so much time on so many SMs.
struct Way {
  Rectangle size;
  double bandwidth = 0;  // part of the memory's bandwidth that it uses meanwhile, [0, 1]

  friend bool operator==(const Way&, const Way&) = default;
};

// What a tenant was seen to use, interval by interval, or the sum of several; empty: nothing is known. All series of a
// fleet are equally long.
struct UseSeries {
  static constexpr std::int32_t kWholeInterval = 1'000'000;

  std::vector<std::int32_t> duty;    // part of the interval in which its work ran, [0, kWholeInterval]
  std::vector<std::int32_t> memory;  // MiB that it had allocated, [0, 2^24]
  std::vector<std::int32_t> active;  // `memory` where it worked, 0 where not
  std::vector<std::int32_t> woken;   // `active` where it had not worked in the interval before

  // `duty` and `memory` are equally long.
  static UseSeries Of(std::vector<std::int32_t> duty, std::vector<std::int32_t> memory);
  bool empty() const { return duty.empty(); }
  // Adds the other's, or with -1 as `sign` takes them away.
  void Add(const UseSeries& other, std::int32_t sign);
};

struct FleetTenant {
  std::uint32_t group = 0;      // those of one group trust each other and may run at the same time. 0: it trusts nobody
  std::uint32_t gpus = 1;       // it has as much of so many at once
  std::uint64_t memory = 0;     // bytes that it allocates at most
  std::uint64_t promised = 0;   // of these, bytes that must be on the GPU whatever others do
  std::uint64_t fixed = 0;      // bytes beside these that cannot move: its context
  bool waits_for_turns = true;  // it bears to wait for the moves of others' memory: it has no latency goal
  // Ways to give it what it was promised, by ascending SMs; the last one has all of them. Empty: it was promised no
  // time.
  std::vector<Way> ways;
  UseSeries use;
};

struct FleetGpu {
  std::uint64_t memory = 0;          // bytes
  double move_bytes_per_second = 0;  // to and from host memory, each way
  Nanos interval = 0;                // of UseSeries
  Nanos turn = 10 * kSecond;         // of those whose memory does not fit together, at least
  double most_over = 0.01;           // part of all GPUs' intervals in which more may be asked of a GPU than it can do
  double most_over_of_one = 0.05;    // the same, of the intervals of each
  double most_moving = 0.1;          // part of its time that moves may take where those active together do not fit
  Part switching = 0;                // of its time, lost where several alternate in time
  std::size_t node = 1;              // GPUs of a node, between which programs move while they run; 1: none does
  Nanos pause = kSecond;             // of a program that does so, besides the moves of its memory

  // What sharing knows; a packing without one of these is a baseline.
  bool moves_memory = true;  // what does not fit may be in host memory, but for what is promised
  bool has_spaces = true;    // tenants of a group may run at the same time
  bool shares_time = true;   // false: nobody asks how much of the time is wanted
};

// Where each tenant lies.
struct Placement {
  struct Seat {
    std::vector<std::size_t> gpus;  // empty: nowhere
    Way way;                        // that it has there; {}: it was promised no time
    bool in_space = false;          // at the same time as others of its group
  };
  std::vector<Seat> seats;  // of the tenants, in their order
  std::size_t gpus = 0;     // that have a tenant

  std::size_t Refused() const {
    std::size_t count = 0;
    for (const Seat& seat : seats) count += seat.gpus.empty() ? 1 : 0;
    return count;
  }
};

}  // namespace tessera::sched
