#include <algorithm>
#include <array>

#include "face/text/metric_table.h"

namespace tessera::face {
namespace {

using server::GpuReport;
using server::Histogram;
using server::SwapReport;
using enum MetricType;

constexpr std::array kCalls = {"freeze", "thaw", "slice"};
constexpr std::array kMigrationResults = {"moved", "failed"};
constexpr auto kPhases = [] {
  std::array<const char*, server::kTimedPhases.size()> names{};
  std::ranges::transform(server::kTimedPhases, names.begin(), [](auto phase) { return NameOf(phase); });
  return names;
}();

template <typename Value>
std::optional<double> OfSwap(const GpuReport& gpu, Value SwapReport::* field) {
  return gpu.swap ? std::optional(static_cast<double>((*gpu.swap).*field)) : std::nullopt;
}

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
    {.family = {"tessera_suspensions", kCounter, "", "result",
                "Programs that left their GPUs (suspended) and came back (resumed), that could not do so (failed), or "
                "that the driver lost."},
     .label = "result",
     .values = server::kSuspensionResults,
     .each = [](const GpuReport& gpu, std::size_t i) -> std::optional<double> {
       return Of(gpu.moving.suspensions[i]);
     }},
    {.family = {"tessera_idle_suspensions", kCounter, "", "result",
                "Of tessera_suspensions, those of programs that were idle for as long as suspend.idle says."},
     .label = "result",
     .values = server::kSuspensionResults,
     .each = [](const GpuReport& gpu, std::size_t i) -> std::optional<double> {
       return Of(gpu.moving.idle_suspensions[i]);
     }},
    {.family = {"tessera_suspension_seconds", kHistogram, "seconds", "phase",
                "Time of each phase of a suspension or of a return, as `suspension` of a process names it."},
     .label = "phase",
     .values = kPhases,
     .each_histogram = [](const GpuReport& gpu, std::size_t i) { return &gpu.moving.phases[i]; }},
    {.family = {"tessera_migrations", kCounter, "", "result",
                "vGPUs that went to another GPU (moved), or could not (failed)."},
     .label = "result",
     .values = kMigrationResults,
     .each = [](const GpuReport& gpu, std::size_t i) -> std::optional<double> {
       return Of(i == 0 ? gpu.moving.vgpus_moved : gpu.moving.vgpus_not_moved);
     }},
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
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.compute_requested_pct / kWholePct; }},
    {.family = {"tessera_gpu_compute_busy_ratio", kGauge, "ratio", "gpu",
                "Fraction of the last seconds in which programs in vGPUs used the GPU."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.compute_busy_pct / kWholePct; }},
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
    {.family = {"tessera_gpu_draining", kGauge, "", "gpu", "1 if the GPU drains: it takes no new vGPUs and programs."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return gpu.draining ? 1 : 0; }},
    {.family = {"tessera_gpu_load_migrations", kCounter, "", "gpu",
                "Of tessera_migrations, those that rebalance.load began because this GPU was asked for too much time."},
     .value = [](const GpuReport& gpu) -> std::optional<double> { return Of(gpu.load_migrations); }},
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

}  // namespace

std::span<const Metric<GpuReport>> DaemonMetrics() { return kDaemonMetrics; }
std::span<const Metric<GpuReport>> GpuMetrics() { return kGpuMetrics; }

}  // namespace tessera::face
