#include <algorithm>
#include <array>
#include <vector>

#include "face/text/metric_table.h"

namespace tessera::face {
namespace {

using server::VGpuReport;
using enum MetricType;

constexpr std::array kWindows = {"10s", "60s", "300s"};
constexpr std::array kVGpuStates = {"running", "waiting", "idle"};
constexpr std::array kReasons = {"operator", "policy", "memory", "move"};

bool HasReason(const std::vector<const char*>& reasons, const char* reason) {
  return std::ranges::any_of(reasons, [reason](const char* each) { return std::strcmp(each, reason) == 0; });
}

std::optional<double> OfGoal(const VGpuReport& vgpu, double value) {
  return vgpu.goal ? std::optional(value) : std::nullopt;
}

std::optional<double> Attained(const VGpuReport& vgpu) {
  if (vgpu.bursts.attained_time) return static_cast<double>(*vgpu.bursts.attained_time) / kSecond;
  return vgpu.bursts.attained_pct.transform([](double pct) { return pct / kWholePct; });
}

std::optional<double> GoalMet(const VGpuReport& vgpu) {
  return vgpu.bursts.GoalMet().transform([](bool met) { return met ? 1.0 : 0.0; });
}

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
       return (i == 0 ? pressure.avg10 : i == 1 ? pressure.avg60 : pressure.avg300) / kWholePct;
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
       return (i == 0 ? pressure.avg10 : i == 1 ? pressure.avg60 : pressure.avg300) / kWholePct;
     }},
    {.family = {"tessera_vgpu_oom_events", kCounter, "", "vgpu, gpu", "Allocations that memory.max refused."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return Of(vgpu.oom_events); }},
    {.family = {"tessera_vgpu_compute_request_ratio", kGauge, "ratio", "vgpu, gpu",
                "compute.request: fraction of the GPU's time that is guaranteed."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_request_pct / kWholePct; }},
    {.family = {"tessera_vgpu_compute_limit_ratio", kGauge, "ratio", "vgpu, gpu",
                "compute.limit: maximum fraction of the GPU's time."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_limit_pct / kWholePct; }},
    {.family = {"tessera_vgpu_compute_current_ratio", kGauge, "ratio", "vgpu, gpu",
                "Fraction of the GPU's time that it used in the last seconds."},
     .value = [](const VGpuReport& vgpu) -> std::optional<double> { return vgpu.compute_current_pct / kWholePct; }},
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
                "Bursts, or told requests, that were longer than its goal allows. Absent without a goal."},
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

}  // namespace

std::span<const Metric<VGpuReport>> VGpuMetrics() { return kVGpuMetrics; }

}  // namespace tessera::face
