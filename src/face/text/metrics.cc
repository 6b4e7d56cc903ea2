#include "face/text/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>

#include "face/text/metrics_text.h"

namespace tessera::face {
namespace {

using server::GpuReport;
using server::Histogram;
using server::ProcessReport;
using server::SpaceReport;
using server::SwapReport;
using server::VGpuReport;
using enum MetricType;

constexpr double kPercent = 100;

double Seconds(std::int64_t us) { return static_cast<double>(us) / 1e6; }
double Seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }
double Of(std::uint64_t number) { return static_cast<double>(number); }

// A metric family, and how to read its samples from one report. nullopt, or a null histogram: the report has none.
template <typename Report>
struct Metric {
  MetricFamily family;
  std::optional<double> (*value)(const Report&) = nullptr;
  const Histogram* (*histogram)(const Report&) = nullptr;
  // One sample for each of these values of the label, by its position.
  const char* label = nullptr;
  std::span<const char* const> values = {};
  std::optional<double> (*each)(const Report&, std::size_t) = nullptr;
  const Histogram* (*each_histogram)(const Report&, std::size_t) = nullptr;
};

constexpr std::array kDirections = {"out", "in"};
constexpr std::array kWindows = {"10s", "60s", "300s"};
constexpr std::array kVGpuStates = {"running", "waiting", "idle"};
constexpr std::array kStates = {"active", "waiting", "idle"};
constexpr std::array kReasons = {"operator", "policy", "memory", "move"};
constexpr std::array kCalls = {"freeze", "thaw", "slice"};

template <typename Value>
std::optional<double> OfSwap(const GpuReport& gpu, Value SwapReport::* field) {
  return gpu.swap ? std::optional(static_cast<double>((*gpu.swap).*field)) : std::nullopt;
}

bool HasReason(const std::vector<const char*>& reasons, const char* reason) {
  return std::ranges::any_of(reasons, [reason](const char* each) { return std::strcmp(each, reason) == 0; });
}

double Is(const char* state, const char* one) { return std::strcmp(state, one) == 0 ? 1 : 0; }

std::optional<double> OfGoal(const VGpuReport& vgpu, double value) {
  return vgpu.goal ? std::optional(value) : std::nullopt;
}

std::optional<double> Attained(const VGpuReport& vgpu) {
  if (vgpu.bursts.attained_time) return static_cast<double>(*vgpu.bursts.attained_time) / kSecond;
  return vgpu.bursts.attained_pct.transform([](double pct) { return pct / kPercent; });
}

std::optional<double> GoalMet(const VGpuReport& vgpu) {
  return vgpu.bursts.GoalMet().transform([](bool met) { return met ? 1.0 : 0.0; });
}

// ---- the table: every metric that there is, in the order in which they are written ----

// Metrics of the whole daemon: one channel server serves all GPUs, and each GPU's report has the same figures.
const std::array kDaemonMetrics = std::to_array<Metric<GpuReport>>({
    {.family = {"tessera_driver_calls", kCounter, "", "call",
                "Driver calls that froze or thawed channels, or set their slices."},
     .label = "call",
     .values = kCalls,
     .each = [](const GpuReport& gpu, std::size_t i) -> std::optional<double> {
       return Of(i == 0 ? gpu.freezes : i == 1 ? gpu.thaws : gpu.slices);
     }},
    {.family = {"tessera_driver_call_failures", kCounter, "", "", "Driver calls of these kinds that failed."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.call_failures); }},
    {.family = {"tessera_freeze_seconds", kHistogram, "seconds", "", "Time to freeze channels."},
     .histogram = [](const GpuReport& gpu) { return &gpu.freeze_times; }},
    {.family = {"tessera_thaw_seconds", kHistogram, "seconds", "", "Time to thaw channels."},
     .histogram = [](const GpuReport& gpu) { return &gpu.thaw_times; }},
    {.family = {"tessera_gpu_scheduler_late_seconds", kHistogram, "seconds", "gpu",
                "Delay from a scheduler deadline to its execution."},
     .histogram = [](const GpuReport& gpu) { return &gpu.lateness; }},
});

