#include "server/clients/guest_server.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/process/process_start.h"
#include "server/model/process_facts.h"
#include "server/record/log.h"

namespace tessera::server {
GuestServer::GuestServer(EventLoop& loop, VGpuTable& table, VGpuTable::Gpus& gpus, ChannelServer& channels,
                         UserBounds& bounds, std::function<void()> on_change)
    : loop_(loop),
      table_(table),
      gpus_(gpus),
      channels_(channels),
      bounds_(bounds),
      on_change_(std::move(on_change)),
      watch_(loop, [this](const guard::WatchEvent& event, Nanos now) { OnWatch(event, now); }) {}

GuestServer::~GuestServer() {
  while (!guests_.empty()) {
    Guest& guest = guests_.begin()->second;
    for (auto& [gpu, process] : guest.processes) gpus_[gpu]->Leave(*process, MonotonicNow());
    guests_.erase(guests_.begin());
  }
}

// ---- what is heard of programs ----

void GuestServer::OnWatch(const guard::WatchEvent& event, Nanos now) {
  using Kind = guard::WatchEvent::Kind;
  if (event.kind == Kind::kExit) {
    if (!Managed(event.pid)) {
      channels_.Forget(event.pid);
      if (frozen_.Remove(event.pid)) on_change_();
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

bool GuestServer::Observe(pid_t pid, const std::vector<VgpuId>& vgpus, const channel::ObjectEvent& event, Nanos now) {
  auto guest = Know(pid, vgpus);
  if (!guest) return false;  // what it had was forgotten
  channels_.Observe(pid, event, ChannelServer::Source::kGuard, now);
  Settle(pid, **guest, now);
  return true;
}

Process* GuestServer::Admit(pid_t pid, const std::vector<VgpuId>& vgpus, VGpu& vgpu, Nanos now) {
  if (Process* process = Find(pid, vgpu.gpu)) return process;
  auto guest = Know(pid, vgpus);
  return guest ? Join(pid, **guest, vgpu, now) : nullptr;
}

// ---- guests ----

Result<GuestServer::Guest*> GuestServer::Know(pid_t pid, const std::vector<VgpuId>& vgpus) {
  const auto known = guests_.find(pid);
  if (known != guests_.end()) return &known->second;
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return FailErrno(fmt::format("process {}", pid));
  const auto user = OwnerOf(pid);
  if (!user) return Fail(ESRCH, fmt::format("process {} has ended", pid));
  auto claim = bounds_.Take(*user, UserBounds::Kind::kOther, UserBounds::kForGuest);
  if (!claim) return std::unexpected(claim.error());
  Guest guest{.claim = std::move(*claim), .fd = std::move(fd), .uid = *user, .name = CommandOf(pid), .vgpus = vgpus};
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
  process->who.uid = guest.uid;
  process->who.program = guest.name;
  process->who.guest = true;
  process->gate.ungated = true;
  Process* joined = process.get();
  guest.processes[vgpu.gpu] = std::move(process);
  joined->freeze.by_operator = frozen_.Holds(pid);  // it may have been there with a shim until now
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
  if (frozen_.Holds(process.pid)) gpus_[process.vgpu->gpu]->Freezes().SetByOperator(process, true, now);
}

// Memory of a program that the kernel gate counted stays counted, whoever speaks for it now.
void GuestServer::Recount(Process& process) {
  const auto counted = counts_.On(process.pid, process.vgpu->gpu);
  if (!counted) return;
  process.who.guarded = true;
  gpus_[process.vgpu->gpu]->Requests().CountAnyway(process, *counted);
}

void GuestServer::Closing(const Process& process) {
  frozen_.Prune();
  if (process.freeze.by_operator) frozen_.Add(process.pid);
}

// Whoever connects a second time in the program's name and ends that changes nothing.
void GuestServer::Closed(pid_t pid, Nanos now) {
  if (SpokenFor(pid)) return;
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
  counts_.Forget(pid);
  channels_.Forget(pid);
  watch_.Forget(pid);
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

bool GuestServer::SpokenFor(pid_t pid) const {
  return std::ranges::any_of(gpus_, [pid](const auto& gpu) {
    return std::ranges::any_of(gpu->VGpus(), [pid](const VGpu* vgpu) {
      return std::ranges::any_of(vgpu->processes,
                                 [pid](const Process* process) { return process->pid == pid && !process->who.guest; });
    });
  });
}

bool GuestServer::Managed(pid_t pid) const {
  return guests_.contains(pid) ||
         std::ranges::any_of(gpus_, [&](const auto& gpu) { return Find(pid, gpu->Index()) != nullptr; });
}

Result<void> GuestServer::CheckAdoptable(pid_t pid, const VGpu& vgpu) const {
  if (const Process* process = Find(pid, vgpu.gpu))
    return Fail(EBUSY, fmt::format("process {} is in vGPU {} already", pid, process->vgpu->spec.name));
  const bool uses =
      !channels_.Table().Groups(pid, vgpu.gpu).empty() || gpus_[vgpu.gpu]->Measurement().Unmanaged().contains(pid);
  if (uses && channels_.Knows(pid, vgpu.gpu)) return {};
  if (!channels_.Available(vgpu.gpu))
    return Fail(ENOSYS, "channels cannot be steered here: " + channels_.Why(vgpu.gpu));
  if (uses && !watch_.WhyNot().empty())
    return Fail(ENOSYS, "programs that were not started through Tessera are not seen: " + watch_.WhyNot());
  if (watch_.Seen().Find(pid) && !watch_.Complete(pid))
    return Fail(ENOENT, fmt::format("the channels of process {} are not known: it started before this daemon", pid),
                "start it again; the daemon sees it then");
  return Fail(ENOENT, fmt::format("process {} does not use GPU {}", pid, vgpu.gpu), "tessera ps lists those that do");
}

Result<void> GuestServer::Adopt(pid_t pid, VGpu& vgpu, Nanos now) {
  if (auto adoptable = CheckAdoptable(pid, vgpu); !adoptable) return adoptable;
  auto guest = Know(pid, {vgpu.id});
  if (!guest) return std::unexpected(guest.error());
  (*guest)->adopted.push_back(vgpu.id);
  if (std::ranges::find((*guest)->vgpus, vgpu.id) == (*guest)->vgpus.end()) (*guest)->vgpus.push_back(vgpu.id);
  table_.Joined(vgpu);
  Process* process = Join(pid, **guest, vgpu, now);
  if (!process) return Fail(ENOMEM, fmt::format("process {} cannot be adopted", pid));
  gpus_[vgpu.gpu]->Requests().NoteMeasured(*process, UnmanagedBytes(watch_.Seen(), *gpus_[vgpu.gpu], pid));
  on_change_();
  return {};
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

void GuestServer::Dismiss(const VGpu& vgpu, Nanos now) {
  for (auto& [pid, guest] : guests_) {
    std::erase(guest.vgpus, vgpu.id);
    const auto process = guest.processes.find(vgpu.gpu);
    if (process == guest.processes.end() || process->second->vgpu != &vgpu) continue;
    gpus_[vgpu.gpu]->Leave(*process->second, now);
    guest.processes.erase(process);
  }
}

// ---- freezing ----

Result<void> GuestServer::Freeze(pid_t pid, bool frozen, Nanos now) {
  bool found = false;
  if (!frozen) frozen_.Remove(pid);
  for (const auto& gpu : gpus_) {
    if (Process* process = Find(pid, gpu->Index())) {
      gpu->Freezes().SetByOperator(*process, frozen, now);
      found = true;
    } else if ((watch_.Seen().Find(pid) || Any(channels_.Freezer().StatusOf(pid, gpu->Index()).reasons)) &&
               channels_.Knows(pid, gpu->Index())) {  // in this order: any pid may be asked for
      auto done = frozen ? channels_.Freezer().Freeze(gpu->Index(), {&pid, 1}, FreezeReason::kOperator)
                         : channels_.Freezer().Thaw(gpu->Index(), {&pid, 1}, FreezeReason::kOperator);
      if (!done) return done;
      if (frozen) frozen_.Add(pid);
      found = true;
    }
  }
  on_change_();
  if (found) return {};
  if (watch_.Seen().Find(pid)) {
    const auto off = std::ranges::find_if(gpus_, [&](const auto& gpu) { return !channels_.Available(gpu->Index()); });
    return Fail(ENOENT, fmt::format("the channels of process {} are not known", pid),
                off == gpus_.end() ? "it started before this daemon; start it again"
                                   : fmt::format("channels cannot be steered on GPU {}: {}", (*off)->Index(),
                                                 channels_.Why((*off)->Index())));
  }
  return Fail(ENOENT, fmt::format("process {} uses no GPU here", pid), "tessera ps lists those that do");
}

// ---- state ----

bool GuestServer::Keeps(pid_t pid) const {
  const auto guest = guests_.find(pid);
  const auto frozen = [&](const auto& gpu) {
    const Process* process = Find(pid, gpu->Index());
    return process && process->freeze.by_operator;
  };
  return frozen_.Contains(pid) || (guest != guests_.end() && !guest->second.adopted.empty()) ||
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
  for (const auto& [pid, start] : frozen_.All()) {
    if (frozen_.Holds(pid)) save(pid, "", true);
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
    if (entry.frozen) frozen_.Add(entry.pid, entry.start);
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
      log::Info("cannot adopt process {} again: {}", entry.pid, adopted.error().Text());
  }
}

}  // namespace tessera::server
