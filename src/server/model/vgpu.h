#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sched/goals/goal.h"
#include "sched/tokens/token_scheduler.h"
#include "sched/turns/turn_wishes.h"
#include "server/access/authority.h"
#include "server/figures/busy_history.h"
#include "server/figures/labels.h"
#include "server/figures/present_burst.h"
#include "server/figures/pressure.h"
#include "server/figures/standing_log.h"
#include "server/loop/event_loop.h"
#include "server/model/bursts.h"
#include "server/model/ledger.h"
#include "server/model/process.h"
#include "server/model/residence.h"
#include "server/record/histogram.h"

namespace tessera::server {

// The settings of a vGPU: what the operator sets and state.json keeps.
struct VGpuSpec {
  std::string name;
  uid_t uid = 0;                  // who made it
  bool ephemeral = false;         // goes with its owner
  pid_t owner_pid = 0;            // of an ephemeral one
  std::uint64_t owner_start = 0;  // its start time, by which a reused pid is told apart
  bool frozen = false;            // by an operator, or by the owner:
  bool owner_froze = false;       // who may thaw it then
  MemoryTerms memory;
  sched::Shares compute;
  std::optional<sched::Goal> goal;
  std::string space;  // in which it runs beside others; empty: it has the GPU alone. Set when it is made
  std::string gang;   // of vGPUs of this user, on several GPUs, that have their turns together; empty: none
  std::string key;    // that programs must say to join it, operators' too; empty: none. Set when it is made
  Labels labels;      // which its metrics carry
};

// A short name of a vGPU's settings. It changes whenever they change, and is the same under the next daemon.
std::string TagOf(const VGpuSpec& spec);

// The living owner of an ephemeral vGPU. Belongs to the VGpuTable.
struct OwnerWatch {
  UniqueFd fd;  // pidfd; empty: there is none, or it has died
  EventLoop::Watch watch;
};

// Where the memory of a vGPU lay when the trace was last told.
struct TracedMemory {
  Nanos at = 0;
  std::uint64_t resident = 0, swapped = 0;
};

// A named partition of a GPU. Belongs to the VGpuTable.
struct VGpu {
  VgpuId id = 0;
  std::uint32_t gpu = 0;
  VGpuSpec spec;
  std::vector<Process*> processes;
  std::uint32_t joined = 0;  // programs that joined, with or without a process on the GPU yet
  std::string declared_at;   // where the configuration declares it: file and line; empty: it does not
  bool removed = false;      // by force; it stays until its last process is gone, because its memory does
  BusyHistory busy;
  sched::Usage usage_before;  // under the time servers that served it before the present one
  Histogram waits;            // for the GPU's time
  StandingLog standing;
  PresentBurst burst;
  Bursts bursts;
  Pressure compute_pressure;     // it has work and is kept off the GPU
  Pressure memory_pressure;      // at least one of its processes waits for memory
  Moves moved_before;            // of processes that have left
  std::uint64_t freezes = 0;     // of the whole vGPU, by an operator
  std::uint64_t gpu_faults = 0;  // that its GPU told of while it had programs there
  TracedMemory traced;
  std::string migrate_error;                           // why its last migration failed; empty: it did not
  sched::GangTurn gang_turn = sched::GangTurn::kOpen;  // set by the gang server
  OwnerWatch owner;

  // Of its processes, those that have left included.
  Moves MovesAt(Nanos now) const {
    Moves sum = moved_before;
    for (const Process* process : processes) sum += process->residence.moves.SumAt(now);
    return sum;
  }
};

inline bool Process::FrozenByOperator() const { return freeze.by_operator || (vgpu && vgpu->spec.frozen); }

// The vGPU as the authority sees it. One that root made to last is for everybody.
inline Possession PossessionOf(const VGpuSpec& spec) {
  return {.name = spec.name, .uid = spec.uid, .for_everybody = spec.uid == 0 && !spec.ephemeral};
}

// A process in a vGPU as the authority sees it. Its vGPU's owner has the same rights as its user.
inline Possession PossessionOf(const Process& process) {
  return {.name = std::to_string(process.pid), .process = true, .uid = process.who.uid, .host = process.vgpu->spec.uid};
}

// Those that a program of the caller may see in its own vGPU: its user's, whatever access.users says.
inline std::vector<const Process*> SeenBy(const Authority& authority, const Caller& caller, const VGpu& vgpu) {
  std::vector<const Process*> seen;
  for (const Process* process : vgpu.processes) {
    const Possession thing = PossessionOf(*process);
    if (process->who.uid == caller.uid || authority.Allowed(caller, Operation::kSeeProcess, &thing))
      seen.push_back(process);
  }
  return seen;
}

}  // namespace tessera::server
