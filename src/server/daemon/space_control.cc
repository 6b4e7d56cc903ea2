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

Result<std::vector<SpaceReport>> SpaceControl::All() const {
  return OnLoop([this]() -> Result<std::vector<SpaceReport>> {
    std::vector<SpaceReport> reports = ReportSpaces(control_.daemon_);
    const Caller& caller = control_.Who();
    std::erase_if(reports,
                  [&caller](const SpaceReport& space) { return !caller.IsOperator() && space.uid != caller.uid; });
    return reports;
  });
}

Result<SpaceReport> SpaceControl::Named(const std::string& name) const {
  auto all = All();
  if (!all) return std::unexpected(all.error());
  const auto found = std::ranges::find(*all, name, &SpaceReport::name);
  if (found != all->end()) return std::move(*found);
  return Fail(ENOENT, fmt::format("there is no space {}", name), "see 'tessera space ls'");
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
  auto made = Change([name, gpu, uid = control_.Who().uid](Daemon& daemon) -> Result<void> {
    const auto on = GpusNamed(gpu, daemon.Gpus());
    if (!on) return std::unexpected(on.error());
    return daemon.Spaces().Create(name, uid, on->front(), FormatUuid(daemon.Gpus()[on->front()]->Info().uuid));
  });
  if (!made) return std::unexpected(made.error());
  return Named(name);
}

Result<void> SpaceControl::Remove(const std::string& name) const {
  if (auto seen = Named(name); !seen) return std::unexpected(seen.error());
  return Change([name](Daemon& daemon) { return daemon.Spaces().Remove(name); });
}

}  // namespace tessera::server
