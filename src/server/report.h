#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::uint32_t compute_weight = 0;
  std::int64_t compute_busy_us = 0, compute_waited_us = 0;
  const char* token = "idle";  // "held", "waiting" or "idle"
  std::vector<pid_t> processes;
};

struct ProcessReport {
  pid_t pid = 0;
  std::string name, vgpu;
  uid_t uid = 0;
  std::uint32_t gpu = 0;
  std::uint64_t memory = 0;
  std::optional<std::uint64_t> memory_measured;
  std::uint32_t contexts = 0;
  std::uint64_t compute_busy_us = 0, submissions = 0, gate_waits = 0, gate_wait_us = 0, window = 0, oom_errors = 0;
  const char* state = "idle";  // "active", "waiting" or "idle"
  std::int64_t started_us = 0;
};

// On the event loop's thread.
std::vector<GpuReport> ReportGpus(Daemon& daemon);
VGpuReport ReportVGpu(Daemon& daemon, const VGpu& vgpu);
std::vector<VGpuReport> ReportVGpus(Daemon& daemon);
std::vector<ProcessReport> ReportProcesses(Daemon& daemon);

}  // namespace tessera::server