const std::array kGpuMetrics = std::to_array<Metric<GpuReport>>({
    {.family = {"tessera_gpu_memory_total_bytes", kGauge, "bytes", "gpu", "Total memory of the GPU."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.memory_total); }},
    {.family = {"tessera_gpu_memory_reserve_bytes", kGauge, "bytes", "gpu",
                "Memory that is kept back from all programs."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.memory_reserve); }},
    {.family = {"tessera_gpu_memory_used_bytes", kGauge, "bytes", "gpu",
                "Memory that programs in vGPUs have allocated, on the GPU or off it."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.memory_used); }},
    {.family = {"tessera_gpu_memory_promised_bytes", kGauge, "bytes", "gpu",
                "Sum of the memory requests of its vGPUs."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.memory_promised); }},
    {.family = {"tessera_gpu_memory_unmanaged_bytes", kGauge, "bytes", "gpu",
                "Memory of programs outside vGPUs, as the driver reports it."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.memory_unmanaged); }},
    {.family = {"tessera_gpu_compute_requested_ratio", kGauge, "ratio", "gpu",
                "Fraction of the GPU's time that is guaranteed to its vGPUs."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.compute_requested_pct / kPercent; }},
    {.family = {"tessera_gpu_compute_busy_ratio", kGauge, "ratio", "gpu",
                "Fraction of the last seconds in which programs in vGPUs used the GPU."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.compute_busy_pct / kPercent; }},
    {.family = {"tessera_gpu_vgpus", kGauge, "", "gpu", "Number of its vGPUs."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.vgpus); }},
    {.family = {"tessera_gpu_processes", kGauge, "", "gpu", "Processes in vGPUs that have the GPU open."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.processes); }},
    {.family = {"tessera_gpu_steered", kGauge, "", "gpu",
                "1 if channels are steered, 0 if gates divide the time (tessera doctor says why)."},
     .value = [](const GpuReport& gpu) -> std::optional<double> {
       return gpu.divider == server::Divider::kChannels ? 1 : 0;
     }},
    {.family = {"tessera_gpu_failed", kGauge, "", "gpu",
                "1 if the GPU has failed: it takes no new programs until it is reset and the daemon restarted."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.health.failed.empty() ? 0 : 1; }},
    {.family = {"tessera_gpu_xid", kCounter, "", "gpu", "Critical Xid errors that its driver reported."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.health.xids); }},
    {.family = {"tessera_gpu_last_xid", kGauge, "", "gpu", "Number of the last Xid error. Absent before the first."},
     .value = [](const GpuReport& gpu) -> std::optional<double> {
       return gpu.health.last_xid == 0 ? std::nullopt : std::optional(Of(gpu.health.last_xid));
     }},
    {.family = {"tessera_gpu_ecc_errors", kCounter, "", "gpu", "Double-bit ECC errors that its driver reported."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.health.ecc_errors); }},
    {.family = {"tessera_gpu_swap_max_bytes", kGauge, "bytes", "gpu", "Maximum size of its pool of host memory."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::max); }},
    {.family = {"tessera_gpu_swap_pool_bytes", kGauge, "bytes", "gpu", "Pinned host memory in the pool."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::pool); }},
    {.family = {"tessera_gpu_swap_pool_used_bytes", kGauge, "bytes", "gpu",
                "Part of the pool that holds memory of programs."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::pool_used); }},
    {.family = {"tessera_gpu_swap_pool_goal_bytes", kGauge, "bytes", "gpu",
                "Size that the pool is to have: the bytes needed, and those prepared ahead (swap.prepare)."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::pool_goal); }},
    {.family = {"tessera_gpu_swap_file_bytes", kGauge, "bytes", "gpu", "Size of the swap file; 0 if there is none."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::file); }},
    {.family = {"tessera_gpu_swap_file_used_bytes", kGauge, "bytes", "gpu",
                "Part of the swap file that holds memory of programs."},
     .value = [](const GpuReport& gpu) { return OfSwap(gpu, &SwapReport::file_used); }},
    {.family = {"tessera_gpu_swap_file_failed", kGauge, "", "gpu",
                "1 if an error has stopped writes to the swap file."},
     .value = [](const GpuReport& gpu) -> std::optional<double> {
       return gpu.swap ? std::optional(gpu.swap->file_error.empty() ? 0.0 : 1.0) : std::nullopt;
     }},
    {.family = {"tessera_gpu_memory_turns", kGauge, "", "gpu",
                "1 while vGPUs take turns because the memory in use does not fit on the GPU."},
     .value = [](const GpuReport& gpu) -> std::optional<double> {
       return gpu.swap ? std::optional(Is(gpu.swap->mode, "turns")) : std::nullopt;
     }},
    {.family = {"tessera_gpu_memory_turn_seconds", kGauge, "seconds", "gpu",
                "Length of the current turn; 0 if there is none."},
     .value = [](const GpuReport& gpu) -> std::optional<double> {
       return gpu.swap ? std::optional(Seconds(gpu.swap->turn_us)) : std::nullopt;
     }},
    {.family = {"tessera_gpu_move_seconds", kHistogram, "seconds", "gpu, direction",
                "Time to move the ordered part of one program's memory out to host memory, or in."},
     .label = "direction",
     .values = kDirections,
     .each_histogram = [](const GpuReport& gpu, std::size_t i) -> const Histogram* {
       return gpu.swap ? (i == 0 ? &gpu.swap->moves_out : &gpu.swap->moves_in) : nullptr;
     }},
});

