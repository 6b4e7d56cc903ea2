// The output of ResidencyPlanner: what to do now about the memory of the programs on one GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/residency/residency_state.h"

namespace tessera::sched {

enum class ResidencyActionKind {
  kStop,       // nothing of the process may run, nor of its peers
  kRun,        // the process runs again
  kThaw,       // a process that rests stays stopped by its gate, but is not frozen
  kFreePeers,  // a process that is settled stays stopped; its peers go on
  kMoveOut,    // the mover brings `bytes` of the process out
  kSqueeze,    // the mover brings `bytes` of chunks with holes out; they are to come back, in kMoveIn, before it runs
  kMoveIn,  // the process gets `bytes` of room, and the mover brings so much of it in, `holes` in whole chunks included
  kSettle,  // the mover makes every address of the process valid
  kPark,    // the program lets go of host memory, and the mover keeps what is in it
  kRest,    // what the process has in host memory may go on to the file
  kGrant,   // the process gets `bytes` of room as credit: what it waited for
  kRevokeCredit,  // the process loses its credit, as far as it has not taken it by now
  kDropWish,      // the process no longer repeats what it waited for
  kGrowPool,      // the mover's pool is to have `bytes`, as soon as can be; no process
  kPreparePool,   // it is to have `bytes` when there is nothing else to do, and gives back what is unused beyond; none
  kEndPush,       // an operator's wish is over; `bytes` of what it could have brought out must not go
};

// As much of it as there is: each chunk comes back whole.
inline constexpr std::uint64_t kAnyHoles = UINT64_MAX;

// `process` is 0 for kGrowPool and kPreparePool.
struct ResidencyAction {
  ResidencyActionKind kind{};
  ProcessId process = 0;
  std::uint64_t bytes = 0;
  std::uint64_t holes = 0;  // of kMoveIn; kAnyHoles
  bool operator==(const ResidencyAction&) const = default;
};

// Changes `process` as the action does at once, before the mover has done anything. `file`: there is a swap file. For
// plans in the making, and for those who carry them out in a simulation.
void Apply(const ResidencyAction& action, Nanos now, bool file, ProcessResidence& process);
// Likewise of kGrowPool and kPreparePool; others change nothing.
void Apply(const ResidencyAction& action, PoolResidence& pool);

// The goal for one vGPU: so much of it may be resident, and it runs or does not.
struct VGpuGoal {
  VgpuId vgpu = 0;
  std::uint64_t target = 0;
  bool runs = true;
  bool operator==(const VGpuGoal&) const = default;
};

struct ResidencyPlan {
  // To be carried out in this order. An action that fails, because its process or the mover has just ended, is left
  // out: the next state shows that.
  std::vector<ResidencyAction> actions;
  std::vector<VGpuGoal> changed;  // goals that differ from the last plan's, for a log
  bool needs_mover = false;       // one is to be started, if none runs
  bool pressed = false;  // somebody waits, is stopped, has memory out or too much in: turns and moves are planned
  bool awaits = false;   // programs of an earlier daemon are missing: until they are back, nothing is granted or moved
  Nanos look_at = kNever;  // when to plan again if nothing happens before
  bool operator==(const ResidencyPlan&) const = default;
};

// The question of a process for room on the GPU.
struct RoomWish {
  ProcessId process = 0;
  std::uint64_t bytes = 0;  // 0: for memory that must come back, for which it can only wait
  bool pins = false;        // what it makes there cannot be moved: a context, a pool
};

// The answer.
struct RoomAnswer {
  enum class Kind {
    kGrant,   // it has the room now
    kWait,    // it is to be told later: the room must be made first
    kRefuse,  // never, as things stand
  };
  enum class Reason {
    kNone,
    kUnknown,         // there is no such process
    kPinned,          // with the pinned memory of its vGPU it is more than memory.limit, or the GPU, allows at once
    kNoHostMemory,    // likewise with all that it has, none of which may be in host memory while it runs
    kKeptByOthers,    // others have too much of the GPU that cannot be moved, or that they were promised
    kSwapBound,       // it is beyond the limit, and no more of the vGPU may lie in host memory
    kHostMemoryFull,  // it does not fit, and host memory could not be had a moment ago
    kNoMover,         // it does not fit, and nothing can be moved: movers do not start
  };
  Kind kind{};
  Reason reason = Reason::kNone;  // of a refusal
  std::uint64_t credit = 0;       // with a grant: room in advance, so that the next allocation costs no question
  std::uint64_t most = 0;         // with a refusal: bytes that the process could have at once
  bool operator==(const RoomAnswer&) const = default;
};

}  // namespace tessera::sched
