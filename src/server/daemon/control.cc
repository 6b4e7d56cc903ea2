#include "server/daemon/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "server/daemon/limit_waits.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

EvictionReport ReportEviction(const Process& process) {
  return {.pid = process.pid, .gpu = process.vgpu->gpu, .evicting = process.residence.Evicting()};
}

void NoteEviction(const Process& process, const Caller& caller) {
  events::Note({.type = EventType::kMemoryEvicted,
                .gpu = process.vgpu->gpu,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .owner = process.vgpu->spec.uid,
                .user = process.who.uid,
                .by_operator = caller.IsOperator(),
                .text = FormatSize(process.residence.Evicting()) + " are being moved to host memory"});
}

Result<std::vector<EvictionReport>> EvictUses(Daemon& daemon, const Caller& caller, pid_t pid, std::uint64_t keep,
                                              Nanos now) {
  std::vector<EvictionReport> evictions;
  for (const auto& gpu : daemon.Gpus()) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      const auto found = std::ranges::find(vgpu->processes, pid, &Process::pid);
      if (found == vgpu->processes.end()) continue;
      if (auto pushed = gpu->Placement().Evict(**found, keep, now); !pushed) return std::unexpected(pushed.error());
      evictions.push_back(ReportEviction(**found));
      NoteEviction(**found, caller);
    }
  }
  if (!evictions.empty()) return evictions;
  return Fail(ENOENT, fmt::format("process {} is in no vGPU, or does not use its GPU yet", pid),
              "tessera ps lists those whose memory can be moved");
}

// A process that belongs to nobody: what may not be seen is refused as this is.
Possession Unowned(pid_t pid) { return {.name = std::to_string(pid), .process = true, .uid = uid_t(-1)}; }

// The user of a process that is in a vGPU.
std::optional<uid_t> UserOf(Daemon& daemon, pid_t pid) {
  for (const auto& gpu : daemon.Gpus()) {
    if (const Process* process = daemon.Guests().Find(pid, gpu->Index())) return process->who.uid;
  }
  return {};
}

// What of a GPU everybody may see: nothing that tells of another user's vGPU or process.
GpuReport TotalsOf(GpuReport full) {
  GpuReport totals{.index = full.index,
                   .uuid = std::move(full.uuid),
                   .name = std::move(full.name),
                   .driver = std::move(full.driver),
                   .nvlink_group = full.nvlink_group,
                   .soft = full.soft,
                   .memory_total = full.memory_total,
                   .memory_reserve = full.memory_reserve,
                   .memory_used = full.memory_used,
                   .memory_promised = full.memory_promised,
                   .memory_unmanaged = full.memory_unmanaged,
                   .context_bytes = full.context_bytes,
                   .compute_requested_pct = full.compute_requested_pct,
                   .compute_busy_pct = full.compute_busy_pct,
                   .vgpus = full.vgpus,
                   .processes = full.processes,
                   .divider = full.divider,
                   .draining = full.draining};
  if (full.swap) {
    totals.swap = SwapReport{.max = full.swap->max,
                             .pool = full.swap->pool,
                             .pool_used = full.swap->pool_used,
                             .pool_goal = full.swap->pool_goal,
                             .file = full.swap->file,
                             .file_used = full.swap->file_used,
                             .capacity = full.swap->capacity,
                             .mode = full.swap->mode};
  }
  return totals;
}

}  // namespace

Control Control::For(uid_t uid, std::vector<gid_t> groups) const {
  Control other = *this;
  other.caller_ = daemon_.Access().Identify(uid, std::move(groups));
  return other;
}

// ---- the loop, and the authority ----

