#include "server/daemon/overview.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/daemon/space_control.h"

namespace tessera::server {
namespace {

constexpr std::size_t kPiece = 16;  // vGPUs and processes that one call to the loop reports

}  // namespace

template <typename Task>
std::invoke_result_t<Task> OverviewControl::OnLoop(Task task) const {
  auto answer = control_.loop_.Call([this, task = std::move(task)] {
    control_.daemon_.StayAwhile(MonotonicNow());
    return task();
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

Result<Overview> OverviewControl::Look(bool measure) const {
  const auto names = Names();
  if (!names) return std::unexpected(names.error());
  Overview overview;
  // Where users see no totals, the page shows the rest.
  if (auto gpus = Control(control_).Gpus(measure ? Control::Devices::kAsk : Control::Devices::kLastAnswer))
    overview.gpus = std::move(*gpus);
  auto spaces = SpaceControl(control_).All();
  if (!spaces) return std::unexpected(spaces.error());
  overview.spaces = std::move(*spaces);
  for (std::size_t next = 0; next < names->size();) {
    const auto reached = AddPiece(*names, next, overview);
    if (!reached) return std::unexpected(reached.error());
    next = *reached;
  }
  auto unmanaged = OnLoop([this]() -> Result<std::vector<ProcessReport>> {
    std::vector<ProcessReport> reports = ReportUnmanaged(control_.daemon_);
    std::erase_if(reports, [this](const ProcessReport& process) { return !control_.MaySee(process); });
    return reports;
  });
  if (!unmanaged) return std::unexpected(unmanaged.error());
  std::ranges::move(*unmanaged, std::back_inserter(overview.processes));
  return overview;
}

Result<std::vector<std::string>> OverviewControl::Names() const {
  // As for their events, which every user sees who may use the API at all.
  if (auto allowed = control_.daemon_.Access().Allowed(control_.Who(), Operation::kSeeEvents); !allowed)
    return std::unexpected(allowed.error());
  return OnLoop([this]() -> Result<std::vector<std::string>> {
    std::vector<std::string> names;
    for (const VGpu* vgpu : control_.daemon_.VGpus().All())
      if (control_.Allowed(Operation::kSeeVGpu, *vgpu)) names.push_back(vgpu->spec.name);
    return names;
  });
}

Result<std::size_t> OverviewControl::AddPiece(const std::vector<std::string>& names, std::size_t first,
                                              Overview& overview) const {
  return OnLoop([&]() -> Result<std::size_t> {
    const Nanos now = MonotonicNow();
    std::size_t next = first;
    for (std::size_t reported = 0; next < names.size() && reported < kPiece; ++next, ++reported) {
      const VGpu* vgpu = control_.daemon_.VGpus().Find(names[next]);
      // It may be gone meanwhile, or be another's.
      if (!vgpu || !control_.Allowed(Operation::kSeeVGpu, *vgpu)) continue;
      overview.vgpus.push_back(control_.Report(*vgpu, now));
      reported += vgpu->processes.size();
      for (ProcessReport& process : ReportProcesses(control_.daemon_, *vgpu, now))
        if (control_.MaySee(process)) overview.processes.push_back(std::move(process));
    }
    return next;
  });
}

}  // namespace tessera::server
