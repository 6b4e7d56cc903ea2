#include "server/migration/vgpu_transfer.h"

namespace tessera::server {

// What the processes are charged, what was moved of them, and that they stand still goes with them.
Result<void> HandOver(VGpu& vgpu, GpuServer& from, GpuServer& to, Nanos now) {
  if (auto added = to.Add(vgpu, now, /*restored=*/true); !added) return added;
  const std::vector<Process*> processes = vgpu.processes;
  const Moves moved_before = vgpu.moved_before;
  for (Process* process : processes) {
    const MoveAccount moves = process->residence.moves;  // their pages go on counting
    from.TakeOff(*process, now);
    process->residence.moves = moves;
  }
  vgpu.moved_before = moved_before;
  vgpu.usage_before = from.Time().FiguresOf(vgpu, now).usage;
  from.Time().Remove(vgpu, now);
  from.Forget(vgpu);
  vgpu.gpu = to.Index();
  for (Process* process : processes) {
    process->page.SayGpu(to.Info().uuid);
    process->memory.other = 0;  // the device may say otherwise
    process->residence.room = 0;
    process->residence.stopped = process->residence.thawed = process->residence.keeps_peers = true;
    process->residence.parked = process->residence.Swapped() > 0;
    to.TakeOn(vgpu, *process, process->memory.reserved, process->memory.contexts, now);
  }
  return {};
}

Result<void> Transfer(const std::vector<VGpuTransfer>& transfers, const std::vector<std::unique_ptr<GpuServer>>& gpus,
                      Nanos now) {
  std::vector<VGpuTransfer> undo;
  for (const auto& [vgpu, to] : transfers) {
    const std::uint32_t from = vgpu->gpu;
    if (auto moved = HandOver(*vgpu, *gpus[from], *gpus[to], now); !moved) {
      // They were there a moment ago, and nothing was promised in between.
      for (const auto& [back, home] : undo) (void)HandOver(*back, *gpus[back->gpu], *gpus[home], now);
      return moved;
    }
    undo.push_back({vgpu, from});
  }
  return {};
}

}  // namespace tessera::server