template <typename Task>
std::invoke_result_t<Task> Control::OnLoop(Task task) {
  auto answer = loop_.Call([this, task = std::move(task)] {
    daemon_.StayAwhile(MonotonicNow());
    return task();
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

template <typename Task>
std::invoke_result_t<Task, Nanos> Control::Run(Operation operation, Task task) {
  if (auto allowed = daemon_.Access().Allowed(caller_, operation); !allowed) return std::unexpected(allowed.error());
  return OnLoop([task = std::move(task)] { return task(MonotonicNow()); });
}

template <typename Task>
std::invoke_result_t<Task, VGpu&, Nanos> Control::RunOn(Operation operation, const std::string& name, Task task) {
  using Answer = std::invoke_result_t<Task, VGpu&, Nanos>;
  return OnLoop([this, operation, name, task = std::move(task)]() -> Answer {
    const auto vgpu = FindAllowed(operation, name);
    if (!vgpu) return std::unexpected(vgpu.error());
    return task(**vgpu, MonotonicNow());
  });
}

// Who may not see it gets the same answer as where there is none.
Result<VGpu*> Control::FindAllowed(Operation operation, const std::string& name) const {
  VGpu* vgpu = daemon_.VGpus().Find(name);
  const Possession none{.name = name, .uid = uid_t(-1)};
  if (auto allowed = vgpu ? Allowed(operation, *vgpu) : daemon_.Access().Allowed(caller_, operation, &none); !allowed)
    return std::unexpected(allowed.error());
  if (!vgpu) return std::unexpected(NoSuchVGpu(name));
  return vgpu;
}

template <typename Task>
std::invoke_result_t<Task, Nanos> Control::RunOn(Operation operation, pid_t pid, Task task) {
  using Answer = std::invoke_result_t<Task, Nanos>;
  return OnLoop([this, operation, pid, task = std::move(task)]() -> Answer {
    if (auto allowed = AllowedOnAll(operation, pid); !allowed) return std::unexpected(allowed.error());
    return task(MonotonicNow());
  });
}

template <typename Answer>
Answer Control::Keep(Answer answer) {
  if (answer) daemon_.AwaitSaved();
  return answer;
}

Result<void> Control::Allowed(Operation operation, const VGpu& vgpu) const {
  const Possession thing = PossessionOf(vgpu.spec);
  return daemon_.Access().Allowed(caller_, operation, &thing);
}

VGpuTable::Admission Control::WithinQuota(const VGpuRequest& request) const {
  Caller caller = caller_;
  if (request.within_quota.value_or(false)) caller.role = Caller::Role::kUser;
  return [this, caller](VGpuSpec& spec, const VGpu* before) { return daemon_.Quotas().Admit(caller, spec, before); };
}

// What acts on a process acts on all its uses of GPUs.
Result<void> Control::AllowedOnAll(Operation operation, pid_t pid) const {
  if (caller_.IsOperator()) return {};
  bool found = false;
  for (const auto& gpu : daemon_.Gpus()) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        if (process->pid != pid) continue;
        found = true;
        const Possession thing = PossessionOf(*process);
        if (auto allowed = daemon_.Access().Allowed(caller_, operation, &thing); !allowed) return allowed;
      }
    }
  }
  const Possession none = Unowned(pid);
  return found ? Result<void>() : daemon_.Access().Allowed(caller_, operation, &none);
}

bool Control::MaySee(const ProcessReport& process) const {
  if (!process.vgpu) return daemon_.Access().Allowed(caller_, Operation::kSeeUnmanaged).has_value();
  Possession thing = Unowned(process.pid);
  if (process.uid) thing.uid = *process.uid;
  if (const VGpu* vgpu = daemon_.VGpus().Find(*process.vgpu)) thing.host = vgpu->spec.uid;
  return daemon_.Access().Allowed(caller_, Operation::kSeeProcess, &thing).has_value();
}

// Without the processes of others, in a vGPU that is for everybody.
VGpuReport Control::Report(const VGpu& vgpu, Nanos now) const {
  VGpuReport report = ReportVGpu(daemon_, vgpu, now);
  std::erase_if(report.processes, [&](pid_t pid) { return !AllowedOnAll(Operation::kSeeProcess, pid); });
  return report;
}

std::vector<VGpuReport> Control::ReportSeen(Nanos now) const {
  std::vector<VGpuReport> reports;
  for (const VGpu* vgpu : daemon_.VGpus().All()) {
    if (Allowed(Operation::kSeeVGpu, *vgpu)) reports.push_back(Report(*vgpu, now));
  }
  return reports;
}

std::vector<ProcessReport> Control::ReportSeen(Nanos now, std::optional<pid_t> pid) const {
  std::vector<ProcessReport> reports = ReportProcesses(daemon_, now, pid);
  std::erase_if(reports, [this](const ProcessReport& process) { return !MaySee(process); });
  return reports;
}

// ---- what there is ----

Result<std::vector<GpuReport>> Control::Gpus(Devices devices) {
  if (daemon_.Access().Allowed(caller_, Operation::kSeeGpus)) {
    if (devices == Devices::kAsk) Measure();
    return Run(Operation::kSeeGpus,
               [this](Nanos now) -> Result<std::vector<GpuReport>> { return ReportGpus(daemon_, now); });
  }
  return Run(Operation::kSeeTotals, [this](Nanos now) -> Result<std::vector<GpuReport>> {
    std::vector<GpuReport> reports = ReportGpus(daemon_, now);
    for (GpuReport& report : reports) report = TotalsOf(std::move(report));
    return reports;
  });
}

Result<std::vector<VGpuReport>> Control::VGpus() {
  return OnLoop([this]() -> Result<std::vector<VGpuReport>> { return ReportSeen(MonotonicNow()); });
}

