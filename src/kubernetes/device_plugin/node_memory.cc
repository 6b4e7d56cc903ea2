#include "kubernetes/device_plugin/node_memory.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "client/json_fields.h"
#include "kubernetes/device_plugin/pod_words.h"
#include "kubernetes/objects/amounts.h"

namespace tessera::kubernetes {

using client::BoolField;
using client::Field;
using client::IntegerField;
using client::NumberField;
using client::TextField;

namespace {

std::uint64_t MemoryOf(const Json& gpu) {
  return Without(IntegerField(gpu, "memory_total_bytes"), IntegerField(gpu, "memory_reserve_bytes"));
}

using PodContainerName = std::pair<std::string, std::string>;  // "NAMESPACE/POD", container

std::string NameOf(const Json& pod) {
  const Json& metadata = Field(pod, "metadata");
  return TextField(metadata, "namespace") + "/" + TextField(metadata, "name");
}

}  // namespace

NodeCapacity CapacityOf(const Json& gpus, const Json& vgpus) {
  NodeCapacity capacity;
  for (const Json& gpu : Field(gpus, "gpus")) {
    if (BoolField(Field(gpu, "health"), "failed")) continue;
    std::uint64_t memory = MemoryOf(gpu);
    double cores = 100;
    for (const Json& vgpu : Field(vgpus, "vgpus")) {
      if (TextField(vgpu, "gpu_uuid") != TextField(gpu, "uuid") || IsOfDevicePlugin(TextField(vgpu, "name"))) continue;
      memory = Without(memory, IntegerField(vgpu, "memory_request_bytes"));
      cores = std::max(0.0, cores - NumberField(vgpu, "compute_request_pct"));
    }
    capacity.mebibytes += memory / kMebibyte;
    capacity.cores += static_cast<std::uint64_t>(std::floor(cores));
  }
  return capacity;
}

std::map<std::string, std::uint64_t> RoomOf(const Json& gpus, const Json& vgpus, const Json& pods,
                                            const std::vector<PodContainer>& listed) {
  std::map<std::string, std::uint64_t> room;
  for (const Json& gpu : Field(gpus, "gpus")) room[TextField(gpu, "uuid")] = MemoryOf(gpu);
  std::set<std::string> made;
  for (const Json& vgpu : Field(vgpus, "vgpus")) {
    std::uint64_t& left = room[TextField(vgpu, "gpu_uuid")];
    left = Without(left, IntegerField(vgpu, "memory_request_bytes"));
    made.insert(TextField(vgpu, "name"));
  }
  std::map<std::string, const Json*> waiting;
  for (const Json& pod : Field(pods, "items")) waiting[NameOf(pod)] = &pod;
  for (const PodContainer& container : listed) {
    const auto pod = waiting.find(container.namespace_name + "/" + container.pod);
    const auto ids = container.devices.find(kVGpuResource);
    if (pod == waiting.end() || ids == container.devices.end()) continue;
    const auto own = VGpusFor(ids->second);
    if (!own) continue;
    for (const ContainerVGpu& vgpu : *own) {
      std::uint64_t& left = room[vgpu.gpu_uuid];
      if (!made.contains(vgpu.name))
        left = Without(left, vgpu.devices * MemoryForEach(*pod->second, container.container));
    }
  }
  return room;
}

std::uint64_t NeedOf(const Json& pods, const std::vector<PodContainer>& listed, std::size_t size) {
  std::set<PodContainerName> has;
  for (const PodContainer& container : listed) {
    if (container.devices.contains(kVGpuResource))
      has.emplace(container.namespace_name + "/" + container.pod, container.container);
  }
  std::uint64_t need = 0;
  for (const Json& pod : Field(pods, "items")) {
    for (const Json& container : Field(Field(pod, "spec"), "containers")) {
      const std::string name = TextField(container, "name");
      if (AskedOf(container, kVGpuResource).value_or(0) != size || has.contains({NameOf(pod), name})) continue;
      need = std::max(need, MemoryForEach(pod, name));
    }
  }
  return need;
}

}  // namespace tessera::kubernetes
