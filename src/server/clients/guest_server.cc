#include "server/clients/guest_server.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <ranges>

#include "server/model/process_start.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

std::string NameOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

uid_t OwnerOf(pid_t pid) {
  struct stat status{};
  return stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 ? status.st_uid : 0;
}

}  // namespace

GuestServer::GuestServer(EventLoop& loop, VGpuTable& table, VGpuTable::Gpus& gpus, ChannelServer& channels,
                         std::function<void()> on_change)
    : loop_(loop), table_(table), gpus_(gpus), channels_(channels), on_change_(std::move(on_change)) {}

GuestServer::~GuestServer() {
  trees_.clear();
  while (!guests_.empty()) {
    Guest& guest = guests_.begin()->second;
    for (auto& [gpu, process] : guest.processes) gpus_[gpu]->Leave(*process, MonotonicNow());
    guests_.erase(guests_.begin());
  }
}

// ---- the watch ----

void GuestServer::StartWatch() {
  auto watch = guard::Watch::Start([this](const guard::WatchEvent& event) { OnWatch(event, MonotonicNow()); });
  if (!watch) {
    why_no_watch_ = watch.error().Text();
    log::Info("programs that were not started through Tessera are not seen: {}", why_no_watch_);
    return;
  }
  watch_ = std::move(*watch);
  auto readable = loop_.WatchReadable(watch_->Fd(), [this] { watch_->Read(); });
  if (!readable) {
    why_no_watch_ = readable.error().Text();
    watch_.reset();
    return;
  }
  watch_watch_ = std::move(*readable);
  why_no_watch_.clear();
}

void GuestServer::OnWatch(const guard::WatchEvent& event, Nanos now) {
  watched_.Apply(event);
  using Kind = guard::WatchEvent::Kind;
  if (event.kind == Kind::kExit) {
    if (!Managed(event.pid)) {
      channels_.Forget(event.pid);
      if (frozen_.erase(event.pid) > 0) on_change_();
    }
    return;
  }
  if (event.pid == 0 || (event.kind != Kind::kAlloc && event.kind != Kind::kFree)) return;
  const channel::ObjectEvent object{
      .kind = event.kind == Kind::kAlloc ? channel::ObjectEvent::Kind::kAlloc : channel::ObjectEvent::Kind::kFree,
      .fd = event.fd,
      .client = event.client,
      .parent = event.parent,
      .object = event.object,
      .cls = event.cls,
      .detail = event.detail};
  channels_.Observe(event.pid, object, ChannelServer::Source::kWatch, now);
  if (const auto guest = guests_.find(event.pid); guest != guests_.end()) Settle(event.pid, guest->second, now);
}

bool GuestServer::Complete(pid_t pid) const {
  const guard::WatchedProcess* process = watched_.Find(pid);
  return !process || process->complete;
}

// ---- the kernel gate ----

Result<void> GuestServer::Supervise(UniqueFd listener, std::vector<VgpuId> vgpus, pid_t pid,
                                    const std::string& program) {
  const std::uint64_t id = ++last_tree_;
  guard::SupervisorHooks hooks;
  hooks.charge = [this, id](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    return loop_.Call([=, this] { return OnCharge(id, process, device, bytes, MonotonicNow()); }).value_or(false);
  };
  hooks.give_back = [this](pid_t process, std::uint32_t device, std::uint64_t bytes) {
    loop_.Post([=, this] { OnGiveBack(process, device, bytes, MonotonicNow()); });
  };
  hooks.object = [this, id](pid_t process, const channel::ObjectEvent& event) {
    loop_.Post([this, id, process, event] { OnObject(id, process, event, MonotonicNow()); });
  };
  hooks.ended = [this, id](std::uint64_t) { loop_.Post([this, id] { OnTreeEnded(id, MonotonicNow()); }); };
  hooks.refused = [this](pid_t process, const std::string& what) {
    loop_.Post([process, what] { log::Warn("process {}: {} was refused", process, what); });
  };
  // A thread for each program, so that one that calls the driver without end is slow itself, and nobody else.
  auto supervisor = guard::Supervisor::Start(std::move(hooks), {});
  if (!supervisor) return std::unexpected(supervisor.error());
  (*supervisor)->Add(std::move(listener));
  for (const VgpuId vgpu_id : vgpus) {
    if (VGpu* vgpu = table_.Find(vgpu_id)) table_.Joined(*vgpu);
  }
  log::Debug("process {} ({}) is under the kernel gate", pid, program);
  trees_[id] = {std::move(vgpus), std::move(*supervisor)};
  return {};
}

