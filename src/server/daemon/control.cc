#include "server/daemon/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera::server {
namespace {

EvictionReport ReportEviction(const Process& process) {
  return {.pid = process.pid, .gpu = process.vgpu->gpu, .evicting = process.residence.Evicting()};
}

void NoteEviction(const Process& process) {
  events::Note({.type = EventType::kMemoryEvicted,
                .gpu = process.vgpu->gpu,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .text = FormatSize(process.residence.Evicting()) + " are being moved to host memory"});
}

Result<std::vector<EvictionReport>> Evict(Daemon& daemon, pid_t pid, std::uint64_t keep, Nanos now) {
  std::vector<EvictionReport> evictions;
  for (const auto& gpu : daemon.Gpus()) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      const auto found = std::ranges::find(vgpu->processes, pid, &Process::pid);
      if (found == vgpu->processes.end()) continue;
      if (auto pushed = gpu->Placement().Evict(**found, keep, now); !pushed) return std::unexpected(pushed.error());
      evictions.push_back(ReportEviction(**found));
      NoteEviction(**found);
    }
  }
  if (!evictions.empty()) return evictions;
  return Fail(ENOENT, fmt::format("process {} is in no vGPU, or does not use its GPU yet", pid),
              "tessera ps lists those whose memory can be moved");
}

}  // namespace

template <typename Task>
std::invoke_result_t<Task, Nanos> Control::Run(Task task) {
  auto answer = loop_.Call([this, task = std::move(task)] {
    const Nanos now = MonotonicNow();
    daemon_.StayAwhile(now);
    return task(now);
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

template <typename Task>
std::invoke_result_t<Task, Nanos> Control::Keep(Task task) {
  auto answer = Run(std::move(task));
  if (answer) daemon_.AwaitSaved();
  return answer;
}

Result<std::vector<GpuReport>> Control::Gpus() {
  Measure();
  return Run([this](Nanos now) -> Result<std::vector<GpuReport>> { return ReportGpus(daemon_, now); });
}

Result<std::vector<VGpuReport>> Control::VGpus() {
  return Run([this](Nanos now) -> Result<std::vector<VGpuReport>> { return ReportVGpus(daemon_, now); });
}

Result<VGpuReport> Control::VGpuNamed(const std::string& name) {
  return Run([this, name](Nanos now) -> Result<VGpuReport> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    return ReportVGpu(daemon_, **vgpu, now);
  });
}

Result<std::vector<ProcessReport>> Control::Processes(std::optional<pid_t> pid, Devices devices) {
  if (devices == Devices::kAsk) Measure();
  return Run(
      [this, pid](Nanos now) -> Result<std::vector<ProcessReport>> { return ReportProcesses(daemon_, now, pid); });
}

Result<WholeReport> Control::All() {
  Measure();
  return Run([this](Nanos now) -> Result<WholeReport> {
    return WholeReport{.gpus = ReportGpus(daemon_, now),
                       .vgpus = ReportVGpus(daemon_, now),
                       .processes = ReportProcesses(daemon_, now)};
  });
}

Result<VGpuReport> Control::Create(const VGpuRequest& request, uid_t uid) {
  return Keep([this, request, uid](Nanos now) -> Result<VGpuReport> {
    auto vgpu = daemon_.VGpus().Create(request, uid, now);
    if (!vgpu) return std::unexpected(vgpu.error());
    return ReportVGpu(daemon_, **vgpu, now);
  });
}

Result<VGpuReport> Control::Change(const std::string& name, const VGpuRequest& request) {
  return Keep([this, name, request](Nanos now) -> Result<VGpuReport> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    if (auto changed = daemon_.VGpus().Change(**vgpu, request, now); !changed) return std::unexpected(changed.error());
    return ReportVGpu(daemon_, **vgpu, now);
  });
}

Result<void> Control::Remove(const std::string& name, bool force, const std::optional<std::string>& if_tag) {
  return Keep([this, name, force, if_tag](Nanos now) -> Result<void> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    if (auto same = CheckTag(**vgpu, if_tag); !same) return same;
    return daemon_.VGpus().Remove(**vgpu, force, now);
  });
}

