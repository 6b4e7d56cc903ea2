#include "server/report.h"

#include "server/daemon.h"

namespace tessera::server {
namespace {

const char* NameOf(TokenServer::Token token) {
  switch (token) {
    case TokenServer::Token::kHeld:
      return "held";
    case TokenServer::Token::kWaiting:
      return "waiting";
    case TokenServer::Token::kIdle:
      break;
  }
  return "idle";
}

const char* NameOf(Gate::State state) {
  switch (state) {
    case Gate::State::kRunning:
    case Gate::State::kDraining:
      return "active";
    case Gate::State::kWanting:
      return "waiting";
    case Gate::State::kParked:
      break;
  }
  return "idle";
}

GpuReport ReportGpu(Daemon& daemon, const GpuServer& gpu) {
  const Ledger& ledger = gpu.Memory().Ledger();
  GpuReport report{.index = gpu.Index(),
                   .uuid = FormatUuid(gpu.Info().uuid),
                   .name = gpu.Info().name,
                   .soft = daemon.Soft(),
                   .memory_total = ledger.Capacity(),
                   .memory_reserve = ledger.Reserve(),
                   .memory_promised = ledger.Promised(),
                   .memory_unmanaged = gpu.UnmanagedBytes(),
                   .context_bytes = gpu.Memory().ContextBytes()};
  const Nanos now = MonotonicNow();
  for (const VGpu* vgpu : gpu.VGpus()) {
    report.memory_used += gpu.Memory().FiguresOf(vgpu->id).current;
    report.processes += vgpu->processes.size();
    if (vgpu->removed) continue;
    ++report.vgpus;
    report.compute_requested_pct += vgpu->spec.compute.request_pct;
    report.compute_busy_pct += gpu.ComputePercent(*vgpu, now);
    if (gpu.Token().Holder() == vgpu->id) report.holder = vgpu->spec.name;
  }
  return report;
}

ProcessReport ReportProcess(const VGpu& vgpu, const Process& process) {
  const wire::Page& page = *process.page;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {.pid = process.pid,
          .name = process.program,
          .vgpu = vgpu.spec.name,
          .uid = process.uid,
          .gpu = vgpu.gpu,
          .memory = process.memory.Current(),
          .memory_measured = process.memory.measured,
          .contexts = process.memory.contexts,
          .compute_busy_us = page.busy_ns.load(kRelaxed) / 1000,
          .submissions = page.submissions.load(kRelaxed),
          .gate_waits = page.gate_waits.load(kRelaxed),
          .gate_wait_us = page.gate_wait_ns.load(kRelaxed) / 1000,
          .window = page.window.load(kRelaxed),
          .oom_errors = page.oom_errors.load(kRelaxed),
          .state = NameOf(process.gate.state),
          .started_us = process.started_us};
}

}  // namespace

std::vector<GpuReport> ReportGpus(Daemon& daemon) {
  std::vector<GpuReport> reports;
  for (const auto& gpu : daemon.Gpus()) reports.push_back(ReportGpu(daemon, *gpu));
  return reports;
}

VGpuReport ReportVGpu(Daemon& daemon, const VGpu& vgpu) {
  const GpuServer& gpu = *daemon.Gpus()[vgpu.gpu];
  const auto memory = gpu.Memory().FiguresOf(vgpu.id);
  const Nanos now = MonotonicNow();
  const sched::Usage usage = gpu.Token().UsageOf(vgpu.id, now);
  VGpuReport report{.name = vgpu.spec.name,
                    .gpu_uuid = FormatUuid(gpu.Info().uuid),
                    .gpu = vgpu.gpu,
                    .uid = vgpu.spec.uid,
                    .ephemeral = vgpu.spec.ephemeral,
                    .memory_limit = vgpu.spec.memory.limit.value_or(gpu.Memory().Ledger().Capacity()),
                    .memory_max = memory.max,
                    .memory_current = memory.current,
                    .memory_peak = memory.peak,
                    .memory_available = memory.available,
                    .oom_events = memory.oom_events,
                    .compute_request_pct = vgpu.spec.compute.request_pct,
                    .compute_limit_pct = vgpu.spec.compute.limit_pct,
                    .compute_current_pct = gpu.ComputePercent(vgpu, now),
                    .compute_weight = vgpu.spec.compute.weight,
                    .compute_busy_us = usage.busy / kMicrosecond,
                    .compute_waited_us = usage.waited / kMicrosecond,
                    .token = NameOf(gpu.Token().TokenOf(vgpu.id))};
  if (vgpu.spec.ephemeral) report.owner_pid = vgpu.spec.owner_pid;
  for (const Process* process : vgpu.processes) report.processes.push_back(process->pid);
  return report;
}

std::vector<VGpuReport> ReportVGpus(Daemon& daemon) {
  std::vector<VGpuReport> reports;
  for (const VGpu* vgpu : daemon.VGpus().All()) reports.push_back(ReportVGpu(daemon, *vgpu));
  return reports;
}

std::vector<ProcessReport> ReportProcesses(Daemon& daemon) {
  std::vector<ProcessReport> reports;
  for (const auto& gpu : daemon.Gpus()) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) reports.push_back(ReportProcess(*vgpu, *process));
    }
  }
  return reports;
}

}  // namespace tessera::server
