#include "face/text/overview_json.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "face/text/json.h"

namespace tessera::face {
namespace {

using nlohmann::json;

template <typename Value>
json NullOr(const std::optional<Value>& value) {
  return value ? json(*value) : json();
}

json NullIfEmpty(const std::string& text) { return text.empty() ? json() : json(text); }

std::optional<std::int64_t> MicrosOf(const std::optional<Nanos>& time) {
  return time.transform([](Nanos nanos) { return nanos / kMicrosecond; });
}

json GoalOf(const server::VGpuReport& vgpu) {
  if (!vgpu.goal) return {};
  const server::BurstReport& bursts = vgpu.bursts;
  return {{"goal", *vgpu.goal},
          {"attained", bursts.attained_time ? NullOr(MicrosOf(bursts.attained_time)) : NullOr(bursts.attained_pct)},
          {"violations", bursts.ViolatingPart()},
          {"verdict", server::NameOf(bursts.verdict)},
          {"reason", NullIfEmpty(bursts.reason)}};
}

json Brief(const server::VGpuReport& vgpu) {
  return {{"name", vgpu.name},
          {"gpu", vgpu.gpu},
          {"uid", vgpu.uid},
          {"state", vgpu.state},
          {"frozen", vgpu.frozen},
          {"gang", NullIfEmpty(vgpu.gang)},
          {"space", NullIfEmpty(vgpu.space)},
          {"compute_request_pct", vgpu.compute_request_pct},
          {"compute_limit_pct", vgpu.compute_limit_pct},
          {"compute_current_pct", vgpu.compute_current_pct},
          {"compute_weight", vgpu.compute_weight},
          {"compute_priority", vgpu.compute_priority},
          {"compute_busy_us", vgpu.compute_busy_us},
          {"compute_waited_us", vgpu.compute_waited_us},
          {"sm_limit_pct", vgpu.sm_limit_pct},
          {"memory_request_bytes", vgpu.memory_request},
          {"memory_limit_bytes", vgpu.memory_limit},
          {"memory_max_bytes", vgpu.memory_max},
          {"memory_current_bytes", vgpu.memory_current},
          {"memory_resident_bytes", vgpu.memory_resident},
          {"memory_swap_current_bytes", vgpu.memory_swapped},
          {"moved_out_bytes", vgpu.moved.out},
          {"moved_in_bytes", vgpu.moved.in},
          {"oom_events", vgpu.oom_events},
          {"goal", GoalOf(vgpu)},
          {"gpu_failed", vgpu.gpu_failed},
          {"processes", vgpu.processes.size()}};
}

json Brief(const server::ProcessReport& process) {
  return {{"pid", process.pid},
          {"name", process.name},
          {"uid", NullOr(process.uid)},
          {"vgpu", NullOr(process.vgpu)},
          {"gpu", process.gpu},
          {"enforce", process.enforce},
          {"state", process.shim ? json(process.state) : json()},
          {"frozen", process.frozen},
          {"memory_bytes", process.memory},
          {"memory_resident_bytes", process.memory_resident},
          {"memory_swapped_bytes", process.memory_swapped},
          {"memory_evicting_bytes", process.memory_evicting},
          {"suspension", *process.suspension == 0 ? json() : json(process.suspension)},
          {"suspended_by", *process.suspended_by == 0 ? json() : json(process.suspended_by)},
          {"evict_error", NullIfEmpty(process.evict_error)}};
}

template <typename Reports, typename Write>
json ListOf(const Reports& reports, Write write) {
  json list = json::array();
  for (const auto& report : reports) list.push_back(write(report));
  return list;
}

}  // namespace

std::string WriteOverview(const server::Overview& overview, const server::Caller& caller,
                          const server::DaemonTraits& traits, std::int64_t time_us) {
  const auto whole = [](const auto& report) { return ToJson(report); };
  const auto brief = [](const auto& report) { return Brief(report); };
  const json answer = {
      {"time_us", time_us},
      {"daemon", {{"version", TESSERA_VERSION}, {"pid", getpid()}, {"soft", traits.soft}}},
      // All operators share an answer.
      {"caller", {{"uid", caller.IsOperator() ? json() : json(caller.uid)}, {"operator", caller.IsOperator()}}},
      {"gpus", ListOf(overview.gpus, whole)},
      {"spaces", ListOf(overview.spaces, whole)},
      {"vgpus", ListOf(overview.vgpus, brief)},
      {"processes", ListOf(overview.processes, brief)}};
  // Names of programs may hold any bytes.
  return answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::face