void GuestServer::OnObject(std::uint64_t tree_id, pid_t pid, const channel::ObjectEvent& event, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  auto guest = Know(pid, tree->second.vgpus);
  if (!guest) return;  // it has ended, and what it had was forgotten
  channels_.Observe(pid, event, ChannelServer::Source::kGuard, now);
  Settle(pid, **guest, now);
  if (event.kind != channel::ObjectEvent::Kind::kAlloc || event.cls != channel::abi::kDevice) return;
  // From its first device on, what the driver says that it has is measured against what the gate granted, also if that
  // is nothing.
  for (const VgpuId id : tree->second.vgpus) {
    VGpu* vgpu = table_.Find(id);
    if (!vgpu || vgpu->removed || !channels_.Table().IsDevice(vgpu->gpu, event.detail)) continue;
    Process* process = Find(pid, vgpu->gpu);
    if (!process) process = Join(pid, **guest, *vgpu, now);
    if (process) process->who.guarded = true;
  }
}

// The vGPU on whose GPU the memory is. The first, where that is none of them, or not known.
VGpu* GuestServer::PayerOf(pid_t pid, std::uint32_t device, const std::vector<VgpuId>& vgpus) const {
  const auto charged = counted_.GpuOf(pid, device);
  VGpu* first = nullptr;
  for (const VgpuId id : vgpus) {
    VGpu* vgpu = table_.Find(id);
    if (!vgpu || vgpu->removed) continue;
    if (charged ? vgpu->gpu == *charged : channels_.Table().IsDevice(vgpu->gpu, device)) return vgpu;
    if (!first) first = vgpu;
  }
  return charged ? nullptr : first;
}

bool GuestServer::OnCharge(std::uint64_t tree_id, pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return false;
  VGpu* vgpu = PayerOf(pid, device, tree->second.vgpus);
  if (!vgpu) return false;
  gpus_[vgpu->gpu]->Requests().Collect(*vgpu, bytes,
                                       now);  // before anything is looked up: it may end any program's session
  Process* process = Find(pid, vgpu->gpu);
  if (!process) {
    auto guest = Know(pid, tree->second.vgpus);
    if (guest) process = Join(pid, **guest, *vgpu, now);
  }
  // A program that attached to another vGPU by itself still pays here, and cannot.
  if (!process || process->vgpu != vgpu) return false;
  if (!gpus_[vgpu->gpu]->Requests().Count(*process, counted_.On(pid, vgpu->gpu).value_or(0) + bytes, now)) return false;
  process->who.guarded = true;
  counted_.Add(pid, device, vgpu->gpu, bytes);
  return true;
}

void GuestServer::OnGiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now) {
  const auto gpu = counted_.GpuOf(pid, device);
  if (!gpu) return;
  counted_.Take(pid, device, bytes);
  if (Process* process = Find(pid, *gpu); process && process->who.guarded)
    (void)gpus_[*gpu]->Requests().Count(*process, counted_.On(pid, *gpu).value_or(0), now);  // less: cannot fail
}

void GuestServer::OnTreeEnded(std::uint64_t tree_id, Nanos now) {
  const auto tree = trees_.find(tree_id);
  if (tree == trees_.end()) return;
  const auto vgpus = std::move(tree->second.vgpus);
  trees_.erase(tree);
  for (const VgpuId id : vgpus) table_.Left(id, now);
}

// ---- guests ----

Result<GuestServer::Guest*> GuestServer::Know(pid_t pid, const std::vector<VgpuId>& vgpus) {
  const auto known = guests_.find(pid);
  if (known != guests_.end()) return &known->second;
  Guest guest{.name = NameOf(pid), .vgpus = vgpus};
  guest.fd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!guest.fd) return FailErrno(fmt::format("process {}", pid));
  auto watch =
      loop_.WatchReadable(guest.fd.Get(), [this, pid] { loop_.Post([this, pid] { Ended(pid, MonotonicNow()); }); });
  if (!watch) return std::unexpected(watch.error());
  guest.watch = std::move(*watch);
  return &guests_.emplace(pid, std::move(guest)).first->second;
}