const std::array kVGpuMetrics = std::to_array<Metric<VGpuReport>>({
    {.family = {"tessera_vgpu_memory_request_bytes", kGauge, "bytes", "vgpu, gpu",
                "memory.request: memory on the GPU that is promised to it."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_request); }},
    {.family = {"tessera_vgpu_memory_limit_bytes", kGauge, "bytes", "vgpu, gpu",
                "memory.limit: maximum memory on the GPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_limit); }},
    {.family = {"tessera_vgpu_memory_max_bytes", kGauge, "bytes", "vgpu, gpu",
                "memory.max: maximum memory that its programs may allocate."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_max); }},
    {.family = {"tessera_vgpu_memory_swap_max_bytes", kGauge, "bytes", "vgpu, gpu",
                "memory.swap.max: maximum memory off the GPU. Absent if there is no maximum."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> {
       return vgpu.memory_swap_max ? std::optional(Of(*vgpu.memory_swap_max)) : std::nullopt;
     }},
    {.family = {"tessera_vgpu_memory_current_bytes", kGauge, "bytes", "vgpu, gpu",
                "Memory that its programs have allocated, contexts included."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_current); }},
    {.family = {"tessera_vgpu_memory_peak_bytes", kGauge, "bytes", "vgpu, gpu",
                "Highest value of tessera_vgpu_memory_current_bytes."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_peak); }},
    {.family = {"tessera_vgpu_memory_resident_bytes", kGauge, "bytes", "vgpu, gpu",
                "Part of its memory that is on the GPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_resident); }},
    {.family = {"tessera_vgpu_memory_swap_bytes", kGauge, "bytes", "vgpu, gpu",
                "Part of its memory that is in host memory or in the swap file."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.memory_swapped); }},
    {.family = {"tessera_vgpu_moved_bytes", kCounter, "bytes", "vgpu, gpu, direction",
                "Memory that was moved out to host memory, or in."},
     .label = "direction",
     .values = kDirections,
     .each = [](const VGpuReport& vgpu, std::size_t i) -> std::optional<double> {
       return Of(i == 0 ? vgpu.moved.out : vgpu.moved.in);
     }},
    {.family = {"tessera_vgpu_moving_seconds", kCounter, "seconds", "vgpu, gpu",
                "Time during which memory of its programs was moved."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.moved.time_us); }},
    {.family =
         {"tessera_vgpu_memory_pressure_ratio", kGauge, "ratio", "vgpu, gpu, window",
          "Fraction of the window in which one of its programs had work, or wanted memory, and waited for memory."},
     .label = "window",
     .values = kWindows,
     .each = [](const VGpuReport& vgpu, std::size_t i) -> std::optional<double> {
       const auto& pressure = vgpu.memory_pressure;
       return (i == 0 ? pressure.avg10 : i == 1 ? pressure.avg60 : pressure.avg300) / kPercent;
     }},
    {.family = {"tessera_vgpu_memory_pressure_seconds", kCounter, "seconds", "vgpu, gpu",
                "Total time in which one of its programs waited for memory in this way."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> {
       return Seconds(static_cast<std::int64_t>(vgpu.memory_pressure.total / kMicrosecond));
     }},
    {.family = {"tessera_vgpu_compute_pressure_ratio", kGauge, "ratio", "vgpu, gpu, window",
                "Fraction of the window in which it had work and was kept off the GPU. Slices of others do not count."},
     .label = "window",
     .values = kWindows,
     .each = [](const VGpuReport& vgpu, std::size_t i) -> std::optional<double> {
       const auto& pressure = vgpu.compute_pressure;
       return (i == 0 ? pressure.avg10 : i == 1 ? pressure.avg60 : pressure.avg300) / kPercent;
     }},
    {.family = {"tessera_vgpu_oom_events", kCounter, "", "vgpu, gpu", "Allocations that memory.max refused."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.oom_events); }},
    {.family = {"tessera_vgpu_compute_request_ratio", kGauge, "ratio", "vgpu, gpu",
                "compute.request: fraction of the GPU's time that is guaranteed."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_request_pct / kPercent; }},
    {.family = {"tessera_vgpu_compute_limit_ratio", kGauge, "ratio", "vgpu, gpu",
                "compute.limit: maximum fraction of the GPU's time."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_limit_pct / kPercent; }},
    {.family = {"tessera_vgpu_compute_current_ratio", kGauge, "ratio", "vgpu, gpu",
                "Fraction of the GPU's time that it used in the last seconds."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_current_pct / kPercent; }},
    {.family = {"tessera_vgpu_compute_weight", kGauge, "", "vgpu, gpu",
                "compute.weight: its part of the time that is guaranteed to no vGPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_weight; }},
    {.family = {"tessera_vgpu_compute_priority", kGauge, "", "vgpu, gpu",
                "compute.priority: a lower number goes first."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_priority; }},
    {.family = {"tessera_vgpu_compute_slice_seconds", kGauge, "seconds", "vgpu, gpu",
                "Hardware slice of all its processes together; 0 for the driver's default, or none."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.slice_us); }},
    {.family = {"tessera_vgpu_compute_busy_seconds", kCounter, "seconds", "vgpu, gpu",
                "Time on the GPU that was charged to it."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.compute_busy_us); }},
    {.family = {"tessera_vgpu_compute_waited_seconds", kCounter, "seconds", "vgpu, gpu",
                "Time in which it had work and was kept off the GPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.compute_waited_us); }},
    {.family = {"tessera_vgpu_throttled_seconds", kCounter, "seconds", "vgpu, gpu",
                "Time in which it had work and its limit kept it off the GPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.compute_throttled_us); }},
    {.family = {"tessera_vgpu_throttles", kCounter, "", "vgpu, gpu",
                "Number of times that its limit kept it off the GPU."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.throttled); }},
    {.family =
         {"tessera_vgpu_preemptions", kCounter, "", "vgpu, gpu",
          "Number of times that it had to leave the GPU with work, because its turn ended or a higher class came."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.preempted); }},
    {.family = {"tessera_vgpu_freezes", kCounter, "", "vgpu, gpu", "Number of times that an operator froze it."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.freezes); }},
    {.family = {"tessera_vgpu_debt_seconds", kGauge, "seconds", "vgpu, gpu",
                "Time that it ran beyond its limit or its request, and pays back by waiting."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Seconds(vgpu.compute_debt_us); }},
    {.family = {"tessera_vgpu_wait_seconds", kHistogram, "seconds", "vgpu, gpu",
                "Time that a program with work waited for the GPU, at its gate or frozen; 0 if it did not wait."},
     .histogram = [](const VGpuReport& vgpu) { return &vgpu.waits; }},
    {.family = {"tessera_vgpu_bursts", kCounter, "", "vgpu, gpu",
                "Bursts of its work: from the first work of a program to the moment at which all are idle."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.bursts.count); }},
    {.family = {"tessera_vgpu_burst_seconds", kHistogram, "seconds", "vgpu, gpu", "Length of its bursts."},
     .histogram = [](const VGpuReport& vgpu) { return &vgpu.bursts.lengths; }},
    {.family = {"tessera_vgpu_goal_attained", kGauge, "", "vgpu, gpu",
                "The goal's percentile over the last minute in seconds, or the part of its speed alone. Absent without "
                "a goal, and while it is not known."},
     .value = Attained},
    {.family = {"tessera_vgpu_goal_violations", kCounter, "", "vgpu, gpu",
                "Bursts that were longer than its goal allows. Absent without a goal."},
     .value = [](const VGpuReport& vgpu) { return OfGoal(vgpu, Of(vgpu.bursts.violations)); }},
    {.family = {"tessera_vgpu_goal_met", kGauge, "", "vgpu, gpu",
                "1 while its goal is kept, 0 if it is not, or cannot be. Absent without a goal, and while that is not "
                "known."},
     .value = GoalMet},
    {.family = {"tessera_vgpu_state", kGauge, "", "vgpu, gpu, state",
                "1 for its state: running (where channels are steered, several may be), waiting or idle."},
     .label = "state",
     .values = kVGpuStates,
     .each = [](const VGpuReport& vgpu, std::size_t i) -> std::optional<double> {
       return Is(vgpu.state, kVGpuStates[i]);
     }},
    {.family = {"tessera_vgpu_frozen", kGauge, "", "vgpu, gpu, reason",
                "1 if it, or one of its programs, is frozen for that reason."},
     .label = "reason",
     .values = kReasons,
     .each = [](const VGpuReport& vgpu, std::size_t i) -> std::optional<double> {
       return HasReason(vgpu.frozen, kReasons[i]) ? 1 : 0;
     }},
    {.family = {"tessera_vgpu_processes", kGauge, "", "vgpu, gpu", "Its processes that have the GPU open."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.processes.size()); }},
    {.family = {"tessera_vgpu_gpu_failed", kGauge, "", "vgpu, gpu", "1 if its GPU has failed."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.gpu_failed ? 1 : 0; }},
    {.family = {"tessera_vgpu_gpu_faults", kCounter, "", "vgpu, gpu",
                "Xid and ECC errors of its GPU while it had programs there."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.gpu_faults); }},
});