Result<VGpuReport> Control::VGpuNamed(const std::string& name) {
  return RunOn(Operation::kSeeVGpu, name,
               [this](VGpu& vgpu, Nanos now) -> Result<VGpuReport> { return Report(vgpu, now); });
}

Result<std::vector<ProcessReport>> Control::Processes(std::optional<pid_t> pid, Devices devices) {
  if (devices == Devices::kAsk) Measure();
  return OnLoop([this, pid]() -> Result<std::vector<ProcessReport>> { return ReportSeen(MonotonicNow(), pid); });
}

Result<WholeReport> Control::All() {
  Measure();
  return Run(Operation::kSeeMetrics, [this](Nanos now) -> Result<WholeReport> {
    return WholeReport{.gpus = ReportGpus(daemon_, now),
                       .vgpus = ReportVGpus(daemon_, now),
                       .processes = ReportProcesses(daemon_, now),
                       .spaces = ReportSpaces(daemon_, now)};
  });
}

// ---- vGPUs ----

Result<VGpuReport> Control::Create(const VGpuRequest& request) {
  return Keep(Run(Operation::kCreateVGpu, [this, request](Nanos now) -> Result<VGpuReport> {
    auto vgpu = daemon_.VGpus().Create(request, caller_.uid, now, WithinQuota(request), caller_.IsOperator());
    if (!vgpu) return std::unexpected(vgpu.error());
    return Report(**vgpu, now);
  }));
}

Result<VGpuReport> Control::Change(const std::string& name, const VGpuRequest& request, bool wait) {
  auto changed = Keep(RunOn(Operation::kChangeVGpu, name, [this, request](VGpu& vgpu, Nanos now) -> Result<VGpuReport> {
    if (auto done = daemon_.VGpus().Change(vgpu, request, now, WithinQuota(request), caller_.IsOperator()); !done)
      return std::unexpected(done.error());
    return Report(vgpu, now);
  }));
  if (!changed || !wait || !request.memory_limit) return changed;
  static LimitWaits waits;  // of all faces and callers
  return waits.Await([&] { return VGpuNamed(name); }, caller_.IsOperator());
}

Result<void> Control::Remove(const std::string& name, bool force, const std::optional<std::string>& if_tag) {
  return Keep(RunOn(Operation::kRemoveVGpu, name, [this, force, if_tag](VGpu& vgpu, Nanos now) -> Result<void> {
    if (auto same = CheckTag(vgpu, if_tag); !same) return same;
    return daemon_.VGpus().Remove(vgpu, force, now, caller_.IsOperator());
  }));
}

Result<void> Control::FreezeVGpu(const std::string& name, bool frozen) {
  return Keep(RunOn(Operation::kFreezeVGpu, name, [this, frozen](VGpu& vgpu, Nanos now) -> Result<void> {
    if (auto done = daemon_.VGpus().Freeze(vgpu, frozen, !caller_.IsOperator(), now); !done) return done;
    events::Note({.type = frozen ? EventType::kVGpuFrozen : EventType::kVGpuThawed,
                  .gpu = vgpu.gpu,
                  .vgpu = vgpu.spec.name,
                  .owner = vgpu.spec.uid,
                  .by_operator = caller_.IsOperator()});
    return {};
  }));
}

Result<std::vector<EvictionReport>> Control::EvictVGpu(const std::string& name, std::uint64_t keep) {
  using Reports = std::vector<EvictionReport>;
  return RunOn(Operation::kEvictVGpu, name, [this, keep](VGpu& vgpu, Nanos now) -> Result<Reports> {
    if (auto pushed = daemon_.Gpus()[vgpu.gpu]->Placement().Evict(vgpu, keep, now); !pushed)
      return std::unexpected(pushed.error());
    Reports evictions;
    for (const Process* process : vgpu.processes) {
      evictions.push_back(ReportEviction(*process));
      NoteEviction(*process, caller_);
    }
    return evictions;
  });
}

// ---- processes ----

Result<void> Control::Freeze(const Subject& subject, bool frozen) {
  if (const pid_t* pid = std::get_if<pid_t>(&subject)) return FreezeProcess(*pid, frozen);
  return FreezeVGpu(std::get<std::string>(subject), frozen);
}

Result<std::vector<EvictionReport>> Control::Evict(const Subject& subject, std::uint64_t keep) {
  if (const pid_t* pid = std::get_if<pid_t>(&subject)) return EvictProcess(*pid, keep);
  return EvictVGpu(std::get<std::string>(subject), keep);
}

