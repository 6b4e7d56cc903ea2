#include "channel/control/process_objects.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

constexpr std::uint32_t kMostGpus = 64;
constexpr std::size_t kMostFalseClaims = 256;  // of one program: that many contexts may end while we look

}  // namespace

bool ProcessObjects::Apply(const ObjectEvent& event, Source source) {
  if (source != Source::kGuard && guarded_) return false;
  if (source == Source::kGuard && !std::exchange(guarded_, true)) {
    table_ = {};
    claimed_ = refused_ = false;
  }
  if (!table_.Apply(event)) return false;
  if (source == Source::kShim) {
    claimed_ = true;
    verified_ = false;
  } else if (!claimed_) {
    verified_ = true;
  }
  return true;
}

void ProcessObjects::Restore(const std::vector<ObjectEvent>& events) {
  for (const ObjectEvent& event : events) table_.Apply(event);
  verified_ = verified_ || !claimed_;
}

Target ProcessObjects::TargetOn(const Control& control, std::uint32_t gpu, pid_t pid, int process_fd) const {
  return {.pid = pid, .process_fd = process_fd, .groups = table_.Groups(control.DeviceInstance(gpu))};
}

// A client without a group (KEPLER_CHANNEL_GROUP_A) cannot be asked: there is no slice to ask for.
bool ProcessObjects::Verify(Control& control, pid_t pid, int process_fd) {
  if (control.KnowsProcesses()) return true;
  if (verified_ || refused_) return verified_;
  std::map<std::uint32_t, bool> clients;  // whether they proved to be the process's
  std::vector<Group> gone;
  for (std::uint32_t gpu = 0; gpu < kMostGpus; ++gpu) {
    Target target = TargetOn(control, gpu, pid, process_fd);
    const auto groups = std::move(target.groups);
    for (const Group& group : groups) {
      if (group.handle == 0 || clients[group.client]) {
        clients.try_emplace(group.client, false);
        continue;
      }
      target.groups = {group};
      target.groups[0].engine = abi::kEngineGraphics;  // groups that copy have a slice to ask for, too
      const auto slice = control.Slice(gpu, target);
      if (slice || slice.error().code == EPERM || slice.error().code == ESRCH) {
        clients[group.client] = true;
      } else if (slice.error().code == ENOENT) {
        gone.push_back(group);
      }
    }
  }
  // No process has these: they ended, and the news of that is under way or never comes (a file that was closed). A
  // process that claims such things again and again is refused.
  for (const Group& group : gone) {
    table_.Apply({.kind = ObjectEvent::Kind::kFree, .client = group.client, .object = group.handle});
    if (!clients[group.client]) clients.erase(group.client);
  }
  false_claims_ += gone.size();
  const bool proved = std::ranges::all_of(clients, [](const auto& client) { return client.second; });
  if (proved && false_claims_ < kMostFalseClaims) return verified_ = true;
  refused_ = true;
  table_ = {};
  return false;
}

}  // namespace tessera::channel
