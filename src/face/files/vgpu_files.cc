#include "face/files/vgpu_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "face/files/file_value.h"

namespace tessera::face {
namespace {
namespace of_vgpu {  // because the two kinds of files have much the same names

using server::Control;
using server::VGpuReport;
using server::VGpuRequest;

constexpr mode_t kReadOnly = 0444, kReadWrite = 0644;

std::string Line(std::uint64_t number) { return fmt::format("{}\n", number); }

// Percent, without decimals that are zero.
std::string Line(double percent) { return fmt::format("{:.6g}\n", percent); }

Result<void> Change(Control& control, const VGpuReport& vgpu, const VGpuRequest& request) {
  if (auto changed = control.Change(vgpu.name, request, /*wait=*/true); !changed)
    return std::unexpected(changed.error());
  return {};
}

// Sets one field of a vGPU, with a value as the API takes it.
template <std::optional<std::string> VGpuRequest::* field>
Result<void> Set(Control& control, const VGpuReport& vgpu, std::string_view value) {
  VGpuRequest request;
  request.*field = std::string(value);
  return Change(control, vgpu, request);
}

Result<void> SetComputeMax(Control& control, const VGpuReport& vgpu, std::string_view value) {
  return Set<&VGpuRequest::compute_limit>(control, vgpu, value == "max" ? "100" : value);
}

Result<void> SetFrozen(Control& control, const VGpuReport& vgpu, std::string_view value) {
  const auto frozen = OnOrOff(value);
  if (!frozen) return std::unexpected(frozen.error());
  return control.Freeze(vgpu.name, *frozen);
}

Result<void> SetSmBurst(Control& control, const VGpuReport& vgpu, std::string_view value) {
  const auto burst = OnOrOff(value);
  if (!burst) return std::unexpected(burst.error());
  VGpuRequest request;
  request.sm_burst = *burst;
  return Change(control, vgpu, request);
}

Result<void> Adopt(Control& control, const VGpuReport& vgpu, std::string_view value) {
  const auto pid = WholeNumber(value);
  if (!pid) return std::unexpected(pid.error());
  if (*pid == 0 || *pid > std::numeric_limits<pid_t>::max()) return Fail(EINVAL, "invalid process ID");
  auto adopted = control.Adopt(static_cast<pid_t>(*pid), vgpu.name);
  if (adopted) return {};
  // As in cgroup.procs: ENOENT would mean that the file is missing, and ENOSYS that files cannot be written.
  Error error = std::move(adopted.error());
  if (error.code == ENOENT) error.code = ESRCH;
  if (error.code == ENOSYS) error.code = EOPNOTSUPP;
  return std::unexpected(std::move(error));
}

std::string Processes(const VGpuReport& vgpu) {
  std::string text;
  for (const pid_t pid : vgpu.processes) text += fmt::format("{}\n", pid);
  return text;
}

std::string Labels(const VGpuReport& vgpu) {
  std::string text;
  for (const auto& [key, value] : vgpu.labels) text += fmt::format("{}={}\n", key, value);
  return text;
}

// As cgroup v2 writes it: "max" for no bound.
std::string Bound(std::uint64_t bytes, bool bounded) { return bounded ? Line(bytes) : "max\n"; }

std::string Line(const server::Pressure::Figures& some) {
  return fmt::format("some avg10={:.2f} avg60={:.2f} avg300={:.2f} total={}\n", some.avg10, some.avg60, some.avg300,
                     some.total / kMicrosecond);
}

std::string ComputeStat(const VGpuReport& vgpu) {
  return fmt::format("usage_usec {}\nwaited_usec {}\nthrottled_usec {}\nslice_usec {}\n", vgpu.compute_busy_us,
                     vgpu.compute_waited_us, vgpu.compute_throttled_us, vgpu.slice_us);
}

// Only the operator's freeze: scripts must not undo the policy's, which come and go by themselves.
std::string Frozen(const VGpuReport& vgpu) {
  return std::ranges::find(vgpu.frozen, std::string_view("operator")) != vgpu.frozen.end() ? "1\n" : "0\n";
}

constexpr auto kFiles = std::to_array<VGpuFile>({
    {"memory.current", kReadOnly, [](const VGpuReport& vgpu) { return Line(vgpu.memory_current); }, nullptr},
    {"memory.events", kReadOnly, [](const VGpuReport& vgpu) { return fmt::format("oom {}\n", vgpu.oom_events); },
     nullptr, true},
    {"memory.limit", kReadWrite,
     [](const VGpuReport& vgpu) { return Bound(vgpu.memory_limit, vgpu.memory_limit < vgpu.gpu_memory); },
     Set<&VGpuRequest::memory_limit>},
    {"memory.max", kReadWrite, [](const VGpuReport& vgpu) { return Line(vgpu.memory_max); },
     Set<&VGpuRequest::memory_max>},
    {"memory.peak", kReadOnly, [](const VGpuReport& vgpu) { return Line(vgpu.memory_peak); }, nullptr},
    {"memory.pressure", kReadOnly, [](const VGpuReport& vgpu) { return Line(vgpu.memory_pressure); }, nullptr},
    {"memory.request", kReadWrite, [](const VGpuReport& vgpu) { return Line(vgpu.memory_request); },
     Set<&VGpuRequest::memory_request>},
    {"memory.swap.current", kReadOnly, [](const VGpuReport& vgpu) { return Line(vgpu.memory_swapped); }, nullptr},
    {"memory.swap.max", kReadWrite,
     [](const VGpuReport& vgpu) { return Bound(vgpu.memory_swap_max.value_or(0), vgpu.memory_swap_max.has_value()); },
     Set<&VGpuRequest::memory_swap_max>},
    {"compute.events", kReadOnly,
     [](const VGpuReport& vgpu) {
       return fmt::format("throttled {}\npreempted {}\nfrozen {}\n", vgpu.throttled, vgpu.preempted, vgpu.freezes);
     },
     nullptr, true},
    {"compute.freeze", kReadWrite, Frozen, SetFrozen},
    {"compute.goal", kReadWrite, [](const VGpuReport& vgpu) { return (vgpu.goal ? *vgpu.goal : "none") + "\n"; },
     Set<&VGpuRequest::goal>},
    {"compute.max", kReadWrite,
     [](const VGpuReport& vgpu) { return vgpu.compute_limit_pct < 100 ? Line(vgpu.compute_limit_pct) : "max\n"; },
     SetComputeMax},
    {"compute.pressure", kReadOnly, [](const VGpuReport& vgpu) { return Line(vgpu.compute_pressure); }, nullptr},
    {"compute.priority", kReadWrite, [](const VGpuReport& vgpu) { return Line(std::uint64_t{vgpu.compute_priority}); },
     Set<&VGpuRequest::compute_priority>},
    {"compute.request", kReadWrite, [](const VGpuReport& vgpu) { return Line(vgpu.compute_request_pct); },
     Set<&VGpuRequest::compute_request>},
    {"compute.stat", kReadOnly, ComputeStat, nullptr},
    {"compute.weight", kReadWrite, [](const VGpuReport& vgpu) { return Line(std::uint64_t{vgpu.compute_weight}); },
     Set<&VGpuRequest::compute_weight>},
    {"gang", kReadWrite, [](const VGpuReport& vgpu) { return (vgpu.gang.empty() ? "none" : vgpu.gang) + "\n"; },
     Set<&VGpuRequest::gang>},
    {"labels", kReadOnly, Labels, nullptr},
    {"procs", kReadWrite, Processes, Adopt},
    {"sm.burst", kReadWrite, [](const VGpuReport& vgpu) { return Line(std::uint64_t{vgpu.sm_burst}); }, SetSmBurst},
    {"sm.limit", kReadWrite, [](const VGpuReport& vgpu) { return Line(vgpu.sm_limit_pct); },
     Set<&VGpuRequest::sm_limit>},
    {"sm.reserved", kReadOnly, [](const VGpuReport& vgpu) { return Line(std::uint64_t{vgpu.sm_reserved}); }, nullptr},
    {"space", kReadOnly, [](const VGpuReport& vgpu) { return vgpu.space + "\n"; }, nullptr},
});

}  // namespace of_vgpu
}  // namespace

std::span<const VGpuFile> VGpuFiles() { return of_vgpu::kFiles; }

}  // namespace tessera::face