// A figure that only the shim reports; absent for processes without one.
template <auto Field>
std::optional<double> Told(const ProcessReport& process) {
  return process.shim ? std::optional(static_cast<double>(process.*Field)) : std::nullopt;
}

const std::array kProcessMetrics = std::to_array<Metric<ProcessReport>>({
    {.family = {"tessera_process_memory_bytes", kGauge, "bytes", "pid, vgpu, gpu",
                "Memory that it has allocated, contexts included."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Of(process.memory); }},
    {.family = {"tessera_process_memory_swap_bytes", kGauge, "bytes", "pid, vgpu, gpu",
                "Part of its memory that is in host memory or in the swap file."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Of(process.memory_swapped); }},
    {.family = {"tessera_process_memory_pinned_bytes", kGauge, "bytes", "pid, vgpu, gpu, reason",
                "Part of its memory that cannot be moved for that reason."},
     .label = "reason",
     .values = server::kPinNames,
     .each = [](const ProcessReport& process, std::size_t i) -> std::optional<double> {
       return Of(process.memory_pinned_by[i]);
     }},
    {.family = {"tessera_process_memory_used_on_host_bytes", kGauge, "bytes", "pid, vgpu, gpu",
                "Part of its memory that it used lately and that is in host memory."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Of(process.memory_used_on_host); }},
    {.family = {"tessera_process_memory_stranded_bytes", kGauge, "bytes", "pid, vgpu, gpu",
                "Part of its memory that stays in host memory until it is freed, because no mover has it."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Of(process.memory_stranded); }},
    {.family = {"tessera_process_memory_on_host_seconds", kCounter, "seconds", "pid, vgpu, gpu",
                "Time in which it worked while at least a twentieth of what it used was in host memory."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Seconds(process.memory_on_host_us); }},
    {.family = {"tessera_process_memory_waited_seconds", kCounter, "seconds", "pid, vgpu, gpu",
                "Time in which it had work, or wanted memory, and waited for memory."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return Seconds(process.memory_waited_us); }},
    {.family = {"tessera_process_compute_busy_seconds", kCounter, "seconds", "pid, vgpu, gpu",
                "Time in which it had work on the GPU, as its markers show."},
     .value = [](const ProcessReport& process) -> std::optional<double> {
       return process.shim ? std::optional(Seconds(process.compute_busy_us)) : std::nullopt;
     }},
    {.family = {"tessera_process_compute_waited_seconds", kCounter, "seconds", "pid, vgpu, gpu",
                "Time in which it had work, and its vGPU was kept off the GPU for others or for its limit."},
     .value = [](const ProcessReport& process) -> std::optional<double> {
       return process.compute_waited_us ? std::optional(Seconds(*process.compute_waited_us)) : std::nullopt;
     }},
    {.family = {"tessera_process_submissions", kCounter, "", "pid, vgpu, gpu",
                "Launches, copies and other submissions."},
     .value = Told<&ProcessReport::submissions>},
    {.family = {"tessera_process_gate_waits", kCounter, "", "pid, vgpu, gpu",
                "Submissions that found the gate closed."},
     .value = Told<&ProcessReport::gate_waits>},
    {.family = {"tessera_process_gate_wait_seconds", kCounter, "seconds", "pid, vgpu, gpu",
                "Time that submissions waited at the closed gate."},
     .value = [](const ProcessReport& process) -> std::optional<double> {
       return process.shim ? std::optional(Seconds(process.gate_wait_us)) : std::nullopt;
     }},
    {.family = {"tessera_process_oom_errors", kCounter, "", "pid, vgpu, gpu", "Allocations that were refused."},
     .value = Told<&ProcessReport::oom_errors>},
    {.family = {"tessera_process_state", kGauge, "", "pid, vgpu, gpu, state",
                "1 for its state: active, waiting or idle."},
     .label = "state",
     .values = kStates,
     .each = [](const ProcessReport& process, std::size_t i) -> std::optional<double> {
       return process.shim ? std::optional(Is(process.state, kStates[i])) : std::nullopt;
     }},
});

