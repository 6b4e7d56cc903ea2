#include "face/text/json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace tessera::face {
namespace {

using nlohmann::json;

struct ErrnoName {
  int code;
  const char* name;
  int status;
};
constexpr std::array kErrnoNames = {
    ErrnoName{EINVAL, "EINVAL", 400},         ErrnoName{ERANGE, "ERANGE", 400},
    ErrnoName{EPERM, "EPERM", 403},           ErrnoName{EACCES, "EACCES", 403},
    ErrnoName{ENOENT, "ENOENT", 404},         ErrnoName{ENODEV, "ENODEV", 404},
    ErrnoName{ESRCH, "ESRCH", 400},           ErrnoName{EBUSY, "EBUSY", 409},
    ErrnoName{EEXIST, "EEXIST", 409},         ErrnoName{ENOSPC, "ENOSPC", 409},
    ErrnoName{EOPNOTSUPP, "EOPNOTSUPP", 405}, ErrnoName{EMSGSIZE, "EMSGSIZE", 413},
    ErrnoName{ESHUTDOWN, "ESHUTDOWN", 503},   ErrnoName{ENOSYS, "ENOSYS", 501},
    ErrnoName{EAGAIN, "EAGAIN", 503},         ErrnoName{ESTALE, "ESTALE", 412},
    ErrnoName{EDQUOT, "EDQUOT", 403},
};

const ErrnoName& Lookup(int code) {
  static constexpr ErrnoName kOther{EIO, "EIO", 500};
  for (const ErrnoName& entry : kErrnoNames) {
    if (entry.code == code) return entry;
  }
  return kOther;
}

const char* TitleOf(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Payload Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json ToJson(const server::SwapReport& swap) {
  return {{"max_bytes", swap.max},
          {"pool_bytes", swap.pool},
          {"pool_used_bytes", swap.pool_used},
          {"pool_goal_bytes", swap.pool_goal},
          {"file_bytes", swap.file},
          {"file_used_bytes", swap.file_used},
          {"file_error", swap.file_error.empty() ? json() : json(swap.file_error)},
          {"capacity_bytes", swap.capacity},
          {"mover_pid", OrNull(swap.mover)},
          {"decision", swap.decision},
          {"mode", swap.mode},
          {"turn_us", swap.turn_us}};
}

// Figures of pressure to the hundredth of a percent, as the kernel gives its own.
double Hundredths(double percent) { return std::round(percent * 100) / 100; }

json ToJson(const server::Pressure::Figures& pressure) {
  return {{"some_avg10", Hundredths(pressure.avg10)},
          {"some_avg60", Hundredths(pressure.avg60)},
          {"some_avg300", Hundredths(pressure.avg300)},
          {"some_total_us", pressure.total / kMicrosecond}};
}

// null where there was none.
json ToJson(const std::vector<server::StayReport>& staying) {
  json list = json::array();
  for (const server::StayReport& stay : staying) list.push_back({{"vgpu", stay.vgpu}, {"why", stay.why}});
  return list;
}

json ToJson(const server::GpuHealth::Figures& health) {
  const auto text = [](const std::string& words) { return words.empty() ? json() : json(words); };
  return {{"failed", !health.failed.empty()},
          {"why", text(health.failed)},
          {"xid_errors", health.xids},
          {"ecc_errors", health.ecc_errors},
          {"last_xid", health.last_xid == 0 ? json() : json(health.last_xid)},
          {"last", text(health.last)},
          {"last_us", health.last.empty() ? json() : json(health.last_us)}};
}

std::optional<std::int64_t> Us(const std::optional<Nanos>& time) {
  return time ? std::optional(*time / kMicrosecond) : std::nullopt;
}

json ToJson(const server::BurstReport& bursts) {
  return {{"count", bursts.count},
          {"requests", bursts.requests},
          {"p50_us", OrNull(Us(bursts.p50))},
          {"p95_us", OrNull(Us(bursts.p95))},
          {"p99_us", OrNull(Us(bursts.p99))},
          {"solo_p50_us", OrNull(Us(bursts.solo_p50))},
          {"attained", bursts.attained_time ? json(*bursts.attained_time / kMicrosecond) : OrNull(bursts.attained_pct)},
          {"violations", bursts.ViolatingPart()},
          {"verdict", server::NameOf(bursts.verdict)},
          {"reason", bursts.reason.empty() ? json() : json(bursts.reason)}};
}

json ToJson(const server::PinnedByReason& bytes) {
  json by = json::object();
  for (std::size_t i = 0; i < bytes.size(); ++i) by[server::kPinNames[i]] = bytes[i];
  return by;
}

}  // namespace

json ToJson(const server::GpuReport& gpu) {
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"driver", gpu.driver.empty() ? json() : json(gpu.driver)},
          {"nvlink_group", OrNull(gpu.nvlink_group)},
          {"soft", gpu.soft},
          {"memory_total_bytes", gpu.memory_total},
          {"memory_reserve_bytes", gpu.memory_reserve},
          {"memory_used_bytes", gpu.memory_used},
          {"memory_promised_bytes", gpu.memory_promised},
          {"memory_unmanaged_bytes", gpu.memory_unmanaged},
          {"context_bytes", gpu.context_bytes},
          {"swap", gpu.swap ? ToJson(*gpu.swap) : json()},
          {"compute_requested_pct", gpu.compute_requested_pct},
          {"compute_busy_pct", gpu.compute_busy_pct},
          {"vgpus", gpu.vgpus},
          {"processes", gpu.processes},
          {"holder", OrNull(gpu.holder)},
          {"health", ToJson(gpu.health)},
          {"load_migrations", gpu.load_migrations},
          {"draining", gpu.draining},
          {"drain", gpu.drain ? json{{"moving", gpu.drain->moving}, {"staying", ToJson(gpu.drain->staying)}} : json()},
          {"control",
           {{"by", server::NameOf(gpu.divider)},
            {"why", gpu.why_gate},
            {"driver_calls", gpu.driver_calls},
            {"driver_calls_per_s", gpu.driver_calls_per_s},
            {"freezes", gpu.freezes},
            {"thaws", gpu.thaws},
            {"slices", gpu.slices},
            {"failures", gpu.call_failures},
            {"freeze_p50_us", gpu.freeze_p50_us},
            {"freeze_p99_us", gpu.freeze_p99_us},
            {"thaw_p50_us", gpu.thaw_p50_us},
            {"thaw_p99_us", gpu.thaw_p99_us}}}};
}

