#include "server/gpu/measurement.h"

#include <algorithm>
#include <utility>

#include "base/size.h"
#include "server/model/process_facts.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/swap/chunks.h"

namespace tessera::server {
namespace {

// A program without a shim counts as idle after so long without a sample of work, as does one whose channels are not
// known. Samples of a program that works have gaps.
constexpr Nanos kGuestIdle = 2 * kSecond;
// How long the device may still list a program that has ended: a driver takes about a second to free 100 GiB.
constexpr Nanos kLeavesFor = 5 * kSecond;

// Whether it tells of work that only the device can confirm.
bool Claims(const Process& process) {
  return !process.gate.stop.Freezes() && process.gate.state != GateRecord::State::kParked;
}

}  // namespace

Measurement::Measurement(std::uint32_t gpu, const std::vector<VGpu*>& vgpus, ChannelServer& channels,
                         MemoryServer& memory, TimeControl& time, Freezes& freezes, const Placement& placement)
    : gpu_(gpu),
      vgpus_(vgpus),
      channels_(channels),
      memory_(memory),
      time_(time),
      freezes_(freezes),
      placement_(placement) {}

void Measurement::Begin() {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) process->memory.BeginMeasurement();
  }
}

void Measurement::Reconcile(const DeviceUse& measured, Nanos now) {
  std::uint64_t managed = 0;
  const auto unmanaged_before = std::exchange(unmanaged_by_process_, measured.by_process);
  if (placement_.Swaps()) {  // the mover is the daemon's own
    const auto mover = unmanaged_by_process_.extract(placement_.Residency().MoverPid());
    if (mover) managed += mover.mapped();
  }
  const bool watches = NeedsWatching();
  samples_ = measured.worked.has_value();
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      const auto found = measured.by_process.find(process->pid);
      const bool listed = found != measured.by_process.end();
      if (listed) {
        managed += found->second;
        unmanaged_by_process_.erase(process->pid);
        memory_.Reconcile(process->memory, found->second);
      }
      freezes_.Check(*process);
      if (process->who.guarded) CheckMemory(*process, listed, now);
      // A guest that keeps nobody waiting is not looked at often. It counts as active there, so that its limit holds at
      // any time.
      if (process->who.guest && channels_.Knows(process->pid, gpu_))
        CheckWork(*process, !watches || !samples_ || measured.worked->contains(process->pid), now);
      if (!process->gate.stop.Freezes())
        CheckClaim(*process, !samples_ || measured.worked->contains(process->pid), now);
    }
  }
  std::erase_if(left_, [now](const auto& each) { return now - each.second > kLeavesFor; });
  for (const auto& [pid, _] : left_) {
    if (const auto its = unmanaged_by_process_.extract(pid)) managed += its.mapped();
  }
  unmanaged_ =
      Less(measured.used, managed + (placement_.Swaps() ? placement_.Left().Bytes(/*also_taken_again=*/true) : 0));
  for (const auto& [pid, bytes] : unmanaged_by_process_) {
    if (unmanaged_before.contains(pid)) continue;
    if (const auto user = OwnerOf(pid); user)  // else it has ended
      events::Note({.type = EventType::kProcessUnmanaged,
                    .gpu = gpu_,
                    .pid = pid,
                    .user = user,
                    .text = "it has " + FormatSize(bytes)});
  }
  time_.Choose(now);
}

void Measurement::Joined(const Process& process) {
  const auto its = unmanaged_by_process_.extract(process.pid);
  if (its) unmanaged_ = Less(unmanaged_, its.mapped());
}

void Measurement::LimitChanged(const VGpu& vgpu, Nanos now) {
  for (Process* process : vgpu.processes) {
    if (process->freeze.overdrawn) CheckMemory(*process, true, now);
  }
}

// A thread that races the kernel gate may get memory past it. That is charged like all memory, and where the vGPU has
// too much by it, the program stops until that is no longer so: an operator raises memory.max, or ends it.
void Measurement::CheckMemory(Process& process, bool listed, Nanos now) {
  // It takes two measurements in a row: memory that is freed while the device is asked is still in its answer. A
  // process that the device does not list has nothing.
  using Excess = MemoryServer::Excess;
  const Excess excess = listed ? memory_.ExcessOf(process.memory) : Excess::kNone;
  std::uint32_t& excess_seen = process.work.excess_seen;
  excess_seen = excess == Excess::kNone ? 0 : excess_seen + 1;
  // A limit that was lowered below the memory which the gate granted leaves the verdict as it was.
  const bool overdrawn = excess_seen >= 2 && (process.freeze.overdrawn || excess == Excess::kStolen);
  if (overdrawn == process.freeze.overdrawn) return;
  if (overdrawn) {
    log::Error("process {} ({}) has {}, more than the kernel gate granted, so that vGPU {} exceeds its {}; {}",
               process.pid, process.who.program, FormatSize(process.memory.measured.value_or(0)),
               process.vgpu->spec.name, FormatSize(memory_.FiguresOf(process.vgpu->id).max),
               channels_.Available(gpu_) ? "it is frozen until memory.max allows that, or it ends"
                                         : "it cannot be frozen: " + channels_.Why(gpu_));
  }
  freezes_.SetOverdrawn(process, overdrawn, now);
}

// A process whose channels are not known says what it likes of its work. The device's samples, which have gaps, show
// whether there is any.
void Measurement::CheckClaim(Process& process, bool worked, Nanos now) {
  if (worked) process.work.seen_at = now;
  const bool lately = process.work.seen_at != 0 && now - process.work.seen_at <= kGuestIdle;
  time_.Sampled(process, lately, process.work.seen_at, now);
}

// A guest does not report its work. The device's samples show it, a second or two late.
void Measurement::CheckWork(Process& process, bool worked, Nanos now) {
  const GateRecord::State state = process.gate.state;
  const bool frozen = Any(channels_.Freezer().StatusOf(process.pid, gpu_).reasons);
  if (worked || frozen || process.work.seen_at == 0) {
    process.work.seen_at = now;
    // A frozen guest may have work: nobody can know.
    if ((worked || frozen) && state == GateRecord::State::kParked) time_.Sampled(process, true, now, now);
  } else if (state == GateRecord::State::kRunning && now - process.work.seen_at > kGuestIdle) {
    time_.Sampled(process, false, process.work.seen_at, now);
  }
}

bool Measurement::NeedsWatching() const {
  std::uint32_t highest_guest = UINT32_MAX, lowest = 0;
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* process : vgpu->processes) {
      if (process->freeze.suspect && !process->freeze.evades) return true;
      if (FreezesChannels(time_.Ways().Present()) && Claims(*process)) return true;
      if (vgpu->removed) continue;
      if (process->who.guest) highest_guest = std::min(highest_guest, vgpu->spec.compute.priority);
      lowest = std::max(lowest, vgpu->spec.compute.priority);
    }
  }
  return FreezesChannels(time_.Ways().Present()) && samples_ && highest_guest < lowest;
}

}  // namespace tessera::server
