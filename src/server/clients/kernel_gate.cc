#include "server/clients/kernel_gate.h"

#include <utility>

#include "channel/rm/driver_abi.h"
#include "server/record/log.h"

namespace tessera::server {

Result<void> KernelGate::Supervise(UniqueFd listener, std::vector<VgpuId> vgpus, const ucred& peer,
                                   const std::string& program) {
  auto claim = bounds_.Take(peer.uid, UserBounds::Kind::kGated, UserBounds::kForGated);
  if (!claim) return std::unexpected(claim.error());
  const std::uint64_t id = ++last_tree_;
  // A thread for each program, so that a program that calls the driver without end slows down itself only.
  guard::SupervisorHooks hooks = HooksFor(id);
  hooks.processes = bounds_.GatedProcesses(peer.uid);
  auto supervisor = guard::Supervisor::Start(std::move(hooks), {});
  if (!supervisor) return std::unexpected(supervisor.error());
  (*supervisor)->Add(std::move(listener));
  for (const VgpuId vgpu_id : vgpus) {
    if (VGpu* vgpu = table_.Find(vgpu_id)) table_.Joined(*vgpu);
  }
  log::Debug("process {} ({}) is under the kernel gate", peer.pid, program);
  trees_[id] = {std::move(*claim), std::move(vgpus), std::move(*supervisor)};
  return {};
}

// Called on the supervisor's thread.
guard::SupervisorHooks KernelGate::HooksFor(std::uint64_t tree_id) {
  guard::SupervisorHooks hooks;
  hooks.charge = [this, tree_id](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    return loop_.Call([=, this] { return OnCharge(tree_id, process, device, bytes, MonotonicNow()); }).value_or(false);
  };
  hooks.give_back = [this](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    loop_.Post([=, this] { OnGiveBack(process, device, bytes, MonotonicNow()); });
  };
  hooks.object = [this, tree_id](pid_t process, const channel::ObjectEvent& event) {
    loop_.Post([this, tree_id, process, event] { OnObject(tree_id, process, event, MonotonicNow()); });
  };
  hooks.ended = [this, tree_id](std::uint64_t) { loop_.Post([this, tree_id] { OnEnded(tree_id, MonotonicNow()); }); };
  hooks.refused = [this](pid_t process, const std::string& what) {
    loop_.Post([process, what] { log::Warn("process {}: {} was refused", process, what); });
  };
  return hooks;
}

void KernelGate::OnObject(std::uint64_t tree_id, pid_t pid, const channel::ObjectEvent& event, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  const std::vector<VgpuId>& vgpus = tree->second.vgpus;
  if (!guests_.Observe(pid, vgpus, event, now)) return;
  if (event.kind != channel::ObjectEvent::Kind::kAlloc || event.cls != channel::abi::kDevice) return;
  // From its first device on, the driver's figures of the process are measured against what the gate granted, also if
  // that is nothing.
  for (const VgpuId id : vgpus) {
    VGpu* vgpu = table_.Find(id);
    if (!vgpu || vgpu->removed || !channels_.Table().IsDevice(vgpu->gpu, event.detail)) continue;
    if (Process* process = guests_.Admit(pid, vgpus, *vgpu, now)) process->who.guarded = true;
  }
}

// The vGPU on whose GPU the memory is. The first, where that is none of them, or not known.
VGpu* KernelGate::PayerOf(pid_t pid, std::uint32_t device, const std::vector<VgpuId>& vgpus) const {
  const auto charged = guests_.Counts().GpuOf(pid, device);
  VGpu* first = nullptr;
  for (const VgpuId id : vgpus) {
    VGpu* vgpu = table_.Find(id);
    if (!vgpu || vgpu->removed) continue;
    if (charged ? vgpu->gpu == *charged : channels_.Table().IsDevice(vgpu->gpu, device)) return vgpu;
    if (!first) first = vgpu;
  }
  return charged ? nullptr : first;
}

bool KernelGate::OnCharge(std::uint64_t tree_id, pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return false;
  VGpu* vgpu = PayerOf(pid, device, tree->second.vgpus);
  if (!vgpu) return false;
  MemoryRequests& requests = gpus_[vgpu->gpu]->Requests();
  requests.Collect(*vgpu, bytes, now);  // before any look-up: it may end any program's session
  Process* process = guests_.Admit(pid, tree->second.vgpus, *vgpu, now);
  // A program that attached to another vGPU by itself still pays here, and cannot.
  if (!process || process->vgpu != vgpu) return false;
  GateCounts& counts = guests_.Counts();
  if (!requests.Count(*process, counts.On(pid, vgpu->gpu).value_or(0) + bytes, now)) return false;
  process->who.guarded = true;
  counts.Add(pid, device, vgpu->gpu, bytes);
  return true;
}

void KernelGate::OnGiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now) {
  GateCounts& counts = guests_.Counts();
  const auto gpu = counts.GpuOf(pid, device);
  if (!gpu) return;
  counts.Take(pid, device, bytes);
  if (Process* process = guests_.Find(pid, *gpu); process && process->who.guarded)
    (void)gpus_[*gpu]->Requests().Count(*process, counts.On(pid, *gpu).value_or(0), now);  // less: cannot fail
}

void KernelGate::OnEnded(std::uint64_t tree_id, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  const auto vgpus = std::move(tree->second.vgpus);
  trees_.erase(tree);
  for (const VgpuId id : vgpus) table_.Left(id, now);
}

}  // namespace tessera::server
