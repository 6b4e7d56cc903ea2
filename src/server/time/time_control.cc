#include "server/time/time_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"
#include "server/time/space_server.h"
#include "server/time/steering_server.h"
#include "server/time/token_server.h"

namespace tessera::server {

TimeControl::TimeControl(EventLoop& loop, std::uint32_t gpu, const Config& config, ChannelServer& channels,
                         const std::vector<VGpu*>& vgpus, Hooks hooks)
    : loop_(loop),
      gpu_(gpu),
      config_(config),
      channels_(channels),
      vgpus_(vgpus),
      hooks_(std::move(hooks)),
      ways_(gpu, channels, vgpus),
      server_(MakeServer()),
      goals_(vgpus, config, aside_),
      timer_(loop, [this] { OnTimer(MonotonicNow()); }) {
  aside_.Serve(*server_, 0);
  TellMeans(0);
}

// ---- the choice ----

void TimeControl::Choose(Nanos now) {
  if (ways_.Choose()) Restart(now);
  TellWay(now);
  for (const VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      if (const auto stop = ways_.StopFor(*process); process->gate.stop != stop)
        server_->ChannelsChanged(process->gate, stop, now);
    }
  }
}

std::unique_ptr<TimeServer> TimeControl::MakeServer() const {
  if (!FreezesChannels(ways_.Present())) return std::make_unique<TokenServer>(config_.sched, config_.in_flight);
  return std::make_unique<SpaceServer>(
      std::make_unique<SteeringServer>(gpu_, config_.steering, config_.in_flight, channels_), config_.sched,
      config_.in_flight, channels_);
}

void TimeControl::Restart(Nanos now) {
  std::map<const Process*, GateRecord::State> before;
  for (VGpu* vgpu : vgpus_) {
    vgpu->usage_before = UsageOf(*vgpu, now);
    for (const Process* process : vgpu->processes) before[process] = process->gate.state;
  }
  server_->Abandon(now);
  server_ = MakeServer();
  for (VGpu* vgpu : vgpus_) {
    if (vgpu->removed) continue;
    GiveAgain(*vgpu, now);
    for (Process* process : vgpu->processes) {
      process->gate.stop = ways_.StopFor(*process);
      server_->Join(vgpu->id, process->gate, now);
      // A free gate lets work that was on its way go on without a word. At a closed one it drains, and says so.
      const bool works =
          before[process] == GateRecord::State::kRunning || before[process] == GateRecord::State::kDraining;
      if (process->who.guest || works) {
        server_->Wants(process->gate, now, false);
      } else if (FreezesChannels(ways_.Present()) && before[process] == GateRecord::State::kWanting) {
        server_->Wants(process->gate, now, true);  // the open gate is its answer, so it says nothing more
      }
    }
  }
  aside_.Serve(*server_, now);
  TellMeans(now);
  SetTimer();
  untold_ = ways_.Text();
  TellWay(now);
}

// It was admitted once, but a packing that is looked for anew may be higher than the one that its space had: then it
// has no request until it is set again.
void TimeControl::GiveAgain(const VGpu& vgpu, Nanos now) {
  sched::Shares shares = goals_.SharesOf(vgpu);
  const auto given = server_->Set(vgpu.id, shares, now);
  if (given) return;
  log::Warn("GPU {}: vGPU {} loses its request until it is set again: {}", gpu_, vgpu.spec.name, given.error().Text());
  shares.request_pct = 0;
  if (auto set = server_->Set(vgpu.id, shares, now); !set)
    log::Error("GPU {}: vGPU {}: {}", gpu_, vgpu.spec.name, set.error().Text());
}

// Means by which the present way can keep goals.
void TimeControl::TellMeans(Nanos now) {
  using enum sched::Means;
  if (!FreezesChannels(ways_.Present()))
    return goals_.Serve(*server_, kRequests,
                        "time is shared by gates: a latency goal is only measured, a speed goal is a request; more "
                        "needs channel control",
                        now);
  if (config_.steering.fixed_slices)
    return goals_.Serve(*server_, kNone, "only measured, as channels.mode is static", now);
  goals_.Serve(*server_, kAll, "", now);
}