json ToJson(const server::VGpuReport& vgpu) {
  return {{"name", vgpu.name},
          {"tag", vgpu.tag},
          {"gpu", vgpu.gpu},
          {"gpu_uuid", vgpu.gpu_uuid},
          {"uid", vgpu.uid},
          {"ephemeral", vgpu.ephemeral},
          {"owner_pid", OrNull(vgpu.owner_pid)},
          {"memory_request_bytes", vgpu.memory_request},
          {"memory_limit_bytes", vgpu.memory_limit},
          {"memory_max_bytes", vgpu.memory_max},
          {"memory_current_bytes", vgpu.memory_current},
          {"memory_peak_bytes", vgpu.memory_peak},
          {"memory_available_bytes", vgpu.memory_available},
          {"memory_resident_bytes", vgpu.memory_resident},
          {"memory_pinned_bytes", vgpu.memory_pinned},
          {"memory_pinned_by", ToJson(vgpu.memory_pinned_by)},
          {"memory_over_limit_bytes", vgpu.memory_over_limit},
          {"over_limit_error", vgpu.over_limit_error.empty() ? json() : json(vgpu.over_limit_error)},
          {"memory_swap_current_bytes", vgpu.memory_swapped},
          {"memory_swap_max_bytes", OrNull(vgpu.memory_swap_max)},
          {"moved_out_bytes", vgpu.moved.out},
          {"moved_in_bytes", vgpu.moved.in},
          {"moving_us", vgpu.moved.time_us},
          {"memory_pressure", ToJson(vgpu.memory_pressure)},
          {"compute_pressure", ToJson(vgpu.compute_pressure)},
          {"oom_events", vgpu.oom_events},
          {"compute_request_pct", vgpu.compute_request_pct},
          {"compute_limit_pct", vgpu.compute_limit_pct},
          {"compute_weight", vgpu.compute_weight},
          {"compute_priority", vgpu.compute_priority},
          {"gang", vgpu.gang.empty() ? json() : json(vgpu.gang)},
          {"labels", vgpu.labels},
          {"space", vgpu.space.empty() ? json() : json(vgpu.space)},
          {"sm_limit_pct", vgpu.sm_limit_pct},
          {"sm_reserved", vgpu.sm_reserved},
          {"sm_burst", vgpu.sm_burst},
          {"sms", vgpu.sms},
          {"sms_kept", vgpu.sms_kept},
          {"goal", OrNull(vgpu.goal)},
          {"bursts", ToJson(vgpu.bursts)},
          {"slice_us", vgpu.slice_us},
          {"frozen", vgpu.frozen},
          {"compute_current_pct", vgpu.compute_current_pct},
          {"compute_busy_us", vgpu.compute_busy_us},
          {"compute_waited_us", vgpu.compute_waited_us},
          {"compute_throttled_us", vgpu.compute_throttled_us},
          {"compute_debt_us", vgpu.compute_debt_us},
          {"throttled", vgpu.throttled},
          {"preempted", vgpu.preempted},
          {"freezes", vgpu.freezes},
          {"state", vgpu.state},
          {"gpu_failed", vgpu.gpu_failed},
          {"migrating_to", OrNull(vgpu.migrating_to)},
          {"migrate_error", vgpu.migrate_error.empty() ? json() : json(vgpu.migrate_error)},
          {"gpu_faults", vgpu.gpu_faults},
          {"processes", vgpu.processes}};
}