const std::array kSpaceMetrics = std::to_array<Metric<SpaceReport>>({
    {.family = {"tessera_space_ready", kGauge, "", "space, gpu", "1 if the space takes programs."},
     .value = [](const SpaceReport& space) -> std::optional<double> { return Is(space.state, "ready"); }},
    {.family = {"tessera_space_vgpus", kGauge, "", "space, gpu", "Number of vGPUs in the space."},
     .value = [](const SpaceReport& space) -> std::optional<double> { return Of(space.vgpus.size()); }},
});

constexpr MetricFamily kBuild = {"tessera_build", kInfo, "", "version", "Version of the daemon."};
constexpr MetricFamily kGpuInfo = {"tessera_gpu", kInfo, "", "gpu, uuid, name", "GPUs that the daemon serves."};
constexpr MetricFamily kUnmanaged = {"tessera_gpu_unmanaged_processes", kGauge, "", "gpu",
                                     "Processes on the GPU that are in no vGPU."};

// ---- writing ----

MetricLabels LabelsOf(const GpuReport& gpu) { return {{"gpu", std::to_string(gpu.index)}}; }
MetricLabels LabelsOf(const VGpuReport& vgpu) { return {{"vgpu", vgpu.name}, {"gpu", std::to_string(vgpu.gpu)}}; }
MetricLabels LabelsOf(const SpaceReport& space) { return {{"space", space.name}, {"gpu", std::to_string(space.gpu)}}; }
MetricLabels LabelsOf(const ProcessReport& process) {
  return {
      {"pid", std::to_string(process.pid)}, {"vgpu", process.vgpu.value_or("")}, {"gpu", std::to_string(process.gpu)}};
}

