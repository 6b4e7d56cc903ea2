#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sched/residency/planner/residency_planner.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"
#include "server/record/histogram.h"
#include "server/swap/host_watch.h"
#include "server/swap/mover_link.h"
#include "server/swap/residency_actions.h"
#include "server/swap/residency_host.h"

namespace tessera::server {

// The state of a GPU's memory that is swapped, for reports.
struct ResidencyFigures {
  std::uint64_t swap_max = 0, pool = 0, pool_used = 0;
  std::uint64_t pool_goal = 0;  // what the pool is to have
  std::uint64_t file = 0, file_used = 0;
  int file_error = 0;  // errno value of why nothing more is written to the file
  std::uint64_t capacity = 0;
  pid_t mover = 0;
  std::string decision;  // for people
  bool turns = false;
  Nanos turn = 0;
  Histogram moves_out, moves_in;  // how long it took until what was ordered of a process was done
};

// The places for what does not fit on a GPU, in bytes.
struct SwapSize {
  std::uint64_t pool = 0;                    // of host memory at most
  std::uint64_t file = 0;                    // of the pool's file; 0: it has none
  std::optional<std::uint64_t> prepare = 0;  // of the pool, as in sched::PoolResidence
  std::uint64_t kept = 0;                    // of the pool, what an earlier daemon's mover has left
};

// Serves the room of one GPU, and sees to it that what runs is resident. It decides nothing: after each event it takes
// a snapshot of where memory lies, has sched::ResidencyPlanner make a plan, and carries that out. docs/memory.md. Runs
// on the loop's thread.
class ResidencyServer {
 public:
  using Host = ResidencyHost;
  using Figures = ResidencyFigures;

  // The loop and the vGPUs outlive the server.
  ResidencyServer(EventLoop& loop, std::uint32_t gpu, const sched::ResidencyConfig& config, const SwapSize& swap,
                  const std::vector<VGpu*>& vgpus, Host host);

  void Configure(const sched::ResidencyConfig& config) {
    planner_.Configure(config);
    host_watch_.Configure(config.on_host);
  }

  // Something happened that may matter: work began or ended, memory was freed, terms changed, a vGPU came or went. The
  // loop looks once after the event.
  void MarkDue() { look_.MarkDue(); }
  // Looks now, and does what is to be done.
  void Look(Nanos now);

  // A process came to its vGPU, and had so many bytes when it came, under an earlier daemon. If kernels could not touch
  // all of its memory it stands still from now on, until a mover has settled it.
  void Join(Process& process, std::uint64_t had, Nanos now);
  // It has been taken off its vGPU.
  void Leave(Process& process, Nanos now);
  // The program's end of a new line to the mover; the old one, if there is any, is dead. Empty if none can be made.
  UniqueFd MakeLine(Process& process, Nanos now) { return link_.MakeLine(process, now); }

  // The process needs room; `pins`: for what cannot be moved. If it is granted it has that; if it has to wait, it finds
  // the room in its credit later.
  sched::RoomAnswer::Kind Ask(Process& process, std::uint64_t bytes, bool pins, Nanos now);
  // The process is about to make a context of so many bytes. If they are granted the caller counts them from now on:
  // they are not room. If it has to wait, it is rung, and asks again.
  sched::RoomAnswer::Kind AskForContext(Process& process, std::uint64_t bytes, Nanos now);

  // Brings `bytes` of the process's memory out now; it comes back when it is used. ENOSYS if it has no line, EAGAIN
  // if there is no mover.
  Result<void> Push(Process& process, std::uint64_t bytes, Nanos now);

  // Whether a program here leaves the GPU, or comes back with its memory. And whether some program of the machine does:
  // then nothing is prepared.
  bool ProgramsTravel() const;
  void Rest(bool rests) { link_.Rest(rests); }

  // A mover is needed soon.
  void StartMover(Nanos now) { link_.Ensure(now); }

  Figures FiguresAt(Nanos now) const;
  // For the order of turns over several GPUs, as of the last look.
  bool TakesTurns() const { return planner_.TakesTurns(); }
  sched::TurnWishes Wishes() const { return planner_.Wishes(); }
  std::uint64_t SwapMax() const { return link_.Pool().most; }
  // For a handover of slots (server/handover).
  MoverLink& Link() { return link_; }
  // Its pid (0: none runs). It is in no vGPU.
  pid_t MoverPid() const { return link_.Pid(); }

 private:
  void Snapshot(Nanos now, sched::ResidencyState& state) const;
  void CarryOut(const sched::ResidencyPlan& plan, Nanos now);
  void ReportShortage();
  void ReportRefusal(Process& process, std::uint64_t bytes, const sched::RoomAnswer& answer, Nanos now) const;
  void TellSqueezes(Nanos now);
  void OnMoverGone();
  void OnReport(const wire::MoverMessage& message, Nanos now);
  void OnEnd(Process& process, const wire::MoverMessage& message, Nanos now);
  void OnFailure(Process& process, const wire::MoverMessage& message, Nanos now);
  void OnSettled(Process& process, int error, Nanos now);
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (VGpu* vgpu : vgpus_) {
      for (Process* process : vgpu->processes) visit(*process);
    }
  }

  const std::uint32_t gpu_;
  const std::uint64_t file_;
  const std::vector<VGpu*>& vgpus_;
  const Host host_;
  MoverLink link_;
  ResidencyActions actions_;
  HostWatch host_watch_;
  sched::ResidencyPlanner planner_;
  sched::ResidencyState state_;  // as of the last look
  EventLoop::Timer timer_;       // the next look, if nothing happens before
  EventLoop::Deferred look_;
  bool was_pressed_ = false;
  bool awaited_ = false;
  bool shortage_reported_ = false;
  Histogram moves_out_, moves_in_;
  Nanos last_moved_ = 0;       // when the mover last said that it had
  Nanos pool_full_until_ = 0;  // host memory that was needed was not to be had
};

}  // namespace tessera::server