json ToJson(const server::SpaceReport& space) {
  const auto pid_or_null = [](pid_t pid) { return pid == 0 ? json() : json(pid); };
  return {{"name", space.name},
          {"gpu", space.gpu},
          {"gpu_uuid", space.gpu_uuid},
          {"uid", space.uid},
          {"kept", space.kept},
          {"state", space.state},
          {"error", space.error.empty() ? json() : json(space.error)},
          {"pipe_directory", space.pipes},
          {"control_pid", pid_or_null(space.control_daemon)},
          {"server_pid", pid_or_null(space.server)},
          {"steered", space.steered},
          {"vgpus", space.vgpus},
          {"sm_limits_pct", space.sm_limits_pct},
          {"mode", space.mode},
          {"mode_gain", OrNull(space.mode_gain)},
          {"mode_tried_ago_us", OrNull(space.mode_tried_ago_us)},
          {"mode_why", space.mode_why.empty() ? json() : json(space.mode_why)}};
}

json ToJson(const server::ProcessReport& process) {
  json groups = json::array();
  for (const auto& group : process.groups) {
    groups.push_back(
        {{"client", group.client}, {"handle", group.handle}, {"engine", group.engine}, {"channels", group.channels}});
  }
  // Figures that only a shim reports are null if there is none.
  const auto told = [&process](const auto& value) { return process.shim ? json(value) : json(); };
  return {{"pid", process.pid},
          {"name", process.name},
          {"uid", OrNull(process.uid)},
          {"vgpu", OrNull(process.vgpu)},
          {"gpu", process.gpu},
          {"managed", process.vgpu.has_value()},
          {"adopted", process.adopted},
          {"enforce", process.enforce},
          {"complete", process.complete},
          {"channels", process.channels},
          {"groups", std::move(groups)},
          {"frozen", process.frozen},
          {"memory_bytes", process.memory},
          {"memory_measured_bytes", OrNull(process.memory_measured)},
          {"memory_resident_bytes", process.memory_resident},
          {"memory_pinned_bytes", process.memory_pinned},
          {"memory_pinned_by", ToJson(process.memory_pinned_by)},
          {"memory_exported_bytes", process.memory_exported},
          {"memory_swapped_bytes", process.memory_swapped},
          {"memory_stranded_bytes", process.memory_stranded},
          {"memory_hot_out_bytes", process.memory_hot_out},
          {"memory_evicting_bytes", process.memory_evicting},
          {"suspension", *process.suspension == 0 ? json() : json(process.suspension)},
          {"suspension_left_bytes", OrNull(process.suspension_left)},
          {"suspended_to", *process.suspended_to == 0 ? json() : json(process.suspended_to)},
          {"suspended_by", *process.suspended_by == 0 ? json() : json(process.suspended_by)},
          {"suspend_error", process.suspend_error.empty() ? json() : json(process.suspend_error)},
          {"evict_error", process.evict_error.empty() ? json() : json(process.evict_error)},
          {"moved_out_bytes", process.moved.out},
          {"moved_in_bytes", process.moved.in},
          {"moving_us", process.moved.time_us},
          {"memory_used_on_host_bytes", process.memory_used_on_host},
          {"memory_on_host_us", process.memory_on_host_us},
          {"memory_on_host_told_us", OrNull(process.memory_on_host_told_us)},
          {"memory_waited_us", process.memory_waited_us},
          {"room_waits", told(process.room_waits)},
          {"contexts", told(process.contexts)},
          {"compute_busy_us", told(process.compute_busy_us)},
          {"compute_waited_us", OrNull(process.compute_waited_us)},
          {"submissions", told(process.submissions)},
          {"gate_waits", told(process.gate_waits)},
          {"gate_wait_us", told(process.gate_wait_us)},
          {"window", told(process.window)},
          {"oom_errors", told(process.oom_errors)},
          {"state", told(process.state)},
          {"gpu_failed", process.gpu_failed},
          {"started_us", OrNull(process.started_us)}};
}

