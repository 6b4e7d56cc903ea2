#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "channel/rm/object_table.h"
#include "server/checkpoint/moving_figures.h"
#include "server/figures/labels.h"
#include "server/figures/pressure.h"
#include "server/gpu/gpu_health.h"
#include "server/memory/pinned.h"
#include "server/model/bursts.h"
#include "server/record/histogram.h"
#include "server/time/divider.h"

namespace tessera::server {

class Daemon;
struct VGpu;

// The daemon's reports about itself: copies that another thread may keep. Bytes and microseconds.

// The host memory that holds what does not fit on a GPU, and what is done about that.
struct SwapReport {
  std::uint64_t max = 0, pool = 0, pool_used = 0, pool_goal = 0;
  std::uint64_t file = 0, file_used = 0;
  std::string file_error;      // why nothing more is written to the file; empty: it is
  std::uint64_t capacity = 0;  // of the GPU's memory, for programs' room
  std::optional<pid_t> mover;
  std::string decision;           // for people
  const char* mode = "together";  // or "turns"
  std::int64_t turn_us = 0;       // of the turn that is under way, 0 if none is
  Histogram moves_out, moves_in;  // of one process each
};

struct MovesReport {
  std::uint64_t out = 0, in = 0;
  std::int64_t time_us = 0;
};

// A vGPU that should go to another GPU and cannot.
struct StayReport {
  std::string vgpu, why;
};

// How far a GPU that drains is.
struct DrainReport {
  std::vector<std::string> moving;  // vGPUs that wait for their move or are on their way
  std::vector<StayReport> staying;
};

struct GpuReport {
  std::uint32_t index = 0;
  std::string uuid, name, driver;
  std::optional<std::uint32_t> nvlink_group;
  bool soft = false;
  std::uint64_t memory_total = 0, memory_reserve = 0, memory_used = 0, memory_promised = 0, memory_unmanaged = 0;
  std::uint64_t context_bytes = 0;
  std::optional<SwapReport> swap;  // none: memory is not swapped
  double compute_requested_pct = 0, compute_busy_pct = 0;
  std::size_t vgpus = 0, processes = 0;
  std::optional<std::string> holder;
  Divider divider = Divider::kGates;
  std::string why_gate;  // why not by the channels
  std::uint64_t driver_calls = 0, freezes = 0, thaws = 0, slices = 0, call_failures = 0;
  double driver_calls_per_s = 0;
  std::int64_t freeze_p50_us = 0, freeze_p99_us = 0, thaw_p50_us = 0, thaw_p99_us = 0;
  Histogram freeze_times, thaw_times;
  Histogram lateness;    // of the scheduler
  MovingFigures moving;  // of all GPUs
  GpuHealth::Figures health;
  std::uint64_t load_migrations = 0;  // vGPUs that went to others as it was asked for too much time
  bool draining = false;              // it takes no newcomers
  std::optional<DrainReport> drain;   // none: it does not drain, or the caller may not know
};

struct VGpuReport {
  std::string name, gpu_uuid;
  std::string tag;  // of its settings: see TagOf
  std::uint32_t gpu = 0;
  uid_t uid = 0;
  bool ephemeral = false;
  bool for_everybody = false;  // all users may see it and run programs in it
  std::optional<pid_t> owner_pid;
  std::uint64_t memory_request = 0, memory_limit = 0, memory_max = 0, memory_current = 0, memory_peak = 0,
                memory_available = 0;
  std::uint64_t memory_resident = 0, memory_swapped = 0;
  std::uint64_t memory_pinned = 0;  // of what is on the GPU
  PinnedByReason memory_pinned_by{};
  std::uint64_t memory_over_limit = 0;           // of what is on the GPU: above memory_limit, so it has to go
  std::string over_limit_error;                  // why some of that cannot; empty: it can, or nobody knows
  std::optional<std::uint64_t> memory_swap_max;  // none: as much as there is
  std::uint64_t gpu_memory = 0;                  // of its GPU: a limit of that is none
  MovesReport moved;
  Pressure::Figures memory_pressure, compute_pressure;
  std::uint64_t oom_events = 0;
  double compute_request_pct = 0, compute_limit_pct = 0, compute_current_pct = 0;
  std::uint32_t compute_weight = 0, compute_priority = 0;
  std::string gang;  // empty: it has none by name
  Labels labels;
  std::string space;  // empty: it is in none
  double sm_limit_pct = 100;
  bool sm_reserved = false, sm_burst = false;
  std::uint32_t sms = 0;            // multiprocessors that its programs may use, the most of one; 0: none runs
  std::uint32_t sms_kept = 0;       // programs whose SMs are those of before: they could not move yet
  std::optional<std::string> goal;  // as text; none: it has none
  BurstReport bursts;
  std::int64_t slice_us = 0;        // of all its processes together; 0: the driver's default
  std::vector<const char*> frozen;  // why: "operator", "policy", "move", "memory"; empty: it is not
  std::int64_t compute_busy_us = 0, compute_waited_us = 0;
  std::int64_t compute_throttled_us = 0, compute_debt_us = 0;
  std::uint64_t throttled = 0, preempted = 0, freezes = 0;  // how often, by its limit, by others and by an operator
  Histogram waits;                                          // of submissions at a closed gate, for the GPU's time
  const char* state = "idle";                               // "running", "waiting" or "idle"
  std::vector<pid_t> processes;
  std::optional<std::uint32_t> migrating_to;  // the GPU that it is on its way to
  std::string migrate_error;                  // why its last migration failed; empty: it did not
  std::uint64_t gpu_faults = 0;               // that its GPU told of while it had programs there
  bool gpu_failed = false;
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
  // Bytes of it on the GPU; of these, bytes that cannot be moved; bytes in host memory; of these, bytes that stay there
  // for good, and bytes that should come in; bytes that an operator's evict has still to bring there.
  std::uint64_t memory_resident = 0, memory_pinned = 0, memory_swapped = 0, memory_stranded = 0, memory_hot_out = 0;
  std::uint64_t memory_evicting = 0;
  PinnedByReason memory_pinned_by{};
  std::uint64_t memory_exported = 0;  // what of the pinned other programs may map by IPC handles
  const char* suspension = "";  // how far it is on its way off its GPUs or back (SuspensionPhase); empty: it is there
  std::optional<std::uint64_t> suspension_left;  // bytes that this step has still to move; none: it moves none
  const char* suspended_to = "";  // where what it had on the GPU is while it is away: "memory" or "file"; else empty
  const char* suspended_by = "";  // on its way off its GPUs or off them: "request", or "idle": by itself; else empty
  std::string suspend_error;      // why it could not be suspended or resumed last; empty: it could
  std::string evict_error;        // why the last eviction brought out less than it should have; empty: it did not
  MovesReport moved;
  // What it used lately and lies in host memory; the time in which it worked while that was much; the same since it
  // began, if an event told of it.
  std::uint64_t memory_used_on_host = 0;
  std::int64_t memory_on_host_us = 0;
  std::optional<std::int64_t> memory_on_host_told_us;
  std::int64_t memory_waited_us = 0;  // it had work, or wanted memory, and had to wait for memory
  std::uint32_t contexts = 0;
  std::uint64_t compute_busy_us = 0, submissions = 0, gate_waits = 0, gate_wait_us = 0, window = 0, oom_errors = 0;
  std::uint64_t room_waits = 0;
  std::optional<std::int64_t> compute_waited_us;  // it had work, and its vGPU was kept off the GPU; none: in no vGPU
  const char* state = "idle";                     // "active", "waiting" or "idle"
  std::optional<std::int64_t> started_us;
  bool gpu_failed = false;
};

struct SpaceReport {
  std::string name, gpu_uuid;
  std::uint32_t gpu = 0;
  uid_t uid = 0;
  bool kept = false;                     // it was made to last; else it ends with its last vGPU
  const char* state = "";                // "starting", "ready", "fault" or "closing"
  std::string error;                     // why it is not ready; empty: nothing is known to be wrong
  std::string pipes;                     // where clients find the MPS control daemon
  pid_t control_daemon = 0, server = 0;  // 0: there is none now
  bool steered = false;                  // its channels are known
  std::vector<std::string> vgpus;
  double sm_limits_pct = 0;  // their sum
  // How its vGPUs run, "at_once" or "in_turns"; the rest is of the last trial of both, none: there was none.
  const char* mode = "at_once";
  std::optional<double> mode_gain;  // speed at once over the speed in turns; none: nobody's progress could be compared
  std::optional<std::int64_t> mode_tried_ago_us;
  std::string mode_why;  // for people; empty: there was no trial
};

// Memory that is being brought out of a GPU because somebody said so.
struct EvictionReport {
  pid_t pid = 0;
  std::uint32_t gpu = 0;
  std::uint64_t evicting = 0;  // still to be moved
};

// A program on its way off its GPUs, or back.
struct SuspensionReport {
  pid_t pid = 0;
  const char* phase = "";  // as ProcessReport::suspension; "none": it is on its GPUs
};

// A migration that was begun, or could be.
struct MigrationReport {
  struct Move {
    std::string vgpu;
    std::uint32_t from = 0, to = 0;
  };
  std::vector<Move> moves;
  std::vector<pid_t> pids;
  std::uint64_t moved = 0;  // bytes that Tessera moves
  std::uint64_t saved = 0;  // bytes that the driver saves, contexts included
  double seconds = 0;       // expected to take, by the figures of docs/hardware-log.md
};

// Moves of vGPUs from one GPU to others that were begun, or could be.
struct RehomingReport {
  MigrationReport migration;
  std::vector<StayReport> staying;
  std::uint32_t gpu = 0;  // the one that drains, or has room then
};

struct CheckReport {
  std::string name;
  bool ok = false;
  std::string text, hint;
};

// All of it, as one moment saw it.
struct WholeReport {
  std::vector<GpuReport> gpus;
  std::vector<VGpuReport> vgpus;
  std::vector<ProcessReport> processes;
  std::vector<SpaceReport> spaces;
};

// On the event loop's thread.
std::vector<GpuReport> ReportGpus(Daemon& daemon, Nanos now);
VGpuReport ReportVGpu(Daemon& daemon, const VGpu& vgpu, Nanos now);
std::vector<VGpuReport> ReportVGpus(Daemon& daemon, Nanos now);
std::vector<ProcessReport> ReportProcesses(Daemon& daemon, Nanos now, std::optional<pid_t> only = {});
// Of one vGPU; and of none.
std::vector<ProcessReport> ReportProcesses(Daemon& daemon, const VGpu& vgpu, Nanos now);
std::vector<ProcessReport> ReportUnmanaged(Daemon& daemon, std::optional<pid_t> only = {});
std::vector<SpaceReport> ReportSpaces(Daemon& daemon, Nanos now);
std::vector<CheckReport> ReportChecks(Daemon& daemon);

}  // namespace tessera::server
