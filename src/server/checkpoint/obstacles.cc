#include "server/checkpoint/obstacles.h"

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "base/size.h"

namespace tessera::server {
namespace {

struct Kind {
  wire::PinReason reason;
  const char* what;
};
// Memory that others have too: the driver would save a copy of it, and what was common would be two.
constexpr Kind kShared[] = {
    {wire::PinReason::kExported, "memory that other programs can reach (IPC, exported handles)"},
    {wire::PinReason::kRegistered, "memory that a network card or a disk has (dma-buf, GPUDirect RDMA)"},
    {wire::PinReason::kMulticast, "memory of a multicast object (NCCL with NVLS)"},
    {wire::PinReason::kManaged, "managed memory (cudaMallocManaged)"},
};

struct Bit {
  wire::Tie tie;
  const char* what;
};
constexpr Bit kTies[] = {
    {wire::Tie::kHostMemory, "host memory by handle (cuMemCreate on a CPU's node)"},
    {wire::Tie::kImported, "memory of another program (IPC, imported handles)"},
    {wire::Tie::kExternal, "memory or semaphores of a graphics API"},
};

std::string Obstacle(const Process& process) {
  if (process.who.guest) return "it runs without Tessera's libcuda, so nobody can hold its work";
  if (process.who.guarded) return "it is behind the kernel gate";
  if (!process.vgpu->spec.space.empty()) return "it is a client of MPS (space " + process.vgpu->spec.space + ")";
  if (process.freeze.overdrawn) return "it has memory that it must not have";
  const wire::Page& page = *process.page;
  for (const Kind& kind : kShared) {
    const std::uint64_t bytes = page.pinned_by[static_cast<std::size_t>(kind.reason)].load(std::memory_order_relaxed);
    if (bytes > 0) return fmt::format("it uses {}: {}", kind.what, FormatSize(bytes));
  }
  const std::uint32_t ties = page.ties.load(std::memory_order_relaxed);
  for (const Bit& bit : kTies) {
    if (ties & static_cast<std::uint32_t>(bit.tie)) return fmt::format("it uses {}", bit.what);
  }
  if (const std::uint64_t stranded = process.residence.Stranded(); stranded > 0)
    return FormatSize(stranded) + " of its memory are in host memory that no mover has";
  return "";
}

}  // namespace

Result<void> MayLeave(pid_t pid, std::span<const Process* const> processes) {
  if (processes.empty())
    return Fail(ESRCH, fmt::format("process {} is in no vGPU, or does not use its GPU yet", pid),
                "tessera ps lists those that do");
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (const std::string why = Obstacle(*processes[i]); !why.empty())
      return Fail(ENOTSUP, fmt::format("process {} ({}) cannot leave its GPU: {}", pid, processes[i]->who.program, why),
                  "it goes on; docs/migration.md lists what can be moved");
    for (std::size_t j = 0; j < i; ++j) {
      if (processes[j]->vgpu->gpu == processes[i]->vgpu->gpu)
        return Fail(ENOTSUP, fmt::format("process {} is in two vGPUs of GPU {}", pid, processes[i]->vgpu->gpu));
    }
  }
  return {};
}

}  // namespace tessera::server
