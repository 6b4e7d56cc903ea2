#include "face/files/process_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "face/files/file_value.h"

namespace tessera::face {
namespace {
namespace of_process {  // because the two kinds of files have much the same names

using server::Control;
using server::ProcessReport;
using server::VGpuReport;
using server::VGpuRequest;

// Formats are GVM's: from the table and the examples of its README (github.com/ovg-project/GVM), and where those are
// silent from gvm_debugfs.c of its driver, which writes the files.
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr mode_t kReadOnly = 0444, kReadWrite = 0644;

Result<VGpuReport> VGpuOf(Control& control, const ProcessReport& process, int code_if_none) {
  if (process.vgpu) return control.VGpuNamed(*process.vgpu);
  return Fail(code_if_none, fmt::format("process {} is in no vGPU", process.pid),
              "write its PID to the file procs of a vGPU");
}

Result<void> Change(Control& control, const ProcessReport& process, const VGpuRequest& request) {
  const auto vgpu = VGpuOf(control, process, EPERM);
  if (!vgpu) return std::unexpected(vgpu.error());
  if (auto changed = control.Change(vgpu->name, request, /*wait=*/true); !changed)
    return std::unexpected(changed.error());
  return {};
}

Result<std::string> MemoryLimit(Control& control, const ProcessReport& process) {
  if (!process.vgpu) return fmt::format("{}\n", kUnlimited);
  const auto vgpu = control.VGpuNamed(*process.vgpu);
  if (!vgpu) return std::unexpected(vgpu.error());
  return fmt::format("{}\n", vgpu->memory_limit < vgpu->gpu_memory ? vgpu->memory_limit : kUnlimited);
}

// GVM accepts any number. A number beyond the GPU's memory is no limit.
Result<void> SetMemoryLimit(Control& control, const ProcessReport& process, std::string_view value) {
  const auto bytes = WholeNumber(value);
  if (!bytes) return std::unexpected(bytes.error());
  const auto vgpu = VGpuOf(control, process, EPERM);
  if (!vgpu) return std::unexpected(vgpu.error());
  return Change(control, process,
                {.memory_limit = *bytes < vgpu->gpu_memory ? std::to_string(*bytes) : std::string("max")});
}

// Memory on the GPU, as in GVM: swapped memory is counted separately.
Result<std::string> MemoryCurrent(Control& control, const ProcessReport& process) {
  if (process.vgpu) return fmt::format("{}\n", process.memory_resident);
  // Unmanaged processes do not report their memory: ask the device.
  const auto measured = control.Processes();
  if (!measured) return std::unexpected(measured.error());
  const auto same = [&](const ProcessReport& other) { return other.pid == process.pid && other.gpu == process.gpu; };
  const auto found = std::ranges::find_if(*measured, same);
  if (found == measured->end()) return Fail(ENOENT, fmt::format("process {} has just ended", process.pid));
  return fmt::format("{}\n", found->memory_resident);
}

Result<std::string> SwapCurrent(Control&, const ProcessReport& process) {
  return fmt::format("{}\n", process.memory_swapped);
}

// GVM's README: "0-15. lower is higher priority", 8 at first. Ours have the same meaning, so values are not mapped.
Result<std::string> Priority(Control& control, const ProcessReport& process) {
  const auto vgpu = VGpuOf(control, process, ENODATA);
  if (!vgpu) return std::unexpected(vgpu.error());
  return fmt::format("{}\n", vgpu->compute_priority);
}

Result<void> SetPriority(Control& control, const ProcessReport& process, std::string_view value) {
  if (auto number = WholeNumber(value); !number) return std::unexpected(number.error());
  return Change(control, process, {.compute_priority = std::string(value)});
}

// Only the operator's freeze: GVM reads back what was written.
Result<std::string> Frozen(Control&, const ProcessReport& process) {
  return std::ranges::find(process.frozen, std::string_view("operator")) != process.frozen.end() ? "1\n" : "0\n";
}

Result<void> SetFrozen(Control& control, const ProcessReport& process, std::string_view value) {
  const auto frozen = OnOrOff(value);
  if (!frozen) return std::unexpected(frozen.error());
  return control.Freeze(process.pid, *frozen);
}

// Submissions are launches, copies, memsets and graphs that pass the gate. All of them have ended when the process is
// parked or waits at its gate. Of an active process the number is not known: one counts as pending, which only says
// that the process is busy.
Result<std::string> Statistics(Control&, const ProcessReport& process) {
  if (!process.shim)
    return Fail(ENODATA, fmt::format("the submissions of process {} are not counted: it has no shim", process.pid));
  const bool active = process.state == std::string_view("active");
  const std::uint64_t pending = active ? std::min<std::uint64_t>(process.submissions, 1) : 0;
  return fmt::format("nr_submitted_kernels: {}\nnr_ended_kernels: {}\nnr_pending_kernels: {}\n", process.submissions,
                     process.submissions - pending, pending);
}

constexpr auto kFiles = std::to_array<ProcessFile>({
    {"memory.limit", kReadWrite, MemoryLimit, SetMemoryLimit},
    {"memory.current", kReadOnly, MemoryCurrent, nullptr},
    {"memory.swap.current", kReadOnly, SwapCurrent, nullptr},
    {"compute.priority", kReadWrite, Priority, SetPriority},
    {"compute.freeze", kReadWrite, Frozen, SetFrozen},
    {"gcgroup.stat", kReadOnly, Statistics, nullptr},
});

}  // namespace of_process
}  // namespace

std::span<const ProcessFile> ProcessFiles() { return of_process::kFiles; }

std::string ListProcesses(const std::vector<server::ProcessReport>& processes) {
  std::vector<pid_t> pids;
  for (const server::ProcessReport& process : processes) pids.push_back(process.pid);
  std::ranges::sort(pids);
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  std::string text = "PID\n";
  for (const pid_t pid : pids) text += fmt::format("{}\n", pid);
  return text;
}

}  // namespace tessera::face
