#include "server/control/suspension_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/text/counted.h"
#include "server/gpu/gpu_choice.h"
#include "server/migration/move_estimate.h"

namespace tessera::server {
template <typename Task>
std::invoke_result_t<Task, Nanos> SuspensionControl::OnLoop(Task task) {
  auto answer = control_.loop_.Call([this, task = std::move(task)] {
    control_.daemon_.StayAwhile(MonotonicNow());
    return task(MonotonicNow());
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

// On the loop. Whoever may freeze a program may suspend it.
Result<std::vector<pid_t>> SuspensionControl::ProgramsOf(const Control::Subject& subject, Operation operation) const {
  if (const pid_t* pid = std::get_if<pid_t>(&subject)) {
    if (auto allowed = control_.AllowedOnAll(operation, *pid); !allowed) return std::unexpected(allowed.error());
    return std::vector{*pid};
  }
  const auto vgpu = control_.FindAllowed(operation, std::get<std::string>(subject));
  if (!vgpu) return std::unexpected(vgpu.error());
  std::set<pid_t> pids;
  for (const Process* process : (*vgpu)->processes) pids.insert(process->pid);
  return std::vector(pids.begin(), pids.end());
}

Result<std::vector<SuspensionReport>> SuspensionControl::Suspend(const Control::Subject& subject, Suspensions::To to) {
  return OnLoop([this, subject, to](Nanos now) -> Result<std::vector<SuspensionReport>> {
    const bool one = std::holds_alternative<pid_t>(subject);
    const auto pids = ProgramsOf(subject, one ? Operation::kSuspendProcess : Operation::kSuspendVGpu);
    if (!pids) return std::unexpected(pids.error());
    Suspensions& suspensions = control_.daemon_.Suspended();
    for (const pid_t pid : *pids) {
      if (control_.daemon_.Moves().migrations.Carries(pid))
        return Fail(EBUSY, fmt::format("process {} is on its way to another GPU", pid), "wait until it is there");
      if (auto may = suspensions.Check(pid, to); !may) return std::unexpected(may.error());  // all of them, or none
    }
    std::vector<SuspensionReport> reports;
    for (const pid_t pid : *pids) {
      if (auto begun = suspensions.Suspend(pid, now, to); !begun) return std::unexpected(begun.error());
      const Suspension* suspension = suspensions.Find(pid);
      reports.push_back({pid, NameOf(suspension ? suspension->Phase() : SuspensionPhase::kNone)});
    }
    return reports;
  });
}

Result<std::vector<SuspensionReport>> SuspensionControl::Resume(const Control::Subject& subject) {
  return OnLoop([this, subject](Nanos now) -> Result<std::vector<SuspensionReport>> {
    const bool one = std::holds_alternative<pid_t>(subject);
    const auto pids = ProgramsOf(subject, one ? Operation::kSuspendProcess : Operation::kSuspendVGpu);
    if (!pids) return std::unexpected(pids.error());
    std::vector<SuspensionReport> reports;
    for (const pid_t pid : *pids) {
      if (!control_.daemon_.Moves().migrations.BringBack(pid, now)) control_.daemon_.Suspended().Resume(pid, now);
      const Suspension* suspension = control_.daemon_.Suspended().Find(pid);
      reports.push_back({pid, NameOf(suspension ? suspension->Phase() : SuspensionPhase::kNone)});
    }
    return reports;
  });
}

// On the loop.
Result<std::vector<VGpuMove>> SuspensionControl::MovesOf(const Control::Subject& subject,
                                                         const std::vector<std::string>& gpus) const {
  Daemon& daemon = control_.daemon_;
  std::vector<std::uint32_t> targets;
  for (const std::string& gpu : gpus) {
    const auto named = GpusNamed(gpu, daemon.Gpus());
    if (!named) return std::unexpected(named.error());
    targets.push_back(named->front());
  }
  std::vector<VGpu*> vgpus;
  if (const pid_t* pid = std::get_if<pid_t>(&subject)) {
    if (auto allowed = control_.AllowedOnAll(Operation::kSuspendProcess, *pid); !allowed)
      return std::unexpected(allowed.error());
    for (const auto& gpu : daemon.Gpus()) {
      for (VGpu* vgpu : gpu->VGpus()) {
        if (std::ranges::find(vgpu->processes, *pid, &Process::pid) == vgpu->processes.end()) continue;
        if (vgpu->processes.size() > 1)
          return Fail(EBUSY,
                      fmt::format("vGPU {} has {}, which would go along", vgpu->spec.name,
                                  Counted(vgpu->processes.size() - 1, "other program")),
                      "migrate the vGPU: tessera migrate " + vgpu->spec.name);
        vgpus.push_back(vgpu);
      }
    }
    if (vgpus.empty())
      return Fail(ENOENT, fmt::format("process {} is in no vGPU, or does not use its GPU yet", *pid),
                  "tessera ps lists those that do");
  } else {
    const auto vgpu = control_.FindAllowed(Operation::kSuspendVGpu, std::get<std::string>(subject));
    if (!vgpu) return std::unexpected(vgpu.error());
    vgpus.push_back(*vgpu);
  }
  if (vgpus.size() != targets.size())
    return Fail(EINVAL,
                fmt::format("it is on {}, and {} named", Counted(vgpus.size(), "GPU"),
                            targets.size() == 1 ? "1 is" : fmt::format("{} are", targets.size())),
                "name a GPU for each, in the order in which they are now");
  std::vector<VGpuMove> moves;
  for (std::size_t i = 0; i < vgpus.size(); ++i) moves.push_back({vgpus[i]->id, targets[i]});
  return moves;
}

MigrationReport ReportMigration(Daemon& daemon, const std::vector<VGpuMove>& moves, std::size_t rounds) {
  MigrationReport report;
  MoveEstimate estimate;
  std::set<pid_t> pids;
  for (const VGpuMove& move : moves) {
    const VGpu& vgpu = *daemon.VGpus().Find(move.vgpu);
    report.moves.push_back({vgpu.spec.name, vgpu.gpu, move.to});
    estimate.Add(daemon.Gpus()[vgpu.gpu]->Placement(), vgpu);
    for (const Process* process : vgpu.processes) pids.insert(process->pid);
  }
  report.pids.assign(pids.begin(), pids.end());
  report.moved = estimate.moved;
  report.saved = estimate.saved;
  report.seconds = estimate.Seconds(pids.empty() ? 0 : rounds);
  return report;
}

Result<MigrationReport> SuspensionControl::Migrate(const Control::Subject& subject,
                                                   const std::vector<std::string>& gpus, bool dry) {
  return OnLoop([this, subject, gpus, dry](Nanos now) -> Result<MigrationReport> {
    const auto moves = MovesOf(subject, gpus);
    if (!moves) return std::unexpected(moves.error());
    Migrations& migrations = control_.daemon_.Moves().migrations;
    if (auto may = migrations.Check(*moves); !may) return std::unexpected(may.error());
    MigrationReport report = ReportMigration(control_.daemon_, *moves);
    const bool stays = std::ranges::all_of(report.moves, [](const auto& move) { return move.from == move.to; });
    if (dry || stays) return report;
    if (auto begun = migrations.Begin(*moves, now); !begun) return std::unexpected(begun.error());
    return report;
  });
}

}  // namespace tessera::server
