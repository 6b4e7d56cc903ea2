#include "server/clients/kernel_gate.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "channel/rm/driver_abi.h"
#include "guard/gate/soft_boundary.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kHoldSoon = 20 * kMillisecond;  // the holder reads meanwhile
constexpr Nanos kHoldLater = 60 * kSecond;      // a holder may be started then

}  // namespace

Result<void> KernelGate::Supervise(UniqueFd listener, std::vector<VgpuId> vgpus, guard::TreeRecord::Program program) {
  auto claim = bounds_.Take(program.uid, UserBounds::Kind::kGated, UserBounds::kForGated);
  if (!claim) return std::unexpected(claim.error());
  program.vgpus = NamesOf(vgpus);
  auto record = guard::TreeRecord::Create(program);
  if (!record) return std::unexpected(record.error());
  const std::uint64_t id = ++last_tree_;
  if (auto served = Serve(id, std::move(listener), std::move(*record), std::move(vgpus), std::move(*claim)); !served)
    return served;
  HoldRest();
  log::Debug("process {} ({}) is under the kernel gate", program.pid, program.name);
  return {};
}

void KernelGate::Abandon(const VGpu& vgpu) {
  for (const auto& [id, tree] : trees_) {
    if (std::ranges::find(tree.vgpus, vgpu.id) == tree.vgpus.end()) continue;
    if (auto set = guard::TreeRecord::SetVGpus(tree.record.Get(), NamesOf(tree.vgpus, vgpu.id)); !set)
      log::Error("{}", set.error().Text());
  }
}

std::string KernelGate::NamesOf(const std::vector<VgpuId>& vgpus, VgpuId without) const {
  std::string names;
  for (const VgpuId id : vgpus) {
    const VGpu* vgpu = id == without ? nullptr : table_.Find(id);
    if (vgpu && !vgpu->removed) names += (names.empty() ? "" : ",") + vgpu->spec.name;
  }
  return names;
}

Result<void> KernelGate::Serve(std::uint64_t id, UniqueFd listener, guard::TreeRecord record, std::vector<VgpuId> vgpus,
                               UserBounds::Claim claim) {
  const uid_t uid = record.Owner().uid;
  Tree tree{.claim = {},
            .vgpus = {},
            .listener = UniqueFd(fcntl(listener.Get(), F_DUPFD_CLOEXEC, 0)),
            .record = UniqueFd(fcntl(record.Fd(), F_DUPFD_CLOEXEC, 0)),
            .supervisor = {}};
  // A thread for each program, so that a program that calls the driver without end slows down itself only.
  guard::SupervisorHooks hooks = HooksFor(id, uid);
  hooks.processes = bounds_.GatedProcesses(uid);
  auto supervisor = guard::Supervisor::Start(std::move(hooks), {}, std::move(record),
                                             soft_ ? std::make_unique<guard::SoftBoundary>() : nullptr);
  if (!supervisor) return std::unexpected(supervisor.error());
  for (const VgpuId vgpu_id : vgpus) {
    if (VGpu* vgpu = table_.Find(vgpu_id)) table_.Joined(*vgpu);
  }
  tree.claim = std::move(claim);
  tree.vgpus = std::move(vgpus);
  tree.supervisor = std::move(*supervisor);
  tree.supervisor->Add(std::move(listener));
  trees_[id] = std::move(tree);
  return {};
}

// Another holder has none of them.
void KernelGate::HoldAll() {
  for (auto& [id, tree] : trees_) tree.held = false;
  HoldRest();
}

// Gives the holder what it does not have yet; later, if it cannot take all at once, or there is none.
void KernelGate::HoldRest() {
  for (auto& [id, tree] : trees_) {
    if (tree.held) continue;
    const auto held = holder_.Hold(id, tree.listener.Get(), tree.record.Get());
    tree.held = held.has_value();
    if (held) continue;
    const bool soon = held.error().code == EAGAIN || held.error().code == ETOOMANYREFS;
    if (!soon)
      log::Warn("programs behind the kernel gate get no more memory after this daemon ends: {}", held.error().Text());
    return hold_timer_.Arm(MonotonicNow() + (soon ? kHoldSoon : kHoldLater));
  }
}

void KernelGate::TakeOver(Nanos now) {
  for (GateHolderLink::Kept& kept : holder_.Take()) {
    last_tree_ = std::max(last_tree_, kept.number);
    auto restored = Restore(kept.number, std::move(kept.listener), std::move(kept.record), now);
    if (restored) {
      trees_.at(kept.number).held = true;
      continue;
    }
    log::Warn("a program gets no more GPU memory: {}", restored.error().Text());
    holder_.Drop(kept.number);
  }
}

Result<void> KernelGate::Restore(std::uint64_t id, UniqueFd listener, UniqueFd memory, Nanos now) {
  auto record = guard::TreeRecord::Open(std::move(memory));
  if (!record) return std::unexpected(record.error());
  const auto owner = record->Owner();
  std::vector<VgpuId> vgpus = Find(owner);
  RestoreObjects(*record, vgpus, now);
  log::Info("process {} ({}) is under the kernel gate again", owner.pid, owner.name);
  // A program that was there before is not turned away.
  auto claim = bounds_.Take(owner.uid, UserBounds::Kind::kGated, UserBounds::kForGated);
  return Serve(id, std::move(listener), std::move(*record), std::move(vgpus),
               claim ? std::move(*claim) : UserBounds::Claim());
}

