// The input of ResidencyPlanner: where the memory of the programs on one GPU lies at one moment, in plain numbers.
//
// Sizes are bytes, times are nanoseconds of the caller's clock. The caller has checked what programs claim: what stands
// here is believed. Memory moves in chunks; what cannot be moved is pinned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/residency/bytes.h"
#include "sched/shares/shares.h"
#include "sched/turns/turn_wishes.h"

namespace tessera::sched {

// A program that got the room it waited for has so long to take it.
inline constexpr Nanos kTimeToTake = kSecond;

// A program looks for its next daemon five times a second. One that has not come for so long was stopped by somebody,
// or does not come.
inline constexpr Nanos kLongestAbsence = 5 * kSecond;

// Names a program's use of one GPU. Never used for another one.
using ProcessId = std::uint64_t;

// The order that the mover has for a process and has not finished.
enum class Moving {
  kNothing,
  kOut,       // brings memory to host memory
  kIn,        // brings memory back to the GPU
  kSettling,  // makes every address valid, by host memory where a chunk is out
  kParking,   // has the program let go of host memory: it holds nothing of what is out
};

// One process. Room is the right to have memory on the GPU; credit is room that was granted and is not used.
struct ProcessResidence {
  ProcessId id = 0;

  // On the GPU.
  std::uint64_t room = 0;    // all it may have: what it has, what is on its way in, and its credit
  std::uint64_t credit = 0;  // of `room`
  std::uint64_t pinned = 0;  // of `room`; credit and pinned memory together are at most `room`
  std::uint64_t empty = 0;   // of `room`: chunks with nothing in them, which the program gives up when asked
  std::uint64_t holes = 0;   // of `room`: parts of chunks with nothing in them, which a move of the chunks frees
  std::uint64_t holed = 0;   // of `room`: those chunks
  // In host memory: the room that it takes at least to have it back.
  std::uint64_t swapped = 0;
  std::uint64_t stranded = 0;   // beside `swapped`: stays in host memory until it is freed, because no mover has it
  std::uint64_t holes_out = 0;  // room that it takes beside `swapped` if chunks come back whole, which is quicker
  // Host memory that would hold nothing if all of its memory were out: slots of chunks in which little lies.
  std::uint64_t blank = 0;
  std::uint64_t hot_out =
      0;  // of `swapped`: used so much more than memory on the GPU that the two should change places
  std::uint64_t recalled = 0;  // of `swapped`: has to come back, whoever runs
  std::uint64_t squeezed = 0;  // of `swapped`, not recalled: went out for its chunks' holes, and is to come back first
  // Allocated, wherever it lies.
  std::uint64_t allocated = 0;

  // Wishes.
  std::uint64_t wanted = 0;  // room that the process waits for
  Nanos wanted_at = 0;       // when it last said so
  bool pins = false;         // what it waits for, or got last, stays on the GPU for good: a context, a pool
  // When it last got room that it had waited for; it finds that in its credit.
  Nanos granted_at = -kTimeToTake;
  std::uint64_t push = 0;  // an operator wants so much of it out
  // It is to be taken off the GPU, and has drained: all that can be moved goes out, and none of it comes back or is
  // held by the program. Its work counts for nothing meanwhile, and it does not run.
  bool away = false;

  // The mover.
  bool has_line = false;  // the mover can reach it
  // Its mover has ended, and it has no line to the next one: what it says of its memory may be old.
  bool lost_line = false;
  Moving moving = Moving::kNothing;
  std::uint64_t ordered = 0;         // of the mover, and not reported as done
  std::uint64_t done = 0;            // of `ordered`: done all the same, as the program says
  std::uint64_t coming_holes = 0;    // of `ordered`, going in: what may be holes, where that was bounded
  Nanos moved_for = 0;               // time in which its memory was moved, over its whole life
  Nanos stuck_until = 0;             // the mover can do nothing with it before then
  bool no_memory_to_settle = false;  // the last attempt to settle it failed because host memory is full
  bool in_own_file = false;          // what it had in host memory is in a file of its own, which is not the pool's
  bool no_host_memory = false;       // the program cannot reach host memory: with memory out it cannot be settled
  bool parked = false;               // the program holds nothing of what is out, but the mover has it
  bool may_be_in_file = false;       // the mover may bring to the file what the process has in host memory

  // Whether it runs.
  bool works = false;        // it has work, and no operator has frozen it
  bool peers = false;        // its program has work on other GPUs too, its peers, which may reach this memory
  bool stopped = false;      // it does not run, because of its memory
  bool thawed = false;       // stopped by its closed gate only, not frozen
  bool keeps_peers = false;  // thawed, but it was away, and its peers stand still
  bool alone = false;        // stopped, but not its peers: it is settled, and nothing of it is moved
  bool still = false;        // nothing of it can execute, nor of its peers; read where `stopped` only
  bool unsafe = false;       // some addresses are not valid: it must not run before it is settled

