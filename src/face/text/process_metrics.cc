#include <array>

#include "face/text/metric_table.h"

namespace tessera::face {
namespace {

using server::ProcessReport;
using enum MetricType;

constexpr std::array kStates = {"active", "waiting", "idle"};

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
    {.family = {"tessera_process_suspended", kGauge, "", "pid, vgpu, gpu",
                "1 if it is suspended: nothing of it is on the GPU."},
     .value = [](const ProcessReport& process) -> std::optional<double> { return *process.suspended_to ? 1 : 0; }},
    {.family = {"tessera_process_state", kGauge, "", "pid, vgpu, gpu, state",
                "1 for its state: active, waiting or idle."},
     .label = "state",
     .values = kStates,
     .each = [](const ProcessReport& process, std::size_t i) -> std::optional<double> {
       return process.shim ? std::optional(Is(process.state, kStates[i])) : std::nullopt;
     }},
});

}  // namespace

std::span<const Metric<ProcessReport>> ProcessMetrics() { return kProcessMetrics; }

}  // namespace tessera::face