Result<void> Control::FreezeProcess(pid_t pid, bool frozen) {
  return Keep(RunOn(Operation::kFreezeProcess, pid, [this, pid, frozen](Nanos now) -> Result<void> {
    auto done = daemon_.Guests().Freeze(pid, frozen, now);
    if (done)
      events::Note({.type = frozen ? EventType::kProcessFrozen : EventType::kProcessThawed,
                    .pid = pid,
                    .user = UserOf(daemon_, pid),
                    .by_operator = caller_.IsOperator()});
    return done;
  }));
}

Result<std::vector<EvictionReport>> Control::EvictProcess(pid_t pid, std::uint64_t keep) {
  return RunOn(Operation::kEvictProcess, pid, [this, pid, keep](Nanos now) -> Result<std::vector<EvictionReport>> {
    return EvictUses(daemon_, caller_, pid, keep, now);
  });
}

Result<ProcessReport> Control::Adopt(pid_t pid, const std::string& name) {
  if (auto allowed = daemon_.Access().Allowed(caller_, Operation::kAdopt); !allowed)
    return std::unexpected(allowed.error());
  Measure();
  return RunOn(Operation::kAdopt, name, [this, pid](VGpu& vgpu, Nanos now) -> Result<ProcessReport> {
    if (auto adopted = daemon_.Guests().Adopt(pid, vgpu, now); !adopted) return std::unexpected(adopted.error());
    events::Note({.type = EventType::kProcessAdopted,
                  .gpu = vgpu.gpu,
                  .vgpu = vgpu.spec.name,
                  .pid = pid,
                  .owner = vgpu.spec.uid,
                  .by_operator = true});
    for (ProcessReport& report : ReportProcesses(daemon_, now, pid)) return std::move(report);
    return Fail(ENOENT, "process " + std::to_string(pid) + " has just ended");
  });
}

// ---- the daemon ----

Result<TraceCopy> Control::Trace(std::optional<Nanos> past) {
  if (past) {
    return Run(Operation::kSeeTrace, [this, past](Nanos now) -> Result<TraceCopy> {
      const Nanos since = now - *past;
      TraceCopy copy = trace::Copy(since);
      for (const auto& gpu : daemon_.Gpus()) gpu->Trace().CopyPresent(copy, since);
      return copy;
    });
  }
  if (auto allowed = daemon_.Access().Allowed(caller_, Operation::kSeeTrace); !allowed)
    return std::unexpected(allowed.error());
  auto loaded = TraceRing::Load(daemon_.RunDir() + trace::kLastFile);
  if (loaded || loaded.error().code != ENOENT) return loaded;
  return Fail(ENOENT, "no trace was saved, because nothing went wrong",
              "tessera trace --past 1min -o FILE takes what happened in the last minute");
}

Result<events::Batch> Control::Events(std::uint64_t after, std::size_t most) const {
  if (daemon_.Access().Allowed(caller_, Operation::kSeeAllEvents)) return events::After(after, most);
  if (auto allowed = daemon_.Access().Allowed(caller_, Operation::kSeeEvents); !allowed)
    return std::unexpected(allowed.error());
  return events::After(after, most, caller_.uid);
}

Result<std::vector<ConfigChange>> Control::Reload() {
  if (auto allowed = daemon_.Access().Allowed(caller_, Operation::kReload); !allowed)
    return std::unexpected(allowed.error());
  if (!reader_) return Fail(EOPNOTSUPP, "this daemon has no configuration to read");
  MutexLock lock(reader_->reading);
  const auto read = reader_->read();
  if (!read) return std::unexpected(read.error());
  if (auto also = reader_->also(); !also) return std::unexpected(also.error());
  auto changes =
      OnLoop([this, &read]() -> Result<std::vector<ConfigChange>> { return daemon_.Reload(*read, MonotonicNow()); });
  if (!changes) return changes;
  std::string text;
  for (const ConfigChange& change : *changes)
    text += fmt::format("{}{} {} -> {}{}", text.empty() ? "" : ", ", change.key, change.from, change.to,
                        change.live ? "" : " (when the daemon starts again)");
  if (text.empty()) text = "nothing changed";
  log::Info("configuration reloaded: {}", text);
  events::Note({.type = EventType::kConfigReloaded, .text = text});
  return changes;
}

Result<std::vector<CheckReport>> Control::Checks() {
  return Run(Operation::kDoctor, [this](Nanos) -> Result<std::vector<CheckReport>> { return ReportChecks(daemon_); });
}

// Brings the devices' figures up to date, unless somebody is just doing that. For operators: asking costs programs
// time.
void Control::Measure() {
  if (!caller_.IsOperator()) return;
  if (!loop_.Call([this] { return daemon_.Meter().Begin(); }).value_or(false)) return;
  loop_.Call([this, answers = daemon_.Meter().Ask()] {
    daemon_.Meter().End(answers, MonotonicNow());
    return true;
  });
}

}  // namespace tessera::server