  // Memory on the GPU that could be moved out.
  std::uint64_t Movable() const { return room - credit - pinned; }
  // Still on its way in. `room` includes it.
  std::uint64_t Coming() const { return moving == Moving::kIn ? ordered - done : 0; }
  // What is out and not on its way in: the room that it takes at least, and with whole chunks.
  std::uint64_t Out() const { return Less(swapped, Less(Coming(), coming_holes)); }
  std::uint64_t WholeOut() const { return Less(swapped + holes_out, Coming()); }
  // Everything that can be moved, wherever it lies, which what is stranded cannot. At most `most_out` of it is believed
  // to be out.
  std::uint64_t All(std::uint64_t most_out = UINT64_MAX) const;
  // The same where chunks come back whole.
  std::uint64_t Whole() const { return All() - Out() + WholeOut(); }
  // In host memory, or on its way there.
  std::uint64_t OutSoon() const { return swapped + (moving == Moving::kOut ? ordered - done : 0); }
  // Credit that it waited for and has not taken yet.
  std::uint64_t Granted(Nanos now) const;
  // What it waits for, or was granted and will take. Of this, what can be moved once it is there, and what cannot.
  std::uint64_t WantedMovable(Nanos now) const { return pins ? 0 : wanted + Granted(now); }
  std::uint64_t WantedPinned(Nanos now) const { return pins ? wanted + Granted(now) : 0; }
  // It has something to do, or waits for memory.
  bool Active(Nanos now) const { return !away && (works || wanted > 0 || recalled > 0 || Granted(now) > 0); }
  // It is away, and nothing is left to be done for that but what cannot be moved.
  bool Left() const { return away && stopped && !lost_line && moving == Moving::kNothing && (swapped == 0 || parked); }
  // Its addresses are valid when its memory is on the GPU, and not before.
  bool CannotSettle() const { return no_host_memory && unsafe && swapped > 0; }
  // The mover can be given an order for it.
  bool Reachable(Nanos now) const { return has_line && now >= stuck_until; }
  bool operator==(const ProcessResidence&) const = default;
};

struct VGpuResidence {
  VgpuId id = 0;
  std::uint32_t weight = 100;
  std::uint32_t priority = 8;          // lower numbers go first
  std::uint64_t request = 0;           // memory.request, contexts included: kept for it while it works
  std::optional<std::uint64_t> limit;  // memory.limit, contexts included: the most that it may have on the GPU
  std::optional<std::uint64_t> swap;   // memory.swap.max, if it was set
  GangTurn gang = GangTurn::kOpen;     // what the order over several GPUs says of its turns
  std::vector<ProcessResidence> processes;

  std::uint64_t Pinned() const;
  std::uint64_t Room() const;
  bool Active(Nanos now) const;
  bool operator==(const VGpuResidence&) const = default;
};

// The mover's pool of pinned host memory.
struct PoolResidence {
  std::uint64_t size = 0;      // what it has
  std::uint64_t used = 0;      // of `size`
  std::uint64_t wanted = 0;    // what the mover was last told to have
  std::uint64_t prepared = 0;  // and what to prepare ahead, all in all
  std::uint64_t most = 0;      // what it may have; 0: memory is not swapped
  Nanos grew_at = 0;           // when it last became larger
  Nanos full_until = 0;        // host memory ran out; no more is asked for before then

  // swap.prepare: so much is prepared whatever programs have; none: as much as could go out.
  std::optional<std::uint64_t> prepare = 0;
  // What the pool could have if it had all of the machine's memory but swap.floor; none: not known yet.
  std::optional<std::uint64_t> machine;
  // Hundredths of a percent of the last 10 s in which some program of the machine waited for memory (PSI).
  std::uint32_t pressure = 0;

  // What the mover makes of it if it can.
  std::uint64_t Goal() const { return std::max(wanted, prepared); }
  bool operator==(const PoolResidence&) const = default;
};

struct ResidencyState {
  std::uint64_t capacity = 0;         // of the GPU's memory, what room may be granted of, contexts included
  std::uint64_t chunk = 64ull << 20;  // what moves together, at most
  std::uint64_t unit = 2ull << 20;    // GPU memory is taken, and comes free, in multiples of this
  std::uint64_t file = 0;             // bytes that the swap file may hold; 0: there is none
  PoolResidence pool;
  bool mover_ready = false;
  bool mover_hopeless = false;  // several movers in a row could not start
  Nanos last_moved = 0;         // when the mover last reported that it moved something
  // Programs that an earlier daemon had here and that have not told this one yet what they have.
  std::size_t missing = 0;
  Nanos missing_since = 0;
  std::vector<VGpuResidence> vgpus;

  std::uint64_t Room() const;  // of all vGPUs
  std::uint64_t Used() const;  // room that is in use
  bool Loads() const;          // memory of some process comes in
  // Whether memory of missing processes may lie on the GPU: it is in no room here, and must not be given away.
  bool AwaitsMissing(Nanos now) const { return missing > 0 && now - missing_since < kLongestAbsence; }
  // Memory beyond this is the sign that a mover may soon be needed: neither it nor its pool can be had in an instant.
  bool MoverMayBeNeeded() const { return pool.most > 0 && Used() > capacity / 2; }
  bool operator==(const ResidencyState&) const = default;
};

}  // namespace tessera::sched
