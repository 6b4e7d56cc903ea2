#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <utility>
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

  // Begins, once, with each of these processes whose vGPU goes to another GPU, if both movers are there, and that GPU
  // has room for all of the program's memory at once without moving anybody else's. Of a program on several GPUs, or
  // one that is suspended, nothing moves. The GPUs outlive the object.
  void Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
            const std::function<std::uint32_t(VgpuId)>& target);
  // All are as open as they will be.
  bool Settled() const;
  // Nothing more goes that way: movers give up what was not used, and room is held for what was used only.
  void Close(const std::vector<Process*>& processes);
  // Of memory that can go that way, or could.
  std::uint64_t Bytes() const;
  // They are there, or are to go on where they were: what went directly is their own as soon as they are back.
  void Arrived(const std::vector<Process*>& processes) const;

 private:
  void Open(const Process& process, GpuServer& from, GpuServer& to);
  struct Way {
    Way(const Process& process, GpuServer& target, const SlotHandover::Side& first, const SlotHandover::Side& second,
        std::uint64_t bytes)
        : pid(process.pid), to(target), way(std::in_place, first, second, pid, bytes) {}
    // As long as it is open; `bytes` after that.
    std::uint64_t Bytes() const { return way ? way->Bytes() : bytes; }
    pid_t pid;
    GpuServer& to;
    std::optional<DirectWay> way;
    std::uint64_t bytes = 0;
  };
  std::list<Way> ways_;
  bool opened_ = false;
};

}  // namespace tessera::server
