#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sched/tokens/token_scheduler.h"
#include "server/loop/event_loop.h"
#include "server/model/busy_history.h"
#include "server/model/gate_record.h"
#include "server/model/ledger.h"
#include "server/model/memory_use.h"
#include "server/model/pressure.h"
#include "server/model/residence.h"
#include "server/model/shared_page.h"
#include "server/model/standing_log.h"

namespace tessera::server {

// What a vGPU is made of: what the operator sets and state.json keeps.
struct VGpuSpec {
  std::string name;
  uid_t uid = 0;                  // who made it
  bool ephemeral = false;         // goes with its owner
  pid_t owner_pid = 0;            // of an ephemeral one
  std::uint64_t owner_start = 0;  // its start time, by which a reused pid is told apart
  bool frozen = false;            // by an operator
  MemoryTerms memory;
  sched::Shares compute;
};

// A name for what a vGPU is set to: another one as soon as that is changed, and the same again with the next daemon.
std::string TagOf(const VGpuSpec& spec);

// What a process is kept from because of where its memory lies: from nothing, from new work, or from any.
enum class MemoryHold { kNone, kGate, kFrozen };

// One program's use of one GPU. Belongs to its session.
struct Process {
  Process(SharedPage shared_page, pid_t pid) : pid(pid), page(std::move(shared_page)), gate(page, pid), memory(page) {
    memory.room = &residence.room;
  }
  const pid_t pid;
  uid_t uid = 0;
  std::string program;
  std::int64_t started_us = 0;  // wall clock
  struct VGpu* vgpu = nullptr;
  bool guest = false;    // it has no shim: started under the kernel gate, or adopted
  bool guarded = false;  // the kernel gate counts its memory
  bool frozen = false;   // by an operator, by itself
  bool worked = false;   // it used the GPU since it made its first context
  MemoryHold hold = MemoryHold::kNone;
  bool overdrawn = false;         // it has more than the kernel gate let it have, and its vGPU more than it may
  std::uint32_t excess_seen = 0;  // measurements in a row that said so
  Nanos seen_working = 0;         // a guest: when the device last said that it executed, or may have
  Nanos reached_seen = 0;         // the page's reached_ns at the last look
  Nanos refusal_noted = 0;        // when an event last told that it got no memory; 0: never
  bool suspect = false;  // at the last look it had gone on while all of its channels that are known were frozen
  bool evades = false;   // it went on while all of its channels that are known were frozen
  SharedPage page;
  GateRecord gate;
  MemoryUse memory;
  Residence residence;
  std::uint64_t exported = 0;  // bytes that other programs may map by IPC handles
};

// A named partition of a GPU. Belongs to the VGpuTable.
struct VGpu {
  VgpuId id = 0;
  std::uint32_t gpu = 0;
  VGpuSpec spec;
  std::vector<Process*> processes;
  std::uint32_t sessions = 0;  // programs that joined, with or without a process on the GPU yet
  bool removed = false;        // by force; stays until its last process is gone, because its memory does
  BusyHistory busy;
  sched::Usage usage_before;  // until another server took over its time
  Histogram waits;            // for the GPU's time
  Pressure memory_pressure;   // of its processes together: at least one waits
  StandingLog standing;
  Nanos memory_traced = 0;                           // when the trace was last told where its memory lies
  std::pair<std::uint64_t, std::uint64_t> traced{};  // what it was told
  std::uint64_t freezes = 0;                         // of all of it, by an operator
  Pressure compute_pressure;                         // it has work, and is not let on the GPU
  Moves moved_before;                                // of processes that have left
  UniqueFd owner_fd;                                 // pidfd of a living owner
  EventLoop::Watch owner_watch;
};

// Who may join a vGPU: whoever made it, root, and everybody if root made it to last.
inline bool MayJoin(const VGpuSpec& spec, uid_t uid) {
  return uid == spec.uid || uid == 0 || (spec.uid == 0 && !spec.ephemeral);
}

}  // namespace tessera::server