// Gives the guest a process on each GPU of its vGPUs that it has channels on and no shim for.
void GuestServer::Settle(pid_t pid, Guest& guest, Nanos now) {
  for (const VgpuId id : guest.vgpus) {
    VGpu* vgpu = table_.Find(id);
    if (!vgpu || vgpu->removed || !channels_.Knows(pid, vgpu->gpu)) continue;
    Process* process = Find(pid, vgpu->gpu);
    if (!process) {
      Join(pid, guest, *vgpu, now);
    } else if (process->who.guest && process->gate.state == GateRecord::State::kParked) {
      gpus_[vgpu->gpu]->Time().Wants(*process, false,
                                     now);  // its memory came before its channels, or it makes new ones
    }
  }
}

// It may have work at any time and says nothing of it: it counts as active until the device says otherwise.
Process* GuestServer::Join(pid_t pid, Guest& guest, VGpu& vgpu, Nanos now) {
  auto page = SharedPage::Create(vgpu.gpu);
  if (!page) {
    log::Warn("process {} is not in vGPU {}: {}", pid, vgpu.spec.name, page.error().Text());
    return nullptr;
  }
  auto process = std::make_unique<Process>(std::move(*page), pid);
  process->who.uid = OwnerOf(pid);
  process->who.program = guest.name;
  process->who.guest = true;
  process->gate.ungated = true;
  Process* joined = process.get();
  guest.processes[vgpu.gpu] = std::move(process);
  joined->freeze.by_operator = WasFrozen(pid);  // it may have been there with a shim until now
  GpuServer& gpu = *gpus_[vgpu.gpu];
  gpu.Join(vgpu, *joined, 0, 0, now);
  Recount(*joined);
  if (channels_.Knows(pid, vgpu.gpu)) gpu.Time().Wants(*joined, false, now);
  return joined;
}

void GuestServer::Attached(Process& process, Nanos now) {
  const auto found = guests_.find(process.pid);
  if (found != guests_.end()) {
    auto& processes = found->second.processes;
    const auto guest = processes.find(process.vgpu->gpu);
    if (guest != processes.end() && guest->second.get() != &process) {
      gpus_[process.vgpu->gpu]->Leave(*guest->second, now);
      processes.erase(guest);
    }
  }
  Recount(process);
  if (WasFrozen(process.pid)) gpus_[process.vgpu->gpu]->Freezes().SetByOperator(process, true, now);
}

// What the kernel gate counted of a program stays counted, whoever speaks for it now.
void GuestServer::Recount(Process& process) {
  const auto counted = counted_.On(process.pid, process.vgpu->gpu);
  if (!counted) return;
  process.who.guarded = true;
  gpus_[process.vgpu->gpu]->Requests().CountAnyway(process, *counted);
}

bool GuestServer::WasFrozen(pid_t pid) const {
  const auto found = frozen_.find(pid);
  if (found == frozen_.end()) return false;
  const auto start = ProcessStart(pid);
  return start && *start == found->second;
}

void GuestServer::Closing(const Process& process) {
  std::erase_if(frozen_, [&](const auto& entry) { return !WasFrozen(entry.first); });
  const auto start = ProcessStart(process.pid);
  if (process.freeze.by_operator && start) frozen_[process.pid] = *start;
}

void GuestServer::Closed(pid_t pid, Nanos now) {
  const auto guest = guests_.find(pid);
  if (guest == guests_.end()) return channels_.Forget(pid);
  channels_.Freezer().Release(pid);
  Settle(pid, guest->second, now);
}

void GuestServer::Ended(pid_t pid, Nanos now) {
  const auto found = guests_.find(pid);
  if (found == guests_.end()) return;
  for (auto& [gpu, process] : found->second.processes) gpus_[gpu]->Leave(*process, now);
  const auto adopted = std::move(found->second.adopted);
  guests_.erase(found);
  counted_.Forget(pid);
  channels_.Forget(pid);
  watched_.Remove(pid);
  if (adopted.empty()) return;
  for (const VgpuId id : adopted) table_.Left(id, now);
  on_change_();
}

Process* GuestServer::Find(pid_t pid, std::uint32_t gpu) const {
  for (const VGpu* vgpu : gpus_[gpu]->VGpus()) {
    const auto found = std::ranges::find(vgpu->processes, pid, &Process::pid);
    if (found != vgpu->processes.end()) return *found;
  }
  return nullptr;
}