// Those of its vGPUs that are there, if it may (still) join them: one may be another of the same name.
std::vector<VgpuId> KernelGate::Find(const guard::TreeRecord::Program& program) const {
  std::vector<VgpuId> vgpus;
  const Caller caller = program.by_operator ? authority_.Operator() : authority_.Identify(program.uid, {});
  std::istringstream names(program.vgpus);
  for (std::string name; std::getline(names, name, ',');) {
    const VGpu* vgpu = table_.Find(name);
    if (!vgpu) continue;
    const Possession thing = PossessionOf(vgpu->spec);
    if (auto allowed = authority_.Allowed(caller, Operation::kJoinVGpu, &thing); allowed) {
      vgpus.push_back(vgpu->id);
    } else {
      log::WarnOf(program.uid, "process {} ({}) is not in vGPU {} any more: that is another user's", program.pid,
                  program.name, name);
    }
  }
  return vgpus;
}

void KernelGate::RestoreObjects(const guard::TreeRecord& record, const std::vector<VgpuId>& vgpus, Nanos now) {
  guard::MemoryObjects objects;
  record.Restore(objects);
  using Kind = channel::ObjectEvent::Kind;
  std::set<pid_t> living;  // of the others, the pid may be another program's
  for (const auto& client : record.Clients()) {
    if (!client.Lives()) continue;
    living.insert(client.process);
    OnObject(vgpus, client.process,
             {.kind = Kind::kAlloc,
              .fd = client.fd,
              .client = client.client,
              .object = client.client,
              .cls = channel::abi::kRootClient},
             now);
  }
  for (const auto& [entry, told] : record.Objects()) {
    const auto process = objects.ProcessOf(entry.client);
    if (told.cls == 0 || !process || !living.contains(*process)) continue;
    OnObject(vgpus, *process,
             {.kind = Kind::kAlloc,
              .fd = told.fd,
              .client = entry.client,
              .parent = static_cast<std::uint32_t>(entry.parent),
              .object = static_cast<std::uint32_t>(entry.handle),
              .cls = told.cls,
              .detail = told.detail},
             now);
  }
  for (const auto& payment : objects.Payments()) {
    if (!living.contains(payment.process)) continue;
    RestoreCharge(payment.process, payment.device, payment.bytes, vgpus, now);
  }
}

// What a program has, it has, whatever its limit is now.
void KernelGate::RestoreCharge(pid_t pid, std::uint32_t device, std::uint64_t bytes, const std::vector<VgpuId>& vgpus,
                               Nanos now) {
  VGpu* vgpu = PayerOf(pid, device, vgpus);
  Process* process = vgpu ? guests_.Admit(pid, vgpus, *vgpu, now) : nullptr;
  if (!process) return;
  process->who.guarded = true;
  guests_.Counts().Add(pid, device, vgpu->gpu, bytes);
  if (const auto counted = guests_.Counts().On(pid, vgpu->gpu))
    gpus_[vgpu->gpu]->Requests().CountAnyway(*process, *counted);
}

// Called on the supervisor's thread.
guard::SupervisorHooks KernelGate::HooksFor(std::uint64_t tree_id, uid_t uid) {
  guard::SupervisorHooks hooks;
  hooks.charge = [this, tree_id](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    return loop_.Call([=, this] { return OnCharge(tree_id, process, device, bytes, MonotonicNow()); });
  };
  hooks.give_back = [this](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    loop_.Post([=, this] { OnGiveBack(process, device, bytes, MonotonicNow()); });
  };
  hooks.object = [this, tree_id](pid_t process, const channel::ObjectEvent& event) {
    loop_.Post([this, tree_id, process, event] {
      const auto tree = trees_.find(tree_id);
      if (tree != trees_.end()) OnObject(tree->second.vgpus, process, event, MonotonicNow());
    });
  };
  hooks.ended = [this, tree_id](std::uint64_t) { loop_.Post([this, tree_id] { OnEnded(tree_id, MonotonicNow()); }); };
  hooks.refused = [this, uid](pid_t process, const std::string& what) {
    loop_.Post([process, uid, what] { log::WarnOf(uid, "process {}: {} was refused", process, what); });
  };
  hooks.unknown = [this, uid](pid_t process, const std::string& what) {
    loop_.Post([process, uid, what] {
      log::WarnOf(uid, "process {}: {} is of a newer driver than this version of Tessera knows; it passed uncounted",
                  process, what);
    });
  };
  return hooks;
}

void KernelGate::OnObject(const std::vector<VgpuId>& vgpus, pid_t pid, const channel::ObjectEvent& event, Nanos now) {
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
  holder_.Drop(tree_id);
  for (const VgpuId id : vgpus) {
    const VGpu* vgpu = table_.Find(id);
    if (vgpu && vgpu->joined == 1) guests_.Dismiss(*vgpu, now);
    table_.Left(id, now);
  }
}

}  // namespace tessera::server
