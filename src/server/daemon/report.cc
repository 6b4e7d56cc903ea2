#include "server/daemon/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>

#include "base/size.h"
#include "server/clients/unmanaged.h"
#include "server/daemon/daemon.h"
#include "server/spaces/own_sms.h"
#include "server/swap/chunks.h"

namespace tessera::server {
namespace {

const char* NameOf(Standing standing) {
  switch (standing) {
    case Standing::kRunning:
      return "running";
    case Standing::kWaiting:
      return "waiting";
    case Standing::kIdle:
      break;
  }
  return "idle";
}

const char* NameOf(GateRecord::State state) {
  switch (state) {
    case GateRecord::State::kRunning:
    case GateRecord::State::kDraining:
      return "active";
    case GateRecord::State::kWanting:
      return "waiting";
    case GateRecord::State::kParked:
      break;
  }
  return "idle";
}

FreezeReason ReasonsOf(Daemon& daemon, const Process& process) {
  // A process that waits at its gate is kept off the GPU without a call.
  const bool waits = FreezesChannels(daemon.Gpus()[process.vgpu->gpu]->Time().Ways().Present()) &&
                     process.gate.state == GateRecord::State::kWanting;
  return daemon.Channels().Freezer().StatusOf(process.pid, process.vgpu->gpu).reasons | process.WantedFreezes() |
         If(waits, FreezeReason::kPolicy);
}

std::int64_t Us(Nanos time) { return time / kMicrosecond; }

MovesReport ReportMoves(const Moves& moves) { return {.out = moves.out, .in = moves.in, .time_us = Us(moves.time)}; }

// Bytes that a process's suspension has still to move in this phase, if it moves some.
std::optional<std::uint64_t> LeftOf(const Process& process) {
  switch (process.suspension.phase) {
    case SuspensionPhase::kLeaves:
      return process.residence.Movable();
    case SuspensionPhase::kFiles:
    case SuspensionPhase::kReads:
      return process.residence.own_file.left > 0 ? std::optional(process.residence.own_file.left) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::string WhyNotEvicted(int error) {
  switch (error) {
    case 0:
      return {};
    case ENOMEM:
      return "the host memory for it is full";
    case EDQUOT:
      return "no more of its vGPU may lie in host memory (memory.swap.max)";
    case ECHILD:
      return "the mover ended";
    case EPIPE:
      return "the program does not answer";
    default:
      return std::strerror(error);
  }
}

// A test that failed concerns its own GPU only, and is named with it where the daemon has others.
CheckReport CheckControl(Daemon& daemon) {
  const Availability& availability = daemon.Channels().Availability();
  CheckReport check{.name = "channel control", .ok = true, .text = availability.Said(), .hint = ""};
  std::string failed;
  for (const auto& gpu : daemon.Gpus()) {
    const std::string& why = availability.Why(gpu->Index());
    if (why.empty()) continue;
    const bool all = daemon.Gpus().size() == 1 || availability.Testing() || !availability.WhyNone().empty();
    failed = all ? why : fmt::format("{}{}GPU {}: {}", failed, failed.empty() ? "" : "; ", gpu->Index(), why);
  }
  if (failed.empty()) return check;
  check.ok = false;
  check.text = std::move(failed);
  check.hint = "time is shared by gates there instead, for programs with the shim";
  return check;
}

SwapReport ReportSwap(const ResidencyServer& residency, Nanos now) {
  ResidencyServer::Figures figures = residency.FiguresAt(now);
  return {.max = figures.swap_max,
          .pool = figures.pool,
          .pool_used = figures.pool_used,
          .pool_goal = figures.pool_goal,
          .file = figures.file,
          .file_used = figures.file_used,
          .file_error = figures.file_error == 0 ? "" : std::strerror(figures.file_error),
          .capacity = figures.capacity,
          .mover = figures.mover != 0 ? std::optional(figures.mover) : std::nullopt,
          .decision = std::move(figures.decision),
          .mode = figures.turns ? "turns" : "together",
          .turn_us = Us(figures.turn),
          .moves_out = figures.moves_out,
          .moves_in = figures.moves_in};
}

void ReportCalls(const ChannelServer& channels, GpuReport& report, Nanos now) {
  const channel::CallCounts calls = channels.Calls().Counts();
  report.freezes = calls.freezes;
  report.thaws = calls.thaws;
  report.slices = calls.slices;
  report.call_failures = calls.failures;
  report.driver_calls = calls.freezes + calls.thaws + calls.slices;
  report.driver_calls_per_s = channels.Calls().rate.PerSecond(now);
  report.freeze_p50_us = Us(channels.Calls().freezes.Percentile(50));
  report.freeze_p99_us = Us(channels.Calls().freezes.Percentile(99));
  report.thaw_p50_us = Us(channels.Calls().thaws.Percentile(50));
  report.thaw_p99_us = Us(channels.Calls().thaws.Percentile(99));
  report.freeze_times = channels.Calls().freezes.All();
  report.thaw_times = channels.Calls().thaws.All();
}

DrainReport ReportDrain(Drains::Standing standing) {
  DrainReport report{.moving = std::move(standing.moving)};
  for (MovePlan::Stay& stay : standing.staying) report.staying.push_back({std::move(stay.name), std::move(stay.why)});
  return report;
}

GpuReport ReportGpu(Daemon& daemon, GpuServer& gpu, Nanos now) {
  const Ledger& ledger = gpu.Memory().Ledger();
  GpuReport report{.index = gpu.Index(),
                   .uuid = FormatUuid(gpu.Info().uuid),
                   .name = gpu.Info().name,
                   .driver = gpu.Info().driver,
                   .nvlink_group = gpu.Info().nvlink_group,
                   .soft = daemon.Traits().soft,
                   .memory_total = ledger.Capacity(),
                   .memory_reserve = ledger.Reserve(),
                   .memory_promised = ledger.Promised(),
                   .memory_unmanaged = gpu.Measurement().UnmanagedBytes(),
                   .context_bytes = gpu.Memory().ContextBytes()};
  if (gpu.Swaps()) report.swap = ReportSwap(gpu.Residency(), now);
  std::size_t running = 0;
  for (const VGpu* vgpu : gpu.VGpus()) {
    report.memory_used += gpu.Memory().FiguresOf(vgpu->id).current;
    report.processes += vgpu->processes.size();
    if (vgpu->removed) continue;
    ++report.vgpus;
    report.compute_requested_pct += vgpu->spec.compute.request_pct;
    const TimeControl::Figures time = gpu.Time().FiguresOf(*vgpu, now);
    report.compute_busy_pct += time.percent;
    if (time.standing != Standing::kRunning) continue;
    ++running;
    report.holder = vgpu->spec.name;
  }
  if (running != 1) report.holder.reset();
  // Each is charged as if it had been alone, because how much it used beside others is not known (docs/scheduler.md,
  // "Giving way").
  report.compute_busy_pct = std::min(report.compute_busy_pct, 100.0);
  report.divider = gpu.Time().Ways().Present();
  report.why_gate = gpu.Time().Ways().WhyNot(Divider::kChannels);
  ReportCalls(daemon.Channels(), report, now);
  report.lateness = gpu.Time().Lateness();
  report.moving = daemon.Suspended().Figures();
  report.health = gpu.Health().FiguresNow();
  report.load_migrations = daemon.Moves().balancer.SentFrom(gpu.Index());
  report.draining = gpu.Health().Draining();
  if (report.draining) report.drain = ReportDrain(daemon.Moves().drains.StandingOf(gpu.Index()));
  return report;
}

ProcessReport ReportProcess(Daemon& daemon, const VGpu& vgpu, const Process& process, Nanos now) {
  const wire::Page& page = *process.page;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  GpuServer& gpu = *daemon.Gpus()[vgpu.gpu];
  const PinnedTotals pinned = gpu.Placement().PinnedTotalsOf(process);
  return {.pid = process.pid,
          .name = process.who.program,
          .vgpu = vgpu.spec.name,
          .uid = process.who.uid,
          .shim = !process.who.guest,
          .adopted = process.who.guest && !process.who.guarded,
          .enforce = process.who.guarded ? "kernel"
                     : process.who.guest ? "none"
                                         : "shim",
          .complete = daemon.Guests().Watch().Complete(process.pid) || !process.who.guest,
          .channels = daemon.Channels().Table().Objects(process.pid).Channels(),
          .groups = daemon.Channels().Table().Groups(process.pid, vgpu.gpu),
          .frozen = NamesOf(ReasonsOf(daemon, process)),
          .gpu = vgpu.gpu,
          .memory = process.memory.Current(),
          .memory_measured = process.memory.measured,
          .memory_resident = gpu.Placement().ResidentBytes(process),
          .memory_pinned = pinned.Sum(),
          .memory_swapped = process.residence.Swapped(),
          .memory_stranded = process.residence.Stranded(),
          .memory_hot_out = process.residence.HotOut(),
          .memory_evicting = process.residence.Evicting(),
          .memory_pinned_by = DividePinned(PinClaims(page), pinned),
          .memory_exported = process.exported,
          .suspension = process.suspension.Begun() ? NameOf(process.suspension.phase) : "",
          .suspension_left = LeftOf(process),
          .suspended_to = !process.suspension.Absent()    ? ""
                          : process.residence.own_file.in ? "file"
                                                          : "memory",
          .suspended_by = !process.suspension.Begun()    ? ""
                          : process.suspension.by_itself ? "idle"
                                                         : "request",
          .suspend_error = process.suspension.error,
          .evict_error = WhyNotEvicted(process.residence.evict_error),
          .moved = ReportMoves(process.residence.moves.SumAt(now)),
          .memory_used_on_host = process.residence.Use(true).used_out,
          .memory_on_host_us = Us(process.residence.host_work.TimeAt(now)),
          .memory_on_host_told_us = process.residence.host_work.ToldFor(now).transform(Us),
          .memory_waited_us = Us(process.residence.waited.At(now)),
          .contexts = process.memory.contexts,
          .compute_busy_us = page.busy_ns.load(kRelaxed) / 1000,
          .submissions = page.submissions.load(kRelaxed),
          .gate_waits = page.gate_waits.load(kRelaxed),
          .gate_wait_us = page.gate_wait_ns.load(kRelaxed) / 1000,
          .window = page.window.load(kRelaxed),
          .oom_errors = page.oom_errors.load(kRelaxed),
          .room_waits = page.room_waits.load(kRelaxed),
          .compute_waited_us = Us(process.work.waited.At(now)),
          .state = NameOf(process.gate.state),
          .started_us = process.who.started_us,
          .gpu_failed = gpu.Health().Failed()};
}

// Some of what the vGPU has on its GPU is above memory.limit. The reason why that stays, as far as it is known.
std::string WhyOverLimit(const GpuServer& gpu, const VGpuReport& vgpu) {
  if (!gpu.Swaps()) return "memory is not swapped here (swap.size), so it stays until its programs free it";
  if (vgpu.memory_pinned == vgpu.memory_resident) return "it is pinned";
  if (vgpu.memory_swap_max && vgpu.memory_swapped + wire::kChunkBytes > *vgpu.memory_swap_max)
    return "no more of it may lie in host memory (memory.swap.max)";
  return "";
}

CheckReport CheckSwap(GpuServer& gpu) {
  const std::string name = " for GPU " + std::to_string(gpu.Index());
  if (!gpu.Swaps())
    return {.name = "swap",
            .text = "no host memory" + name + ": swap.size is 0, or no RAM was free at the daemon's start",
            .hint = "programs that do not fit on it get out-of-memory errors"};
  return {.name = "swap",
          .ok = true,
          .text = "at most " + FormatSize(gpu.Residency().SwapMax()) + " of host memory" + name};
}

void ReportMode(const SpaceModes::Report& mode, Nanos now, SpaceReport& report) {
  if (mode.choice.mode == sched::SpaceMode::kInTurns) report.mode = "in_turns";
  report.mode_gain = mode.choice.gain;
  report.mode_why = mode.why;
  if (mode.choice.tried_at != kNever) report.mode_tried_ago_us = (now - mode.choice.tried_at) / kMicrosecond;
}

}  // namespace

std::vector<GpuReport> ReportGpus(Daemon& daemon, Nanos now) {
  std::vector<GpuReport> reports;
  for (const auto& gpu : daemon.Gpus()) reports.push_back(ReportGpu(daemon, *gpu, now));
  return reports;
}

VGpuReport ReportVGpu(Daemon& daemon, const VGpu& vgpu, Nanos now) {
  GpuServer& gpu = *daemon.Gpus()[vgpu.gpu];
  const auto memory = gpu.Memory().FiguresOf(vgpu.id);
  const TimeControl::Figures time = gpu.Time().FiguresOf(vgpu, now);
  VGpuReport report{.name = vgpu.spec.name,
                    .gpu_uuid = FormatUuid(gpu.Info().uuid),
                    .tag = TagOf(vgpu.spec),
                    .gpu = vgpu.gpu,
                    .uid = vgpu.spec.uid,
                    .ephemeral = vgpu.spec.ephemeral,
                    .for_everybody = PossessionOf(vgpu.spec).for_everybody,
                    .memory_request = vgpu.spec.memory.request,
                    .memory_limit = vgpu.spec.memory.limit.value_or(gpu.Memory().Ledger().Capacity()),
                    .memory_max = memory.max,
                    .memory_current = memory.current,
                    .memory_peak = memory.peak,
                    .memory_available = memory.available,
                    .memory_swap_max = vgpu.spec.memory.swap,
                    .gpu_memory = gpu.Memory().Ledger().Capacity(),
                    .moved = ReportMoves(vgpu.MovesAt(now)),
                    .memory_pressure = vgpu.memory_pressure.At(now),
                    .compute_pressure = vgpu.compute_pressure.At(now),
                    .oom_events = memory.oom_events,
                    .compute_request_pct = vgpu.spec.compute.request_pct,
                    .compute_limit_pct = vgpu.spec.compute.limit_pct,
                    .compute_current_pct = time.percent,
                    .compute_weight = vgpu.spec.compute.weight,
                    .compute_busy_us = time.usage.busy / kMicrosecond,
                    .compute_waited_us = time.usage.waited / kMicrosecond,
                    .waits = vgpu.waits,
                    .state = NameOf(time.standing)};
  report.compute_priority = vgpu.spec.compute.priority;
  report.gang = vgpu.spec.gang;
  report.labels = vgpu.spec.labels;
  report.space = vgpu.spec.space;
  report.sm_limit_pct = vgpu.spec.compute.space.sm_pct;
  report.sm_reserved = vgpu.spec.compute.space.reserved;
  report.sm_burst = vgpu.spec.compute.space.burst;
  for (const Process* process : vgpu.processes) {
    report.sms = std::max(report.sms, process->page->sms.load(std::memory_order_relaxed));
    if (HasOtherSms(*process)) ++report.sms_kept;
  }
  report.goal = vgpu.spec.goal.transform(sched::FormatGoal);
  report.bursts = vgpu.bursts.Report();
  if (const auto kept = gpu.Time().Goals().ReportOf(vgpu, now)) report.bursts.Add(*kept);
  const StandingLog::Figures kept_off = vgpu.standing.At(now);
  report.compute_throttled_us = kept_off.throttled_time / kMicrosecond;
  report.compute_debt_us = time.usage.debt / kMicrosecond;
  report.throttled = kept_off.throttled;
  report.preempted = kept_off.preempted;
  report.freezes = vgpu.freezes;
  report.migrating_to = daemon.Moves().queue.TargetOf(vgpu.id);
  report.migrate_error = vgpu.migrate_error;
  report.gpu_faults = vgpu.gpu_faults;
  report.gpu_failed = gpu.Health().Failed();
  report.slice_us = time.slice / kMicrosecond;
  FreezeReason reasons = If(vgpu.spec.frozen, FreezeReason::kOperator);
  for (const Process* process : vgpu.processes) {
    reasons |= daemon.Channels().Freezer().StatusOf(process->pid, vgpu.gpu).reasons - FreezeReason::kOperator;
    reasons |= process->WantedFreezes() & FreezeReason::kMove;
    report.memory_resident += gpu.Placement().ResidentBytes(*process);
    report.memory_swapped += process->residence.Swapped();
    const PinnedTotals pinned = gpu.Placement().PinnedTotalsOf(*process);
    report.memory_pinned += pinned.Sum();
    const PinnedByReason by = DividePinned(PinClaims(*process->page), pinned);
    std::ranges::transform(by, report.memory_pinned_by, report.memory_pinned_by.begin(), std::plus());
  }
  report.memory_over_limit = Less(report.memory_resident, report.memory_limit);
  if (report.memory_over_limit > 0) report.over_limit_error = WhyOverLimit(gpu, report);
  report.frozen = NamesOf(reasons);
  if (vgpu.spec.ephemeral) report.owner_pid = vgpu.spec.owner_pid;
  for (const Process* process : vgpu.processes) report.processes.push_back(process->pid);
  return report;
}

std::vector<SpaceReport> ReportSpaces(Daemon& daemon, Nanos now) {
  std::vector<SpaceReport> reports;
  for (const Space* space : daemon.Spaces().All()) {
    const Space::Identity& who = space->Who();
    SpaceReport report{.name = who.name,
                       .gpu_uuid = FormatUuid(daemon.Gpus()[who.gpu]->Info().uuid),
                       .gpu = who.gpu,
                       .uid = who.uid,
                       .kept = space->Kept(),
                       .state = NameOf(space->Present()),
                       .error = space->Error(),
                       .pipes = space->Pipes(),
                       .control_daemon = space->ControlDaemon(),
                       .server = space->Server()};
    const pid_t followed = daemon.Channels().Table().ServerOf(who.number);
    report.steered = followed != 0 && daemon.Channels().Knows(followed, who.gpu);
    ReportMode(daemon.Gpus()[who.gpu]->Time().Goals().Modes().ReportOf(who.number), now, report);
    for (const VGpu* vgpu : daemon.VGpus().All()) {
      if (vgpu->spec.space != who.name) continue;
      report.vgpus.push_back(vgpu->spec.name);
      report.sm_limits_pct += vgpu->spec.compute.space.sm_pct;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<VGpuReport> ReportVGpus(Daemon& daemon, Nanos now) {
  std::vector<VGpuReport> reports;
  for (const VGpu* vgpu : daemon.VGpus().All()) reports.push_back(ReportVGpu(daemon, *vgpu, now));
  return reports;
}

std::vector<ProcessReport> ReportProcesses(Daemon& daemon, Nanos now, std::optional<pid_t> only) {
  std::vector<ProcessReport> reports;
  for (const auto& gpu : daemon.Gpus()) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        if (!only || process->pid == *only) reports.push_back(ReportProcess(daemon, *vgpu, *process, now));
      }
    }
  }
  std::ranges::move(ReportUnmanaged(daemon, only), std::back_inserter(reports));
  return reports;
}

std::vector<ProcessReport> ReportProcesses(Daemon& daemon, const VGpu& vgpu, Nanos now) {
  std::vector<ProcessReport> reports;
  for (const Process* process : vgpu.processes) reports.push_back(ReportProcess(daemon, vgpu, *process, now));
  return reports;
}

std::vector<ProcessReport> ReportUnmanaged(Daemon& daemon, std::optional<pid_t> only) {
  std::vector<ProcessReport> reports;
  for (const Unmanaged& process : ListUnmanaged(daemon.Guests(), daemon.Gpus(), daemon.Channels().Table())) {
    if (only && process.pid != *only) continue;
    reports.push_back({.pid = process.pid,
                       .name = process.name,
                       .complete = process.complete,
                       .channels = daemon.Channels().Table().Objects(process.pid).Channels(),
                       .groups = daemon.Channels().Table().Groups(process.pid, process.gpu),
                       .frozen = NamesOf(daemon.Channels().Freezer().StatusOf(process.pid, process.gpu).reasons),
                       .gpu = process.gpu,
                       .memory = process.bytes,
                       .memory_resident = process.bytes,
                       .memory_pinned = process.bytes,
                       .memory_pinned_by = PinnedWithoutShim(process.bytes),
                       .gpu_failed = daemon.Gpus()[process.gpu]->Health().Failed()});
  }
  return reports;
}

std::vector<CheckReport> ReportChecks(Daemon& daemon) {
  std::vector<CheckReport> checks;
  checks.push_back(CheckControl(daemon));
  const std::string& watch = daemon.Guests().Watch().WhyNot();
  checks.push_back({.name = "watch",
                    .ok = watch.empty(),
                    .text = watch.empty() ? "unmanaged GPU programs are seen" : watch,
                    .hint = watch.empty() ? "" : "they cannot be listed with their channels, frozen or adopted"});
  const SpaceTable::Setup& spaces = daemon.Spaces().Terms();
  const bool mps = !spaces.program.empty();
  checks.push_back(
      {.name = "spaces",
       .ok = mps,
       .text = mps ? "vGPUs of a space can run at the same time, by " + spaces.program : spaces.why_none,
       .hint =
           mps ? "" : "install the part of NVIDIA's driver that has it; until then vGPUs cannot run at the same time"});
  for (const auto& gpu : daemon.Gpus()) checks.push_back(CheckSwap(*gpu));
  return checks;
}

}  // namespace tessera::server
