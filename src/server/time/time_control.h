#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sched/gangs/gang_time.h"
#include "server/channels/channel_server.h"
#include "server/config/config.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"
#include "server/record/histogram.h"
#include "server/time/aside.h"
#include "server/time/divider.h"
#include "server/time/goal_server.h"
#include "server/time/time_server.h"

namespace tessera::server {

// Chooses how the time of one GPU is divided, and has the time server that does it: hands it what the processes say,
// wakes it at its deadlines, and notes who waits. A new way is a row of `kWays`. Runs on the loop's thread.
class TimeControl {
 public:
  struct Hooks {
    std::function<void(Nanos)> looked;      // who runs and who waits was noted
    std::function<void(Nanos)> event_over;  // after an event of a process that may have changed that
  };
  struct Figures {
    Standing standing = Standing::kIdle;
    Nanos slice = 0;  // of all its processes together; 0: the driver's default
    sched::Usage usage;
    double percent = 0;  // of the last second in which it was busy
  };

  // Everything that is given outlives the object. `config` is read again when a server is made.
  TimeControl(EventLoop& loop, std::uint32_t gpu, const Config& config, ChannelServer& channels,
              const std::vector<VGpu*>& vgpus, Hooks hooks);
  TimeControl(const TimeControl&) = delete;

  // Adds the vGPU, or changes its shares and its goal: GoalServer::Set.
  Result<void> Set(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal, bool restored,
                   Nanos now);
  // Closes the gates of the processes that are left, for good.
  void Remove(const VGpu& vgpu, Nanos now);

  // A vGPU's shares and memory were changed, or a process of it is gone: after all parts have heard of it.
  void Changed(VGpu& vgpu, Nanos now) { AfterEvent(vgpu, now); }

  void Join(Process& process, Nanos now);
  void Leave(Process& process, Nanos now);

  // Messages of processes; docs/protocol.md.
  void Wants(Process& process, bool waits, Nanos now);
  void Idle(Process& process, Nanos since, Nanos now);
  void Released(Process& process, Nanos drained_at, std::uint32_t epoch, Nanos now);
  // The device's samples of a process without a shim: it works, or has not since then. Of one whose channels are not
  // known: whether others must stand back for the work that it tells of.
  void Sampled(Process& process, bool works, Nanos since, Nanos now);
  // The reasons that forbid the process to run may have changed: Process::MustStand.
  void Hold(Process& process, Nanos now);
  // The process made or lost channels.
  void ChannelsChanged(pid_t pid, Nanos now);
  // The MPS server of a space is another.
  void LeadersChanged(Nanos now);

  // Chooses the way again, and what stops each process, because what permits that may have changed.
  void Choose(Nanos now);
  // Makes the time server again, because the configuration has changed.
  void Restart(Nanos now) { SwitchTo(*way_, now); }
  // The present way.
  Divider DividedBy() const { return way_->divider; }
  // Whether the present way leaves gates open and stops vGPUs by freezing their channels.
  bool FreezesChannels() const { return way_->freezes_channels; }
  // Why this way was passed over; empty if it was not, and before the first choice.
  std::string WhyNot(Divider divider) const;

  // The vGPU as the order of gangs sees it, in no gang; nothing where the present way cannot make it stand.
  std::optional<sched::GangPart> PartOf(const VGpu& vgpu) const;
  // These stand still from now on for jobs on several GPUs, and no others.
  void StandForGangs(std::set<sched::VgpuId> vgpus, Nanos now);

  // Does what is due by then; the object's own timer calls it, too.
  void AdvanceTo(Nanos now);
  // Changes no gate from now on: programs keep their last orders until the next daemon is there.
  void Seal() { server_->Seal(); }

  // Empty for a vGPU without a goal.
  std::optional<sched::GoalReport> GoalOf(const VGpu& vgpu, Nanos now) { return goals_.ReportOf(vgpu, now); }
  Figures FiguresOf(const VGpu& vgpu, Nanos now) const;
  // Delay from a deadline of the scheduler to its execution.
  const Histogram& Lateness() const { return lateness_; }

 private:
  struct Way {
    Divider divider;
    const char* name;  // as log and events say it
    bool freezes_channels;
    std::string (*why_not)(const TimeControl&);  // empty: it can serve now
    std::unique_ptr<TimeServer> (*make)(const TimeControl&);
  };
  static const std::vector<Way>& Ways();

  std::string WhyUnsteerable() const;
  std::string WhySpacesUnsteerable() const;
  GateRecord::Stop StopFor(const Process& process) const;
  void SwitchTo(const Way& way, Nanos now);
  void TellMeans(Nanos now);
  void TellWay(Nanos now);
  void OnTimer(Nanos now);
  void SetTimer();
  void AfterEvent(VGpu& vgpu, Nanos now);
  void NoteStandings(Nanos now);
  sched::Usage UsageOf(const VGpu& vgpu, Nanos now) const;

  EventLoop& loop_;
  const std::uint32_t gpu_;
  const Config& config_;
  ChannelServer& channels_;
  const std::vector<VGpu*>& vgpus_;
  const Hooks hooks_;
  const Way* way_;
  std::string untold_;                          // how the time is divided now, if log and events do not know
  Nanos told_at_ = 0;                           // when they were told; 0: never
  std::map<Divider, std::string> passed_over_;  // better ways, and why they cannot serve
  std::unique_ptr<TimeServer> server_;
  Aside aside_;
  GoalServer goals_;
  EventLoop::Timer timer_;  // the next deadline of the server or of goals
  Histogram lateness_;
};

}  // namespace tessera::server
