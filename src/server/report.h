#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "channel/object_table.h"

namespace tessera::server {

class Daemon;
struct VGpu;

// What the daemon tells about itself: copies that another thread may keep. Bytes and microseconds.
struct GpuReport {
  std::uint32_t index = 0;
  std::string uuid, name;
  bool soft = false;
  std::uint64_t memory_total = 0, memory_reserve = 0, memory_used = 0, memory_promised = 0, memory_unmanaged = 0;
  std::uint64_t context_bytes = 0;
  double compute_requested_pct = 0, compute_busy_pct = 0;
  std::size_t vgpus = 0, processes = 0;
  std::optional<std::string> holder;
  std::string why_gate;  // empty: channels are steered
  std::uint64_t driver_calls = 0, freezes = 0, thaws = 0, slices = 0, call_failures = 0;
  double driver_calls_per_s = 0;
  std::int64_t freeze_p50_us = 0, freeze_p99_us = 0, thaw_p50_us = 0, thaw_p99_us = 0;
};

struct VGpuReport {
  std::string name, gpu_uuid;
  std::uint32_t gpu = 0;
  uid_t uid = 0;
  bool ephemeral = false;
  std::optional<pid_t> owner_pid;
  std::uint64_t memory_limit = 0, memory_max = 0, memory_current = 0, memory_peak = 0, memory_available = 0;
  std::uint64_t oom_events = 0;
  double compute_request_pct = 0, compute_limit_pct = 0, compute_current_pct = 0;
  std::uint32_t compute_weight = 0, compute_priority = 0;
  std::int64_t slice_us = 0;        // of all its processes together; 0: the driver's default
  std::vector<const char*> frozen;  // why: "operator", "policy", "move", "memory"; empty: it is not
  std::int64_t compute_busy_us = 0, compute_waited_us = 0;
  const char* token = "idle";  // "held", "waiting" or "idle"
  std::vector<pid_t> processes;
};

struct ProcessReport {
  pid_t pid = 0;
  std::string name;
  std::optional<std::string> vgpu;  // none: nobody started it through Tessera
  std::optional<uid_t> uid;
  bool shim = false;  // it speaks to the daemon itself; else the figures from `contexts` on are not known
  bool adopted = false;
  const char* enforce = "none";  // "shim", "kernel" or "none"
  bool complete = true;          // false: it has, or had, more than is known
  std::size_t channels = 0;      // on all GPUs
  std::vector<channel::Group> groups;
  std::vector<const char*> frozen;
  std::uint32_t gpu = 0;
  std::uint64_t memory = 0;
  std::optional<std::uint64_t> memory_measured;
  std::uint32_t contexts = 0;
  std::uint64_t compute_busy_us = 0, submissions = 0, gate_waits = 0, gate_wait_us = 0, window = 0, oom_errors = 0;
  const char* state = "idle";  // "active", "waiting" or "idle"
  std::optional<std::int64_t> started_us;
};

struct CheckReport {
  std::string name;
  bool ok = false;
  std::string text, hint;
};

// On the event loop's thread.
std::vector<GpuReport> ReportGpus(Daemon& daemon);
VGpuReport ReportVGpu(Daemon& daemon, const VGpu& vgpu);
std::vector<VGpuReport> ReportVGpus(Daemon& daemon);
std::vector<ProcessReport> ReportProcesses(Daemon& daemon);
std::vector<CheckReport> ReportChecks(Daemon& daemon);

}  // namespace tessera::server
