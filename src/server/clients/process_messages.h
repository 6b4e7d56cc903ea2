#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/clients/replies.h"
#include "server/gpu/vgpu_table.h"
#include "server/memory/exports.h"
#include "wire/protocol.h"

namespace tessera::server {

// Acts on the messages of a program about the GPUs that it is attached to: work, memory, room, IPC exports.
class ProcessMessages {
 public:
  // By GPU; null until the program attached to it.
  using Processes = std::vector<std::unique_ptr<Process>>;
  // By GPU: the vGPU that the program joined there; 0: none.
  using Joined = std::vector<VgpuId>;

  // `session` and `uid` are by whom exports are known. `called` is told of programs that are away and call, unless it
  // is empty. Everything that is given outlives the object.
  ProcessMessages(std::uint64_t session, uid_t uid, const Processes& processes, const Joined& joined,
                  VGpuTable::Gpus& gpus, Exports& exports, const Replies& replies,
                  const std::function<void(pid_t, Nanos)>& called)
      : session_(session),
        uid_(uid),
        processes_(processes),
        joined_(joined),
        gpus_(gpus),
        exports_(exports),
        replies_(replies),
        called_(called) {}

  // `received`: the descriptors that came with the packet.
  Complaint Act(const wire::Header& header, std::span<const std::byte> packet, std::span<UniqueFd> received, Nanos now);

 private:
  Complaint ActOnMemory(Process& process, const wire::Header& header, std::span<const std::byte> packet, Nanos now);
  Complaint Reserve(Process& process, std::uint64_t bytes, Nanos now);
  Complaint Blank(Process& process, std::uint64_t bytes, Nanos now);
  Complaint Context(Process& process, std::int32_t delta, Nanos now);
  Complaint Room(Process& process, const wire::Room& room, Nanos now);
  Complaint Line(Process& process, Nanos now);
  Complaint Export(Process& process, const wire::Export& part, std::span<UniqueFd> received);
  Complaint Unexport(Process& process, const wire::Unexport& unexport);
  Complaint Import(const wire::Import& import);
  GpuServer& Gpu(const Process& process) const { return *gpus_[process.vgpu->gpu]; }

  const std::uint64_t session_;
  const uid_t uid_;
  const Processes& processes_;
  const Joined& joined_;
  VGpuTable::Gpus& gpus_;
  Exports& exports_;
  const Replies& replies_;
  const std::function<void(pid_t, Nanos)>& called_;
};

}  // namespace tessera::server