json ToJson(const server::SuspensionReport& suspension) {
  return {{"pid", suspension.pid}, {"phase", suspension.phase}};
}

json ToJson(const server::MigrationReport& migration) {
  json moves = json::array();
  for (const auto& move : migration.moves) moves.push_back({{"vgpu", move.vgpu}, {"from", move.from}, {"to", move.to}});
  return {{"moves", std::move(moves)},
          {"pids", migration.pids},
          {"moved_bytes", migration.moved},
          {"saved_bytes", migration.saved},
          {"expected_s", migration.seconds}};
}

json ToJson(const server::RehomingReport& rehoming) {
  json answer = ToJson(rehoming.migration);
  answer["gpu"] = rehoming.gpu;
  answer["staying"] = ToJson(rehoming.staying);
  return answer;
}

json ToJson(const server::EvictionReport& eviction) {
  return {{"pid", eviction.pid}, {"gpu", eviction.gpu}, {"evicting_bytes", eviction.evicting}};
}

json ToJson(const server::CheckReport& check) {
  return {{"name", check.name}, {"ok", check.ok}, {"text", check.text}, {"hint", check.hint}};
}

json ToJson(const server::Event& event) {
  return {{"number", event.number},
          {"time_us", event.time_us},
          {"type", NameOf(event.type)},
          {"gpu", OrNull(event.gpu)},
          {"vgpu", event.vgpu.empty() ? json() : json(event.vgpu)},
          {"pid", event.pid == 0 ? json() : json(event.pid)},
          {"text", event.text}};
}

json ToProblem(const Error& error, int status) {
  return {{"type", "about:blank"},   {"title", TitleOf(status)}, {"status", status},
          {"detail", error.message}, {"hint", error.hint},       {"code", NameOfErrno(error.code)}};
}

int StatusFor(int code) { return Lookup(code).status; }

const char* NameOfErrno(int code) { return Lookup(code).name; }

}  // namespace tessera::face
