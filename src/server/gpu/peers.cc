#include "server/gpu/peers.h"

#include "server/gpu/gpu_server.h"
#include "server/swap/residency_snapshot.h"

namespace tessera::server {
namespace {

// Whether its peers must not reach its memory.
bool Keeps(const Process& process) {
  const MemoryHold hold = process.freeze.by_residency;
  return hold == MemoryHold::kFrozen || hold == MemoryHold::kAway;
}

}  // namespace

// A guest has no memory that is moved, and no shim that would let it reach another's.
template <typename Visit>
void Peers::ForEach(pid_t pid, Visit visit) const {
  for (GpuServer* gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (Process* process : vgpu->processes) {
        if (process->pid == pid && !process->who.guest) visit(*gpu, *process);
      }
    }
  }
}

void Peers::Add(GpuServer& gpu) {
  gpus_.push_back(&gpu);
  gpu.Freezes().Heed(*this);
  gpu.Placement().Heed(*this);
}

void Peers::Follow(pid_t pid, Nanos now) {
  if (gpus_.size() < 2) return;
  ForEach(pid, [&](GpuServer& gpu, Process& process) {
    bool moves = false;  // memory of the program on another GPU
    ForEach(pid, [&](const GpuServer& other, const Process& peer) { moves |= &other != &gpu && Keeps(peer); });
    gpu.Freezes().SetByPeers(process, moves, now);
  });
}

PeerWork Peers::WorkOf(const Process& process) const {
  PeerWork work;
  if (gpus_.size() < 2) return work;
  ForEach(process.pid, [&](const GpuServer&, const Process& peer) {
    if (peer.vgpu->gpu == process.vgpu->gpu) return;
    work.any = true;
    work.work |= HasWork(peer);
  });
  return work;
}

bool Peers::StandStill(const Process& process) const {
  bool still = true;
  if (gpus_.size() < 2) return still;
  ForEach(process.pid, [&](GpuServer& gpu, const Process& peer) {
    if (gpu.Index() != process.vgpu->gpu) still &= peer.gate.held && gpu.Placement().Still(peer);
  });
  return still;
}

}  // namespace tessera::server
