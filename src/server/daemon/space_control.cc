#include "server/daemon/space_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "server/gpu/gpu_choice.h"

namespace tessera::server {

template <typename Task>
std::invoke_result_t<Task> SpaceControl::OnLoop(Task task) const {
  auto answer = control_.loop_.Call([this, task = std::move(task)] {
    control_.daemon_.StayAwhile(MonotonicNow());
    return task();
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

bool SpaceControl::MaySee(uid_t owner) const { return control_.Who().IsOperator() || owner == control_.Who().uid; }

Result<std::vector<SpaceReport>> SpaceControl::All() const {
  return OnLoop([this]() -> Result<std::vector<SpaceReport>> {
    std::vector<SpaceReport> reports = ReportSpaces(control_.daemon_, MonotonicNow());
    std::erase_if(reports, [this](const SpaceReport& space) { return !MaySee(space.uid); });
    return reports;
  });
}

Result<SpaceReport> SpaceControl::Named(const std::string& name) const {
  auto all = All();
  if (!all) return std::unexpected(all.error());
  const auto found = std::ranges::find(*all, name, &SpaceReport::name);
  if (found != all->end()) return std::move(*found);
  return SpaceTable::NoSuch(name);
}

Result<void> SpaceControl::Change(std::function<Result<void>(Daemon&)> change) const {
  if (auto allowed = control_.daemon_.Access().Allowed(control_.Who(), Operation::kCreateVGpu); !allowed)
    return allowed;
  auto changed = OnLoop([this, change = std::move(change)] {
    auto done = change(control_.daemon_);
    if (done) control_.daemon_.SpacesChanged();
    return done;
  });
  if (changed) control_.daemon_.AwaitSaved();
  return changed;
}

Result<SpaceReport> SpaceControl::Create(const std::string& name, const std::optional<std::string>& gpu) const {
  auto made = Change([name, gpu, caller = control_.Who()](Daemon& daemon) -> Result<void> {
    const SpaceTable& spaces = daemon.Spaces();
    const auto used =
        std::ranges::count_if(spaces.All(),
                              [&](const Space* each) { return each->Kept() && each->Who().uid == caller.uid; }) +
        std::ranges::count(spaces.Absent(), caller.uid, &SavedSpace::uid);
    if (auto fits = daemon.Quotas().AdmitSpace(caller, static_cast<std::uint64_t>(used)); !fits) return fits;
    const auto on = GpusNamed(gpu, daemon.Gpus());
    if (!on) return std::unexpected(on.error());
    return daemon.Spaces().Create(name, caller.uid, on->front(), FormatUuid(daemon.Gpus()[on->front()]->Info().uuid));
  });
  if (!made) return std::unexpected(made.error());
  return Named(name);
}

Result<void> SpaceControl::Remove(const std::string& name) const {
  return Change([this, name](Daemon& daemon) -> Result<void> {
    const auto owner = daemon.Spaces().OwnerOf(name);
    if (!owner || !MaySee(*owner)) return SpaceTable::NoSuch(name);
    return daemon.Spaces().Remove(name);
  });
}

}  // namespace tessera::server
