#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/gpu/gpu_server.h"
#include "server/record/events.h"
#include "wire/checkpoint.h"

namespace tessera::server {

// The parts of one program that goes off its GPUs, or comes back: its processes in vGPUs, one on each GPU that it uses,
// and what it has there. On the loop's thread.
class ProgramParts {
 public:
  // The GPUs outlive the object.
  ProgramParts(pid_t pid, const std::vector<std::unique_ptr<GpuServer>>& gpus) : pid_(pid), gpus_(gpus) {}

  // Calls visit(GpuServer&, Process&) for each.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& gpu : gpus_) {
      for (const VGpu* vgpu : gpu->VGpus()) {
        for (Process* process : vgpu->processes) {
          if (process->pid == pid_) visit(*gpu, *process);
        }
      }
    }
  }
  // Whether there is any: without one the program has ended.
  bool Any() const;

  // An event of this type for each; `text` goes on after the program's name.
  void Note(EventType type, const std::string& text) const;
  // SuspensionState::error of all; empty: nothing has failed.
  void SetError(const std::string& error) const;
  // Says to the program's threads, and its next daemon, that it is away from its GPUs, and whether by itself.
  // `returns`: and is to come back; none: that it is not away.
  void SayAway(std::optional<bool> returns) const;

  // SuspensionState::by_itself of all, of which the pages and the next daemon are told as well. And whether any is so.
  void SetByItself(bool by_itself) const;
  bool ByItself() const;

  // Whether nothing of it can execute: what it had queued has ended, or its channels are frozen.
  bool Still() const;
  // Whether no thread of Tessera's in it is in the driver, and calls of its own are watched.
  bool Quiet() const;
  // Whether it holds host memory of the pool, which the driver could not restore.
  bool HoldHostMemory() const;
  // Whether all that can be moved has gone out, and the program holds nothing of it.
  bool HaveLeft() const;
  // Whether memory of it lies where it left it, on its way to host memory (wire::MoverType::kRelocate). Asks for that
  // if `asks`.
  bool Relocates(bool asks) const;
  // Nothing of the program is on its GPUs any more: notes the room of those that are not yet absent, contexts included,
  // and gives it up. Where memory is not swapped, the ledger keeps it for them.
  void GiveUpRoom() const;
  // The same of one, on its GPU, which swaps.
  static void GiveUpRoom(Process& process);
  // The same of those that are not in this phase, because they came later. Whether there are any.
  bool GiveUpRoomOfLate(SuspensionPhase phase) const;
  // It does not return now, for this reason: likewise, and nothing of it is to stay in place.
  void StayAway(const std::string& error) const;
  // Takes that room again; false: some of it has to be waited for, ask again within 2 s. ENOMEM: a GPU has none.
  Result<bool> TakeRoomBack(Nanos now) const;

  // The program runs again: what it has in host memory, or in slots of its GPU's, follows it.
  void HaveReturned() const;
  // From which GPU to which the driver is to bring them. Empty if all go back to where they were saved; else a
  // permutation of all GPUs, in which one that others come to goes to one that comes free.
  std::vector<wire::GpuPair> Pairs() const;

 private:
  const pid_t pid_;
  const std::vector<std::unique_ptr<GpuServer>>& gpus_;
};

}  // namespace tessera::server