Result<void> Control::FreezeProcess(pid_t pid, bool frozen) {
  return Keep([this, pid, frozen](Nanos now) -> Result<void> {
    auto done = daemon_.Guests().Freeze(pid, frozen, now);
    if (done) events::Note({.type = frozen ? EventType::kProcessFrozen : EventType::kProcessThawed, .pid = pid});
    return done;
  });
}

Result<void> Control::FreezeVGpu(const std::string& name, bool frozen) {
  return Keep([this, name, frozen](Nanos now) -> Result<void> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    daemon_.VGpus().Freeze(**vgpu, frozen, now);
    events::Note({.type = frozen ? EventType::kVGpuFrozen : EventType::kVGpuThawed,
                  .gpu = (*vgpu)->gpu,
                  .vgpu = (*vgpu)->spec.name});
    return {};
  });
}

Result<std::vector<EvictionReport>> Control::EvictProcess(pid_t pid, std::uint64_t keep) {
  return Run(
      [this, pid, keep](Nanos now) -> Result<std::vector<EvictionReport>> { return Evict(daemon_, pid, keep, now); });
}

Result<std::vector<EvictionReport>> Control::EvictVGpu(const std::string& name, std::uint64_t keep) {
  return Run([this, name, keep](Nanos now) -> Result<std::vector<EvictionReport>> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    if (auto pushed = daemon_.Gpus()[(*vgpu)->gpu]->Placement().Evict(**vgpu, keep, now); !pushed)
      return std::unexpected(pushed.error());
    std::vector<EvictionReport> evictions;
    for (const Process* process : (*vgpu)->processes) {
      evictions.push_back(ReportEviction(*process));
      NoteEviction(*process);
    }
    return evictions;
  });
}

Result<ProcessReport> Control::Adopt(pid_t pid, const std::string& name) {
  Measure();
  return Run([this, pid, name](Nanos now) -> Result<ProcessReport> {
    auto vgpu = daemon_.VGpus().Get(name);
    if (!vgpu) return std::unexpected(vgpu.error());
    if (auto adopted = daemon_.Guests().Adopt(pid, **vgpu, now); !adopted) return std::unexpected(adopted.error());
    events::Note({.type = EventType::kProcessAdopted, .gpu = (*vgpu)->gpu, .vgpu = name, .pid = pid});
    for (ProcessReport& report : ReportProcesses(daemon_, now, pid)) return std::move(report);
    return Fail(ENOENT, "process " + std::to_string(pid) + " has just ended");
  });
}

Result<TraceCopy> Control::Trace(Nanos past) {
  return Run([this, past](Nanos now) -> Result<TraceCopy> {
    const Nanos since = now - past;
    TraceCopy copy = trace::Copy(since);
    for (const auto& gpu : daemon_.Gpus()) gpu->Trace().CopyPresent(copy, since);
    return copy;
  });
}

Result<TraceCopy> Control::LastTrace() {
  auto loaded = TraceRing::Load(daemon_.RunDir() + trace::kLastFile);
  if (loaded || loaded.error().code != ENOENT) return loaded;
  return Fail(ENOENT, "no trace was saved, because nothing went wrong",
              "tessera trace --past 1min -o FILE takes what happened in the last minute");
}

Result<std::vector<ConfigChange>> Control::Reload() {
  if (!read_config_) return Fail(EOPNOTSUPP, "this daemon has no configuration to read");
  MutexLock lock(reloading_);
  const auto read = read_config_();
  if (!read) return std::unexpected(read.error());
  if (auto also = also_reload_(); !also) return std::unexpected(also.error());
  auto changes =
      Run([this, &read](Nanos now) -> Result<std::vector<ConfigChange>> { return daemon_.Reload(*read, now); });
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
  return Run([this](Nanos) -> Result<std::vector<CheckReport>> { return ReportChecks(daemon_); });
}

// Brings the devices' figures up to date, unless somebody is just doing that.
void Control::Measure() {
  if (!loop_.Call([this] { return daemon_.Meter().Begin(); }).value_or(false)) return;
  loop_.Call([this, answers = daemon_.Meter().Ask()] {
    daemon_.Meter().End(answers, MonotonicNow());
    return true;
  });
}

}  // namespace tessera::server
