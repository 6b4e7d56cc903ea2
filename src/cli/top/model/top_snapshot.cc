#include "cli/top/model/top_snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client/json_fields.h"

namespace tessera::cli::top {
using client::Field;
using client::IntegerField;
using client::Json;
using client::NumberField;
using client::TextField;

namespace {

int Whole(const Json& object, const char* name) {
  return static_cast<int>(std::min<std::uint64_t>(IntegerField(object, name), INT32_MAX));
}

bool FrozenByOperator(const Json& object) {
  const Json& reasons = Field(object, "frozen");
  return std::ranges::any_of(reasons, [](const Json& reason) { return reason == "operator"; });
}

Gpu ReadGpu(const Json& json) {
  Gpu gpu{.index = Whole(json, "index"),
          .name = TextField(json, "name"),
          .control = TextField(Field(json, "control"), "by"),
          .total = IntegerField(json, "memory_total_bytes"),
          .used = IntegerField(json, "memory_used_bytes"),
          .promised = IntegerField(json, "memory_promised_bytes"),
          .busy_pct = NumberField(json, "compute_busy_pct"),
          .requested_pct = NumberField(json, "compute_requested_pct")};
  const Json& swap = Field(json, "swap");
  gpu.swaps = swap.is_object();
  gpu.swap_used = IntegerField(swap, "pool_used_bytes") + IntegerField(swap, "file_used_bytes");
  const std::uint64_t in_pool = IntegerField(swap, "pool_used_bytes");
  gpu.swap_prepared = std::max(IntegerField(swap, "pool_bytes"), in_pool) - in_pool;
  gpu.swap_max = IntegerField(swap, "max_bytes") + IntegerField(swap, "file_bytes");
  return gpu;
}

Vgpu ReadVgpu(const Json& json) {
  Vgpu vgpu{.name = TextField(json, "name"),
            .gpu = Whole(json, "gpu"),
            .now_pct = NumberField(json, "compute_current_pct"),
            .request_pct = NumberField(json, "compute_request_pct"),
            .limit_pct = NumberField(json, "compute_limit_pct"),
            .weight = Whole(json, "compute_weight"),
            .resident = IntegerField(json, "memory_resident_bytes"),
            .swapped = IntegerField(json, "memory_swap_current_bytes"),
            .limit = IntegerField(json, "memory_limit_bytes"),
            .busy_us = IntegerField(json, "compute_busy_us"),
            .frozen_by_operator = FrozenByOperator(json),
            .processes = Field(json, "processes").size()};
  if (!Field(json, "compute_priority").is_null()) vgpu.priority = Whole(json, "compute_priority");
  // The policy freezes many times a second, so that is not shown as a state.
  vgpu.state = vgpu.frozen_by_operator ? "frozen" : TextField(json, "state");
  return vgpu;
}

Process ReadProcess(const Json& json) {
  Process process{.pid = Whole(json, "pid"),
                  .name = TextField(json, "name"),
                  .vgpu = TextField(json, "vgpu"),
                  .gpu = Whole(json, "gpu"),
                  .resident = IntegerField(json, "memory_resident_bytes"),
                  .swapped = IntegerField(json, "memory_swapped_bytes"),
                  .state = TextField(json, "state"),
                  .frozen_by_operator = FrozenByOperator(json)};
  if (!Field(json, "compute_busy_us").is_null()) process.busy_us = IntegerField(json, "compute_busy_us");
  if (process.frozen_by_operator) process.state = "frozen";
  if (IntegerField(json, "memory_evicting_bytes") > 0) process.state = "evicting";
  if (const std::string phase = TextField(json, "suspension"); !phase.empty())
    process.state = phase == "suspended" ? phase : "moving";
  return process;
}

}  // namespace

Snapshot Read(const Json& answers, Nanos at) {
  Snapshot snapshot{.time_us = static_cast<std::int64_t>(IntegerField(answers, "time_us")), .at = at};
  for (const Json& json : Field(answers, "gpus")) snapshot.gpus.push_back(ReadGpu(json));
  for (const Json& json : Field(answers, "vgpus")) snapshot.vgpus.push_back(ReadVgpu(json));
  for (const Json& json : Field(answers, "processes")) snapshot.processes.push_back(ReadProcess(json));
  return snapshot;
}

}  // namespace tessera::cli::top