template <typename Report>
void WriteSamples(MetricsText& text, const Metric<Report>& metric, const Report& report, const MetricLabels& labels) {
  if (metric.value) {
    if (const auto value = metric.value(report)) text.Sample(labels, *value);
  } else if (metric.histogram) {
    if (const Histogram* histogram = metric.histogram(report)) text.Sample(labels, *histogram);
  }
  for (std::size_t i = 0; i < metric.values.size(); ++i) {
    MetricLabels all = labels;
    all.emplace_back(metric.label, metric.values[i]);
    if (metric.each_histogram) {
      if (const Histogram* histogram = metric.each_histogram(report, i)) text.Sample(all, *histogram);
    } else if (const auto value = metric.each(report, i)) {
      text.Sample(all, *value);
    }
  }
}

template <typename Report>
void WriteAll(MetricsText& text, std::span<const Metric<Report>> metrics, const std::vector<Report>& reports) {
  for (const Metric<Report>& metric : metrics) {
    text.Begin(metric.family);
    for (const Report& report : reports) WriteSamples(text, metric, report, LabelsOf(report));
  }
}

// Processes in vGPUs. The others are only counted (tessera_gpu_unmanaged_processes).
std::vector<ProcessReport> Managed(const std::vector<ProcessReport>& processes) {
  std::vector<ProcessReport> managed;
  std::ranges::copy_if(processes, std::back_inserter(managed),
                       [](const ProcessReport& process) { return process.vgpu.has_value(); });
  return managed;
}

}  // namespace

