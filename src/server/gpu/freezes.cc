#include "server/gpu/freezes.h"

#include <map>
#include <utility>

#include "server/gpu/peers.h"
#include "server/record/log.h"

namespace tessera::server {

void Freezes::SetByOperator(Process& process, bool frozen, Nanos now) {
  process.freeze.by_operator = frozen;
  Apply(process, now);
}

void Freezes::SetByOperator(VGpu& vgpu, bool frozen, Nanos now) {
  if (frozen && !vgpu.spec.frozen) ++vgpu.freezes;
  vgpu.spec.frozen = frozen;
  for (Process* process : vgpu.processes) Apply(*process, now);
}

void Freezes::SetByResidency(Process& process, MemoryHold hold, Nanos now) {
  const bool changes = std::exchange(process.freeze.by_residency, hold) != hold;
  Apply(process, now);
  if (peers_ && changes) peers_->Follow(process.pid, now);
}

void Freezes::SetByPeers(Process& process, bool moved, Nanos now) {
  if (std::exchange(process.freeze.by_peers, moved) != moved) Apply(process, now);
}

void Freezes::SetOverdrawn(Process& process, bool overdrawn, Nanos now) {
  process.freeze.overdrawn = overdrawn;
  Apply(process, now);
}

void Freezes::SuspensionChanged(Process& process, Nanos now) {
  time_.ChannelsChanged(process.pid, now);
  if (process.suspension.Holds() && channels_.Available(gpu_))
    (void)channels_.Freezer().Thaw(gpu_, {&process.pid, 1}, FreezeReason::kPolicy);
  Apply(process, now);
}

void Freezes::Joining(Process& process) const {
  process.freeze.overdrawn = Has(channels_.Freezer().StatusOf(process.pid, gpu_).reasons, FreezeReason::kMemory);
}

// The reasons that its channels are frozen for may be of another vGPU, or of an earlier daemon.
void Freezes::Joined(Process& process, Nanos now) {
  if (process.FrozenByOperator() || process.freeze.overdrawn ||
      channels_.Freezer().StatusOf(process.pid, gpu_).still_since != 0)
    Apply(process, now);
  if (peers_) peers_->Follow(process.pid, now);
}

void Freezes::Left(pid_t pid, Nanos now) {
  if (peers_) peers_->Follow(pid, now);
}

void Freezes::ApplyAll(Nanos now) {
  for (VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      if (process->gate.held) Apply(*process, now);
    }
  }
}

// A program may be attached twice, also in two vGPUs: it stands still as long as one of its processes must.
FreezeReason Freezes::WantedFor(const Process& process) const {
  FreezeReason wanted = process.WantedFreezes();
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* other : vgpu->processes) {
      if (other->pid == process.pid) wanted = wanted | other->WantedFreezes();
    }
  }
  return wanted;
}

void Freezes::Apply(Process& process, Nanos now) {
  const FreezeReason wanted = WantedFor(process);
  if (channels_.Available(gpu_)) {
    for (const FreezeReason reason : {FreezeReason::kOperator, FreezeReason::kMemory, FreezeReason::kMove}) {
      const auto done = Has(wanted, reason) ? channels_.Freezer().Freeze(gpu_, {&process.pid, 1}, reason)
                                            : channels_.Freezer().Thaw(gpu_, {&process.pid, 1}, reason);
      if (!done) log::Error("process {}: {}", process.pid, done.error().Text());
    }
  }
  time_.Hold(process, now);
}

void Freezes::MindSpaces() {
  if (!channels_.Available(gpu_)) return;
  std::map<pid_t, bool> moves;  // by MPS server: whether memory of a client waits to be moved, or is
  for (const VGpu* vgpu : vgpus_) {
    const std::uint32_t space = vgpu->spec.compute.space.number;
    const pid_t server = space == 0 ? 0 : channels_.Table().ServerOf(space);
    if (server == 0) continue;
    for (const Process* process : vgpu->processes) moves[server] |= Has(process->WantedFreezes(), FreezeReason::kMove);
  }
  for (const auto& [server, wanted] : moves) {
    const FreezeReason reasons = channels_.Freezer().StatusOf(server, gpu_).reasons;
    const bool stands = Has(reasons, FreezeReason::kMove);
    if (wanted == stands || (wanted && !Has(reasons, FreezeReason::kPolicy))) continue;
    const auto done = wanted ? channels_.Freezer().Freeze(gpu_, {&server, 1}, FreezeReason::kMove)
                             : channels_.Freezer().Thaw(gpu_, {&server, 1}, FreezeReason::kMove);
    if (!done) log::Error("GPU {}: MPS server {}: {}", gpu_, server, done.error().Text());
  }
}

// A freeze is believed because it is seen: work that was submitted after it must not end as long as it lasts. It takes
// two looks, because the news of new channels may be under way, and because there are submissions that need no channel
// (of nothing, of host functions). The process itself says what has ended. A liar gains no more by that than by hiding
// a channel: it is left to tokens.
void Freezes::Check(Process& process) const {
  FreezeState& freeze = process.freeze;
  const Nanos since = channels_.Freezer().StatusOf(process.pid, gpu_).still_since;
  const Nanos reached = process.page->reached_ns.load(std::memory_order_relaxed);
  const bool went_on = since != 0 && reached > since && reached != freeze.reached_seen;
  freeze.reached_seen = reached;
  if (!std::exchange(freeze.suspect, went_on) || !went_on || freeze.evades) return;
  freeze.evades = true;
  log::WarnOf(process.who.uid,
              "GPU {}: process {} ({}) went on while its channels were frozen; not all of them are known", gpu_,
              process.pid, process.who.program);
}

}  // namespace tessera::server
