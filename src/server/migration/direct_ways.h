#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "server/gpu/gpu_server.h"
#include "server/gpu/vgpu_table.h"
#include "server/handover/direct_way.h"

namespace tessera::server {

// The direct ways from GPU to GPU of the programs of one migration, and the room on the new GPUs that their memory has
// until it is theirs. On the loop's thread.
class DirectWays {
 public:
  DirectWays() = default;
  ~DirectWays();
  DirectWays(const DirectWays&) = delete;

  // Begins with each of these processes whose vGPU goes to another GPU, if both movers are there, and that GPU has room
  // for all of the program's memory at once without moving anybody else's. Of a program on several GPUs, or one that is
  // suspended, nothing moves. The GPUs outlive the object.
  void Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
            const std::function<std::uint32_t(VgpuId)>& target);
  // All are as open as they will be.
  bool Settled() const;
  // Of memory that can go that way.
  std::uint64_t Bytes() const;
  // It is there, its memory with it: what came directly is the program's own as soon as it is back.
  void Arrived(Process& process) const;

 private:
  void Open(const Process& process, GpuServer& from, GpuServer& to);
  struct Way {
    Way(const Process& process, GpuServer& target, const SlotHandover::Side& first, const SlotHandover::Side& second,
        std::uint64_t bytes)
        : pid(process.pid), to(target), way(first, second, pid, bytes) {}
    pid_t pid;
    GpuServer& to;
    DirectWay way;
  };
  std::list<Way> ways_;
};

}  // namespace tessera::server