const char* ContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

MetricsFormat ChooseFormat(const std::string& accept) {
  return accept.find("application/openmetrics-text") != std::string::npos ? MetricsFormat::kOpenMetrics
                                                                          : MetricsFormat::kPrometheus;
}

std::string WriteMetrics(const server::WholeReport& report, MetricsFormat format) {
  MetricsText text(format);
  text.Begin(kBuild);
  text.Sample({{"version", TESSERA_VERSION}}, 1);
  for (const auto& metric : kDaemonMetrics) {
    text.Begin(metric.family);
    if (!report.gpus.empty()) WriteSamples(text, metric, report.gpus.front(), {});
  }
  text.Begin(kGpuInfo);
  for (const GpuReport& gpu : report.gpus)
    text.Sample({{"gpu", std::to_string(gpu.index)}, {"uuid", gpu.uuid}, {"name", gpu.name}}, 1);
  WriteAll<GpuReport>(text, kGpuMetrics, report.gpus);
  text.Begin(kUnmanaged);
  for (const GpuReport& gpu : report.gpus) {
    const auto others = std::ranges::count_if(report.processes, [&](const ProcessReport& process) {
      return !process.vgpu && process.gpu == gpu.index &&
             !(gpu.swap && gpu.swap->mover && *gpu.swap->mover == process.pid);
    });
    text.Sample(LabelsOf(gpu), static_cast<double>(others));
  }
  WriteAll<VGpuReport>(text, kVGpuMetrics, report.vgpus);
  WriteAll<SpaceReport>(text, kSpaceMetrics, report.spaces);
  WriteAll<ProcessReport>(text, kProcessMetrics, Managed(report.processes));
  return std::move(text).End();
}

std::string MetricsReference() {
  std::string text =
      "# Metrics\n\n"
      "`GET /metrics` on `api.sock` answers in OpenMetrics 1.0.0 to clients that accept it, and in Prometheus' text\n"
      "format to others. This page is made from the table in `src/face/text/metrics.cc`; a test compares the two. "
      "Names\n"
      "of counters end in `_total`, names of information in `_info`. Histograms have `_bucket`, `_sum` and `_count`.\n";
  const auto table = [&](const char* title) {
    text += fmt::format("\n## {}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", title);
  };
  const auto row = [&](const MetricFamily& family) {
    constexpr std::array kTypes = {"gauge", "counter", "histogram", "info"};
    constexpr std::array kSuffixes = {"", "_total", "", "_info"};
    const auto type = static_cast<std::size_t>(family.type);
    text += fmt::format("| `{}{}` | {} | {} | {} |\n", family.name, kSuffixes[type], kTypes[type], family.labels,
                        family.help);
  };
  table("The daemon");
  row(kBuild);
  for (const auto& metric : kDaemonMetrics) row(metric.family);
  table("GPUs");
  row(kGpuInfo);
  for (const auto& metric : kGpuMetrics) row(metric.family);
  row(kUnmanaged);
  table("vGPUs");
  for (const auto& metric : kVGpuMetrics) row(metric.family);
  table("Spaces");
  for (const auto& metric : kSpaceMetrics) row(metric.family);
  table("Processes in vGPUs");
  for (const auto& metric : kProcessMetrics) row(metric.family);
  return text;
}

}  // namespace tessera::face
