#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "server/gpu/gpu_server.h"
#include "server/gpu/vgpu_table.h"
#include "server/handover/slots_ahead.h"

namespace tessera::server {

// The ways from GPU to GPU of the memory of the programs of one migration. A program's memory goes directly where the
// new GPU reaches the old one and has room for all of it at once: it stays where it is until the program is on the new
// GPU, which copies it then, and the new GPU's room is held for it. Else it goes through host memory. Either way the
// new GPU's mover hears before of what comes. On the loop's thread.
class DirectWays {
 public:
  // GPUs, from and to, where the second one turned out not to reach the first one's memory, though the driver says so.
  using Unreachable = std::set<std::pair<std::uint32_t, std::uint32_t>>;

  DirectWays() = default;
  ~DirectWays();
  DirectWays(const DirectWays&) = delete;

  // Begins, once, for each of these processes whose vGPU goes to another GPU, if both movers are there. Of a program on
  // several GPUs, or one that is suspended, nothing moves. The GPUs outlive the object.
  void Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
            const std::function<std::uint32_t(VgpuId)>& target, const Unreachable& unreachable);
  // The new GPU's movers have mapped what may come.
  bool Settled() const;
  // The program's memory goes directly.
  bool Has(pid_t pid) const;
  bool Any() const;
  // All is away: room is held for what goes directly only, and the movers hear of nothing more.
  void Close(const std::vector<Process*>& processes);
  // They are there, or are to go on where they were: what was left in place is their own as soon as they are back.
  void Arrived(const std::vector<Process*>& processes) const;

 private:
  struct Way {
    pid_t pid = 0;
    GpuServer* to = nullptr;
    bool direct = false;
    std::unique_ptr<SlotsAhead> ahead;
  };
  void Open(const Process& process, GpuServer& from, GpuServer& to, const Unreachable& unreachable);

  std::list<Way> ways_;
  bool opened_ = false;
};

}  // namespace tessera::server