bool GuestServer::Managed(pid_t pid) const {
  return guests_.contains(pid) ||
         std::ranges::any_of(gpus_, [&](const auto& gpu) { return Find(pid, gpu->Index()) != nullptr; });
}

Result<void> GuestServer::Adopt(pid_t pid, VGpu& vgpu, Nanos now) {
  if (Process* process = Find(pid, vgpu.gpu)) {
    return Fail(EBUSY, fmt::format("process {} is in vGPU {} already", pid, process->vgpu->spec.name));
  }
  const bool uses =
      !channels_.Table().Groups(pid, vgpu.gpu).empty() || gpus_[vgpu.gpu]->Measurement().Unmanaged().contains(pid);
  if (!uses || !channels_.Knows(pid, vgpu.gpu)) {
    if (!channels_.Available()) return Fail(ENOSYS, "channels cannot be steered here: " + channels_.Why());
    if (uses && !why_no_watch_.empty())
      return Fail(ENOSYS, "programs that were not started through Tessera are not seen: " + why_no_watch_);
    if (watched_.Find(pid) && !Complete(pid)) {
      return Fail(ENOENT, fmt::format("the channels of process {} are not known: it started before this daemon", pid),
                  "start it again; the daemon sees it then");
    }
    return Fail(ENOENT, fmt::format("process {} does not use GPU {}", pid, vgpu.gpu), "tessera ps lists those that do");
  }
  auto guest = Know(pid, {vgpu.id});
  if (!guest) return std::unexpected(guest.error());
  (*guest)->adopted.push_back(vgpu.id);
  if (std::ranges::find((*guest)->vgpus, vgpu.id) == (*guest)->vgpus.end()) (*guest)->vgpus.push_back(vgpu.id);
  table_.Joined(vgpu);
  Process* process = Join(pid, **guest, vgpu, now);
  if (!process) return Fail(ENOMEM, fmt::format("process {} cannot be adopted", pid));
  gpus_[vgpu.gpu]->Requests().NoteMeasured(*process, BytesOf(pid, vgpu.gpu));
  on_change_();
  return {};
}

// The watch sees an allocation at once, and NVML's figure has all of them, also those that the watch cannot see.
std::uint64_t GuestServer::BytesOf(pid_t pid, std::uint32_t gpu) const {
  const guard::WatchedProcess* seen = watched_.Find(pid);
  const auto measured = gpus_[gpu]->Measurement().Unmanaged().find(pid);
  return std::max(seen ? seen->memory.Bytes() : 0,
                  measured == gpus_[gpu]->Measurement().Unmanaged().end() ? 0 : measured->second);
}

void GuestServer::Abandon(const VGpu& vgpu, Nanos now) {
  std::vector<pid_t> adopted;
  for (const auto& [pid, guest] : guests_) {
    if (std::ranges::find(guest.adopted, vgpu.id) != guest.adopted.end()) adopted.push_back(pid);
  }
  for (const pid_t pid : adopted) {
    Guest& guest = guests_.at(pid);
    for (auto& [gpu, process] : guest.processes) {
      Closing(*process);
      gpus_[gpu]->Leave(*process, now);
      if (!process->freeze.by_operator) (void)channels_.Freezer().Thaw(gpu, {&pid, 1}, FreezeReason::kOperator);
    }
    channels_.Freezer().Release(pid);
    guests_.erase(pid);
    table_.Left(vgpu.id, now);
  }
}

// ---- freezing ----

Result<void> GuestServer::Freeze(pid_t pid, bool frozen, Nanos now) {
  bool found = false;
  if (!frozen) frozen_.erase(pid);
  for (const auto& gpu : gpus_) {
    if (Process* process = Find(pid, gpu->Index())) {
      gpu->Freezes().SetByOperator(*process, frozen, now);
      found = true;
    } else if (channels_.Knows(pid, gpu->Index()) &&
               (watched_.Find(pid) || Any(channels_.Freezer().StatusOf(pid, gpu->Index()).reasons))) {
      auto done = frozen ? channels_.Freezer().Freeze(gpu->Index(), {&pid, 1}, FreezeReason::kOperator)
                         : channels_.Freezer().Thaw(gpu->Index(), {&pid, 1}, FreezeReason::kOperator);
      if (!done) return done;
      const auto start = ProcessStart(pid);
      if (frozen && start) frozen_[pid] = *start;
      found = true;
    }
  }
  on_change_();
  if (found) return {};
  if (watched_.Find(pid)) {
    return Fail(ENOENT, fmt::format("the channels of process {} are not known", pid),
                channels_.Available() ? "it started before this daemon; start it again" : channels_.Why());
  }
  return Fail(ENOENT, fmt::format("process {} uses no GPU here", pid), "tessera ps lists those that do");
}