// At most once a second: a program can make the way change as often as it likes.
void TimeControl::TellWay(Nanos now) {
  if (untold_.empty() || (told_at_ != 0 && now - told_at_ < kSecond)) return;
  told_at_ = now;
  log::Info("GPU {}: time is shared by {}", gpu_, untold_);
  events::Note({.type = EventType::kControlChanged, .gpu = gpu_, .text = "by " + std::exchange(untold_, {})});
}

// ---- vGPUs and processes ----

Result<void> TimeControl::Set(const VGpu& vgpu, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                              bool restored, Nanos now) {
  auto set = goals_.Set(vgpu, shares, goal, restored, now);
  SetTimer();
  return set;
}

void TimeControl::Remove(const VGpu& vgpu, Nanos now) {
  goals_.Remove(vgpu, now);
  SetTimer();
}

void TimeControl::Join(Process& process, Nanos now) {
  process.gate.waits = &process.vgpu->waits;
  process.gate.stop = ways_.StopFor(process);
  server_->Join(process.vgpu->id, process.gate, now);
}

void TimeControl::Leave(Process& process, Nanos now) {
  server_->Leave(process.gate, now);
  process.gate.waits = nullptr;
  goals_.Left(process, now);
}

// It uses the GPU from now on, if that was not known.
void TimeControl::Begins(Process& process, Nanos now) {
  if (process.work.worked || process.who.guest) return;
  channels_.ClientWorks(process.pid);
  hooks_.begins(process);
  process.work.worked = true;
  Choose(now);
}

void TimeControl::Wants(Process& process, bool waits, Nanos now) {
  if (!process.work.worked && !process.who.guest) {
    channels_.ClientWorks(process.pid);
    hooks_.begins(process);
  }
  server_->Wants(process.gate, now, waits);
  if (!process.work.worked && !process.who.guest) {
    process.work.worked = true;
    Choose(now);
  }
  goals_.Works(process, now);
  AfterEvent(*process.vgpu, now);
}

void TimeControl::Idle(Process& process, Nanos since, Nanos now) {
  server_->Idle(process.gate, now, since);
  goals_.Idle(process, since, now);
  AfterEvent(*process.vgpu, now);
}

void TimeControl::Released(Process& process, Nanos drained_at, std::uint32_t epoch, Nanos now) {
  server_->Released(process.gate, now, drained_at, epoch);
  goals_.Drained(process, drained_at, now);
  AfterEvent(*process.vgpu, now);
}

void TimeControl::Sampled(Process& process, bool works, Nanos since, Nanos now) {
  if (!process.who.guest) {
    GateRecord::Stop stop = process.gate.stop;
    if (std::exchange(stop.believed, works) == works) return;
    server_->ChannelsChanged(process.gate, stop, now);
    return AfterEvent(*process.vgpu, now);
  }
  if (works) {
    server_->Wants(process.gate, now, false);
    goals_.Works(process, now);
  } else {
    server_->Idle(process.gate, now, since);
    goals_.Idle(process, since, now);
  }
  SetTimer();
}

// A process that was away has lost its channels, and the daemon does not know any more that it works. It says once that
// it waits.
void TimeControl::Hold(Process& process, Nanos now) {
  if (!process.MustStand() && process.gate.state == GateRecord::State::kWanting) Begins(process, now);
  if (process.gate.held != process.MustStand()) server_->Hold(process.gate, process.MustStand(), now);
  AfterEvent(*process.vgpu, now);
}

void TimeControl::ChannelsChanged(pid_t pid, Nanos now) {
  for (const VGpu* vgpu : vgpus_) {
    for (Process* process : vgpu->processes) {
      if (process->pid != pid) continue;
      server_->ChannelsChanged(process->gate, ways_.StopFor(*process), now);
      // A context ended. Without channels it does nothing; when it works again we see what it has then.
      if (!channels_.Knows(pid, gpu_)) process->work.worked = false;
    }
  }
  Choose(now);
  server_->LeadersChanged(now);
  SetTimer();
}

