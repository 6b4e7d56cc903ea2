#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/config/config.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"
#include "server/record/histogram.h"
#include "server/time/aside.h"
#include "server/time/goal_server.h"
#include "server/time/time_server.h"
#include "server/time/time_ways.h"

namespace tessera::server {

// Control of the time of one GPU: has the time server of the way that TimeWays chooses, hands it what the processes
// say, wakes it at its deadlines, and notes who waits. Runs on the loop's thread.
class TimeControl {
 public:
  struct Hooks {
    std::function<void(Nanos)> looked;      // who runs and who waits was noted
    std::function<void(Nanos)> event_over;  // after an event of a process that may have changed that
    // A process is about to work for the first time since it joined, or since a context of it ended.
    std::function<void(const Process&)> begins = [](const Process&) {};
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

  // A vGPU's shares and memory were changed, a process of it is gone, or its goal server has heard something: after all
  // parts have heard of it.
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
  // The process made or lost channels, or it is now the MPS server of a space.
  void ChannelsChanged(pid_t pid, Nanos now);

  // Chooses the way again, and what stops each process, because what permits that may have changed.
  void Choose(Nanos now);
  // Makes the time server again, because the way or the configuration has changed.
  void Restart(Nanos now);
  const TimeWays& Ways() const { return ways_; }

  // These stand still from now on for jobs on several GPUs, and no others.
  void StandForGangs(std::set<sched::VgpuId> vgpus, Nanos now);

  // Does what is due by then; the object's own timer calls it, too.
  void AdvanceTo(Nanos now);
  // Changes no gate from now on: programs keep their last orders until the next daemon is there.
  void Seal() { server_->Seal(); }

  // Whoever tells it something calls Changed then.
  GoalServer& Goals() { return goals_; }
  Figures FiguresOf(const VGpu& vgpu, Nanos now) const;
  // Delay from a deadline of the scheduler to its execution.
  const Histogram& Lateness() const { return lateness_; }

 private:
  std::unique_ptr<TimeServer> MakeServer() const;
  void Begins(Process& process, Nanos now);
  void GiveAgain(const VGpu& vgpu, Nanos now);
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
  TimeWays ways_;
  std::string untold_;  // how the time is divided now, if log and events do not know
  Nanos told_at_ = 0;   // when they were told; 0: never
  std::unique_ptr<TimeServer> server_;
  Aside aside_;
  GoalServer goals_;
  EventLoop::Timer timer_;  // the next deadline of the server or of goals
  Histogram lateness_;
};

}  // namespace tessera::server