// ---- reports and state ----

std::vector<GuestServer::Unmanaged> GuestServer::List() const {
  std::vector<Unmanaged> list;
  std::set<std::pair<pid_t, std::uint32_t>> listed;
  for (const guard::WatchedProcess* process : watched_.All()) {
    if (process->pid == 0) continue;
    for (const auto& gpu : gpus_) {
      const std::uint32_t index = gpu->Index();
      const auto measured = gpu->Measurement().Unmanaged().find(process->pid);
      const bool uses =
          !channels_.Table().Groups(process->pid, index).empty() || measured != gpu->Measurement().Unmanaged().end();
      if (!uses || Find(process->pid, index)) continue;
      list.push_back({process->pid, process->name, index, BytesOf(process->pid, index), process->complete,
                      frozen_.contains(process->pid)});
      listed.emplace(process->pid, index);
    }
  }
  for (const auto& gpu : gpus_) {
    for (const auto& [pid, bytes] : gpu->Measurement().Unmanaged()) {
      if (Find(pid, gpu->Index()) || !listed.emplace(pid, gpu->Index()).second) continue;
      list.push_back({pid, NameOf(pid), gpu->Index(), bytes, false, false});
    }
  }
  return list;
}

bool GuestServer::Keeps(pid_t pid) const {
  const auto guest = guests_.find(pid);
  const auto frozen = [&](const auto& gpu) {
    const Process* process = Find(pid, gpu->Index());
    return process && process->freeze.by_operator;
  };
  return frozen_.contains(pid) || (guest != guests_.end() && !guest->second.adopted.empty()) ||
         std::ranges::any_of(gpus_, frozen);
}

std::vector<SavedProcess> GuestServer::Saved() const {
  std::vector<SavedProcess> saved;
  std::set<pid_t> told;
  const auto save = [&](pid_t pid, std::string vgpu, bool frozen) {
    const auto start = ProcessStart(pid);
    if (start && told.insert(pid).second)
      saved.push_back({pid, *start, std::move(vgpu), frozen, channels_.Table().Objects(pid).Events()});
  };
  for (const auto& [pid, guest] : guests_) {
    if (guest.adopted.empty()) continue;
    for (const auto& [gpu, process] : guest.processes) save(pid, process->vgpu->spec.name, process->freeze.by_operator);
  }
  for (const auto& [pid, start] : frozen_) {
    if (WasFrozen(pid)) save(pid, "", true);
  }
  for (const auto& gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        if (process->freeze.by_operator && !process->who.guest) save(process->pid, "", true);
      }
    }
  }
  return saved;
}

void GuestServer::Restore(const std::vector<SavedProcess>& saved, Nanos now) {
  for (const SavedProcess& entry : saved) {
    const auto start = ProcessStart(entry.pid);
    if (!start || *start != entry.start) continue;
    channels_.Restore(entry.pid, entry.objects, entry.frozen);
    if (entry.frozen) frozen_[entry.pid] = entry.start;
    for (const auto& gpu : gpus_) {
      if (Process* process = Find(entry.pid, gpu->Index()); process && entry.frozen)
        gpu->Freezes().SetByOperator(*process, true, now);
      if (!channels_.Knows(entry.pid, gpu->Index())) continue;
      // An earlier daemon may have left it frozen by policy; what an operator said stands.
      const pid_t pid = entry.pid;
      if (entry.frozen) {
        (void)channels_.Freezer().Freeze(gpu->Index(), {&pid, 1}, FreezeReason::kOperator);
      } else {
        channels_.Freezer().ThawLeftOver(gpu->Index(), pid);
      }
    }
    VGpu* vgpu = entry.vgpu.empty() ? nullptr : table_.Find(entry.vgpu);
    if (!vgpu) continue;
    if (auto adopted = Adopt(entry.pid, *vgpu, now); !adopted)
      log::Info("process {} is not adopted again: {}", entry.pid, adopted.error().Text());
  }
}

}  // namespace tessera::server
