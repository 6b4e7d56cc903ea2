#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/goals/goals.h"
#include "server/config/config.h"
#include "server/model/vgpu.h"
#include "server/time/aside.h"
#include "server/time/space_modes.h"
#include "server/time/time_server.h"

namespace tessera::server {

// Keeper of the goals of one GPU's vGPUs: notes the bursts of all, tells them to sched::Goals, gives the time server
// the shares that come of it, and tells of verdicts. While no vGPU has a goal it notes bursts, and does nothing else.
// Runs on the loop's thread.
class GoalServer {
 public:
  using Id = sched::VgpuId;

  // All outlive the object.
  GoalServer(const std::vector<VGpu*>& vgpus, const Config& config, Aside& aside)
      : vgpus_(vgpus), aside_(aside), modes_(vgpus, config) {}
  GoalServer(const GoalServer&) = delete;

  // This server divides the time from now on; it has the shares of SharesOf. Goals may be kept by these means at most,
  // and `why_not_all` says why. `server` outlives the next call of this.
  void Serve(TimeServer& server, sched::Means means, std::string why_not_all, Nanos now);

  // Adds the vGPU, or changes its shares and goal; its spec is as before. ENOSPC if a goal could not be kept then.
  // `restored`: an earlier daemon had it so. Then a goal that does not fit is only judged, and the log says so. A
  // failure changes nothing.
  Result<void> Set(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal, bool restored,
                   Nanos now);
  // Takes it from the time server, too.
  void Remove(const VGpu& vgpu, Nanos now);
  // The shares that the time server gives the vGPU: its spec under the present terms.
  sched::Shares SharesOf(const VGpu& vgpu) const;

  // The process has work; has had none since then; or is gone, and is in its vGPU's list still. To be called when its
  // gate has that state.
  void Works(const Process& process, Nanos now);
  void Idle(const Process& process, Nanos since, Nanos now);
  // Its gate has closed, and its work ended then. If it has more, it says so at once: that is the same burst.
  void Drained(const Process& process, Nanos since, Nanos now);
  void Left(const Process& process, Nanos now);
  // Its program tells that its requests took so long.
  void NoteRequests(VGpu& vgpu, std::span<const Nanos> latencies, Nanos now);

  // To be called at the deadline; kNever: there is none.
  void Advance(Nanos now);
  Nanos NextDeadline() const {
    return std::min({goals_ ? goals_->NextDeadline() : kNever, modes_.NextDeadline(), drained_end_});
  }

  // Empty for a vGPU without a goal.
  std::optional<sched::GoalReport> ReportOf(const VGpu& vgpu, Nanos now) const;
  const SpaceModes& Modes() const { return modes_; }

 private:
  using Change = std::pair<Id, sched::Shares>;

  void Begin(Nanos now);
  void EndIfNone();
  sched::Backing BackingOf(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal) const;
  std::string NoteOn(const VGpu& vgpu) const;
  Result<void> Promise(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                       bool restored, Nanos now);
  std::vector<Change> TakeChanges(Id without);
  Result<void> Give(std::vector<Change> changes, Id own, Nanos now);
  Result<void> GiveOne(Id id, const sched::Shares& shares, Nanos now);
  const VGpu* Find(Id id) const;
  void EndBurst(VGpu& vgpu, Nanos since, bool goes_on, Nanos now);
  void EndDrained(Nanos now);
  Nanos DrainedEnd() const;
  void Tell(const VGpu& vgpu, Nanos now);
  void Act(Nanos now);
  void SetAside(Nanos now);
  void TellVerdicts(Nanos now);
  sched::Shares Under(const sched::Shares& shares, Id id, bool goal) const;

  const std::vector<VGpu*>& vgpus_;
  Aside& aside_;
  TimeServer* server_ = nullptr;
  sched::Means means_ = sched::Means::kAll;
  std::string why_not_all_;
  SpaceModes modes_;
  Nanos drained_end_ = kNever;  // when the first burst ends whose gates have closed

  // While a vGPU has a goal.
  std::unique_ptr<sched::Goals> goals_;
  std::set<Id> with_goal_;
  std::map<Id, sched::Terms> terms_;
  std::map<Id, sched::Shares> given_;     // to the time server
  std::map<Id, std::string> unpromised_;  // vGPUs whose goal does not fit, and why
};

}  // namespace tessera::server
