#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/model/freeze_reason.h"
#include "server/model/gate_record.h"
#include "server/model/memory_use.h"
#include "server/model/residence.h"
#include "server/model/shared_page.h"
#include "server/model/suspension_state.h"
#include "server/record/wait_time.h"

namespace tessera::server {

// The identity of a process, beside its pid. Set by the session or the guest server before it joins.
struct ProcessIdentity {
  uid_t uid = 0;
  std::string program;
  std::int64_t started_us = 0;        // when it attached, wall clock; 0: nobody knows
  std::uint64_t start = 0;            // ProcessStart of a program with a shim; 0: not known
  bool guest = false;                 // it has no shim: started under the kernel gate, or adopted
  bool guarded = false;               // the kernel gate counts its memory; may become true at any time
  std::vector<std::uint32_t> joined;  // vGPUs that its program joined, with or without a process there
};

// Whether a process may run while its memory is where it is.
enum class MemoryHold {
  kNone,
  kGate,    // it gets no new work
  kAway,    // nor does its program on other GPUs, which would look for this memory in vain
  kAlone,   // nothing of it runs
  kFrozen,  // and nothing of its program on other GPUs, which may reach this memory
};

// The reasons that forbid a process to run, apart from the policy, and whether its freezes were seen to hold. Belongs
// to Freezes.
struct FreezeState {
  bool by_operator = false;  // this process by itself; its vGPU may be frozen as well
  MemoryHold by_residency = MemoryHold::kNone;
  bool by_peers = false;   // its program's memory on another GPU is moved, which its work may reach
  bool overdrawn = false;  // it has more than the kernel gate granted, and its vGPU more than its limit
  bool suspect = false;    // at the last look it had gone on although all of its known channels were frozen
  bool evades = false;     // it went on at two looks in a row: some of its channels are not known
  Nanos reached_seen = 0;  // the page's reached_ns at the last look
};

// A process's work on the GPU, as far as it is known beside its gate.
struct WorkState {
  bool worked = false;  // it used the GPU since it made its first context
  Nanos seen_at = 0;    // a guest, or channels not known: when the device last said that it executed, or may have
  std::uint32_t excess_seen = 0;  // measurements in a row that said it has more memory than was granted
  Nanos refusal_reported_at = 0;  // when an event last said that it got no memory; 0: never
  WaitTime waited;                // it had work, and the policy kept its vGPU off the GPU
};

// One program's use of one GPU. Belongs to its session, or to the guest server. Each part has one owner.
struct Process {
  Process(SharedPage shared_page, pid_t pid)
      : pid(pid), page(std::move(shared_page)), gate(page, pid), memory(page), residence(page) {
    memory.room = &residence.room;
  }

  bool FrozenByOperator() const;
  // The reasons that it must be frozen for now, those of policy apart: SteeringServer decides those.
  FreezeReason WantedFreezes() const {
    if (suspension.Holds()) return FreezeReason::kNone;
    return If(FrozenByOperator(), FreezeReason::kOperator) | If(freeze.overdrawn, FreezeReason::kMemory) |
           If(freeze.by_residency >= MemoryHold::kAlone || freeze.by_peers, FreezeReason::kMove);
  }
  // Whether its gate stays closed whatever the policy decides.
  bool MustStand() const {
    return suspension.Holds() || Any(WantedFreezes()) || freeze.by_residency != MemoryHold::kNone;
  }

  const pid_t pid;
  ProcessIdentity who;
  struct VGpu* vgpu = nullptr;  // null before it joined
  FreezeState freeze;
  SuspensionState suspension;
  WorkState work;
  SharedPage page;
  GateRecord gate;             // belongs to the time server
  MemoryUse memory;            // belongs to the memory server
  Residence residence;         // belongs to the residency server
  std::uint64_t exported = 0;  // bytes that other programs may map by IPC handles
};

}  // namespace tessera::server
