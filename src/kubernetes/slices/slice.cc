#include "kubernetes/slices/slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ranges>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/objects/amounts.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::BoolField;
using client::Field;
using client::IntegerField;
using client::NumberField;
using client::TextField;

namespace {

constexpr std::size_t kLongestString = 64;  // of an attribute
constexpr std::uint64_t kTenth = 10, kAllSms = 100;

std::uint64_t Rounded(std::uint64_t bytes) { return bytes / kMemoryStep * kMemoryStep; }

// Adds a capacity of which claims may have any multiple of `step` from `least` on, `standard` if they do not say. One
// that is too little for two steps is not there: the API server would refuse it.
void AddCapacity(Json& capacity, const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t step,
                 std::uint64_t standard) {
  if (value < least + step) return;
  capacity[name] = {{"value", FormatBytes(value)},
                    {"requestPolicy",
                     {{"default", FormatBytes(std::max(least, standard / step * step))},
                      {"validRange", {{"min", FormatBytes(least)}, {"step", FormatBytes(step)}}}}}};
}

// The number of a GPU is the node's own; in a cluster only UUIDs are.
std::string GroupOf(const Json& gpu, const Json& gpus) {
  const Json& group = Field(gpu, "nvlink_group");
  for (const Json& each : Field(gpus, "gpus")) {
    if (group.is_number() && Field(each, "index") == group) return TextField(each, "uuid");
  }
  return {};
}

// "580.159.04" as a semantic version, whose numbers have no zeros in front.
std::string SemanticVersion(const std::string& version) {
  unsigned major = 0, minor = 0, patch = 0;
  if (std::sscanf(version.c_str(), "%u.%u.%u", &major, &minor, &patch) < 2) return {};
  return fmt::format("{}.{}.{}", major, minor, patch);
}

Json Text(const std::string& value) { return {{"string", value.substr(0, kLongestString)}}; }

}  // namespace

std::vector<OfferedGpu> OfferedGpus(const Json& gpus, const Json& vgpus) {
  std::vector<OfferedGpu> offered;
  for (const Json& gpu : Field(gpus, "gpus")) {
    const Json& health = Field(gpu, "health");
    OfferedGpu& each = offered.emplace_back(OfferedGpu{
        .uuid = TextField(gpu, "uuid"),
        .model = TextField(gpu, "name"),
        .driver = TextField(gpu, "driver"),
        .nvlink_group = GroupOf(gpu, gpus),
        .enforces_time = TextField(Field(gpu, "control"), "by") == "channels",
        .failed = BoolField(health, "failed"),
        .why = TextField(health, "why"),
        .memory = Without(IntegerField(gpu, "memory_total_bytes"), IntegerField(gpu, "memory_reserve_bytes")),
        .swap = IntegerField(Field(gpu, "swap"), "max_bytes"),
        .compute_pct = 100});
    for (const Json& vgpu : Field(vgpus, "vgpus")) {
      if (TextField(vgpu, "gpu_uuid") != each.uuid || !UidIn(TextField(vgpu, "name")).empty()) continue;
      each.memory = Without(each.memory, IntegerField(vgpu, "memory_request_bytes"));
      each.compute_pct = std::max(0.0, each.compute_pct - NumberField(vgpu, "compute_request_pct"));
    }
  }
  return offered;
}

Json DevicesOf(const std::vector<OfferedGpu>& gpus) {
  Json devices = Json::array();
  for (const OfferedGpu& gpu : gpus) {
    Json capacity = Json::object();
    const auto compute = static_cast<std::uint64_t>(std::floor(gpu.compute_pct));
    AddCapacity(capacity, "memory", Rounded(gpu.memory), kMemoryStep, kMemoryStep, gpu.memory / kTenth);
    AddCapacity(capacity, "swap", Rounded(gpu.swap), 0, kMemoryStep, 0);
    AddCapacity(capacity, "compute", compute, 0, 1, compute / kTenth);
    AddCapacity(capacity, "sm", kAllSms, 0, 1, 0);
    Json attributes = {
        {"uuid", Text(gpu.uuid)}, {"model", Text(gpu.model)}, {"enforcesTime", {{"bool", gpu.enforces_time}}}};
    if (const std::string version = SemanticVersion(gpu.driver); !version.empty())
      attributes["driverVersion"] = {{"version", version}};
    if (!gpu.nvlink_group.empty()) attributes["nvlinkGroup"] = Text(gpu.nvlink_group);
    Json device = {{"name", DeviceNameOf(gpu.uuid)},
                   {"attributes", std::move(attributes)},
                   {"allowMultipleAllocations", true},
                   {"capacity", std::move(capacity)}};
    if (gpu.failed)
      device["taints"] = Json::array({{{"key", std::string(kDriver) + "/failed"}, {"effect", "NoExecute"}}});
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<DeviceHealth> HealthOf(const std::vector<OfferedGpu>& gpus) {
  using State = DeviceHealth::State;
  std::vector<DeviceHealth> health;
  for (const OfferedGpu& gpu : gpus)
    health.push_back({DeviceNameOf(gpu.uuid), gpu.failed ? State::kUnhealthy : State::kHealthy, gpu.why});
  return health;
}

Json SliceOf(const std::string& node, const std::string& node_uid, Json devices, std::uint64_t generation) {
  return {
      {"apiVersion", "resource.k8s.io/v1"},
      {"kind", "ResourceSlice"},
      {"metadata",
       {{"generateName", node + "-" + kDriver + "-"},
        {"ownerReferences",
         Json::array(
             {{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}, {"uid", node_uid}, {"controller", true}}})}}},
      {"spec",
       {{"driver", kDriver},
        {"nodeName", node},
        {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}},
        {"devices", std::move(devices)}}}};
}

}  // namespace tessera::kubernetes