// ---- gangs ----

void TimeControl::StandForGangs(std::set<sched::VgpuId> vgpus, Nanos now) {
  aside_.Set(Aside::For::kGang, std::move(vgpus), now);
  SetTimer();
  NoteStandings(now);
}

// ---- time that passes ----

// The timer may come early; that is no delay.
void TimeControl::OnTimer(Nanos now) {
  const Nanos due = server_->NextDeadline().at;
  if (due <= now) lateness_.Note(now - due);
  AdvanceTo(now);
}

void TimeControl::AdvanceTo(Nanos now) {
  server_->Advance(now);
  goals_.Advance(now);
  SetTimer();
  NoteStandings(now);
}

// While a vGPU that goes before those that run may become active any moment, the loop does not sleep: waking up would
// cost as much as the freeze itself.
void TimeControl::SetTimer() {
  const TimeServer::Deadline next = server_->NextDeadline();
  timer_.Arm(std::min(next.at, goals_.NextDeadline()));
  if (next.urgent) loop_.SpinFor(config_.priority_spin);
}

void TimeControl::AfterEvent(VGpu& vgpu, Nanos now) {
  SetTimer();
  NoteStandings(now);
  if (!vgpu.removed && vgpu.busy.Due(now)) vgpu.busy.Note(now, UsageOf(vgpu, now).busy);
  hooks_.event_over(now);
}

namespace {

// Where channels are steered a process that runs, as it believes, may be frozen with its vGPU.
bool WaitsWith(const VGpu& vgpu, const Process& process) {
  using State = GateRecord::State;
  const State state = process.gate.state;
  return vgpu.standing.Present().standing == Standing::kWaiting && !process.gate.held &&
         (state == State::kWanting || state == State::kRunning);
}

}  // namespace

// An event of one vGPU may make another one wait, or end its wait.
void TimeControl::NoteStandings(Nanos now) {
  for (VGpu* vgpu : vgpus_) {
    const TimeServer::State state = server_->StateOf(vgpu->id);
    const bool waits = state.standing == Standing::kWaiting;
    WaitReason why = waits ? state.why : WaitReason::kNone;
    if (why == WaitReason::kClass && aside_.Has(Aside::For::kGang, vgpu->id)) why = WaitReason::kTurn;
    vgpu->compute_pressure.Note(now, waits);
    if (const auto before = vgpu->standing.Note(now, state.standing, why))
      trace::Note({.at = now,
                   .took = before->since == 0 ? 0 : now - before->since,
                   .value = static_cast<std::uint64_t>(state.standing),
                   .other = static_cast<std::uint64_t>(why),
                   .vgpu = vgpu->id,
                   .gpu = gpu_,
                   .kind = TraceKind::kStanding,
                   .old_value = static_cast<std::uint32_t>(before->standing),
                   .old_other = static_cast<std::uint32_t>(before->why)});
    for (Process* process : vgpu->processes) process->work.waited.Note(WaitsWith(*vgpu, *process), now);
  }
  hooks_.looked(now);
}

// ---- figures ----

sched::Usage TimeControl::UsageOf(const VGpu& vgpu, Nanos now) const {
  sched::Usage usage = server_->UsageOf(vgpu.id, now);
  usage.busy += vgpu.usage_before.busy;
  usage.waited += vgpu.usage_before.waited;
  return usage;
}

TimeControl::Figures TimeControl::FiguresOf(const VGpu& vgpu, Nanos now) const {
  const TimeServer::State state = server_->StateOf(vgpu.id);
  const sched::Usage usage = UsageOf(vgpu, now);
  return {
      .standing = state.standing, .slice = state.slice, .usage = usage, .percent = vgpu.busy.Percent(now, usage.busy)};
}

}  // namespace tessera::server
