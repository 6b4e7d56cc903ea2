#include "kubernetes/pods/pod_labels.h"

#include <algorithm>
#include <iterator>

#include "kubernetes/device_plugin/virtual_device.h"
#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

constexpr const char* kNamespace = "namespace";
constexpr const char* kPod = "pod";
constexpr const char* kContainer = "container";

// Kubelets before 1.34 tell the names of claims only.
bool IsOf(const ContainerClaim& used, const PreparedDevice& device) {
  if (used.driver.empty()) return true;
  return used.driver == kDriver && used.pool == device.pool && used.device == device.device &&
         used.share_id == device.share_id;
}

void Agree(Labels& labels, const Labels& others) {
  std::erase_if(labels, [&](const auto& label) {
    const auto other = others.find(label.first);
    return other == others.end() || other->second != label.second;
  });
}

}  // namespace

std::vector<std::string> ClaimVGpus(const PodContainer& container, const Checkpoint::Claims& claims) {
  std::vector<std::string> vgpus;
  for (const auto& [_, claim] : claims) {
    for (const PreparedDevice& device : claim.devices) {
      const bool has_it = std::ranges::any_of(container.claims, [&](const ContainerClaim& used) {
        return used.namespace_name == claim.namespace_name && used.name == claim.name && IsOf(used, device);
      });
      if (has_it) vgpus.push_back(device.vgpu);
    }
  }
  return vgpus;
}

std::vector<std::string> PluginVGpus(const PodContainer& container) {
  std::vector<std::string> vgpus;
  const auto devices = container.devices.find(kVGpuResource);
  if (devices == container.devices.end()) return vgpus;
  const auto for_it = VGpusFor(devices->second);
  if (!for_it) return vgpus;
  for (const ContainerVGpu& vgpu : *for_it) vgpus.push_back(vgpu.name);
  return vgpus;
}

PodsOfVGpus PodsOf(const std::vector<PodContainer>& listed, const Checkpoint::Claims& claims,
                   const DeviceVGpus& devices) {
  PodsOfVGpus pods;
  for (const PodContainer& container : listed) {
    const Labels its = {
        {kNamespace, container.namespace_name}, {kPod, container.pod}, {kContainer, container.container}};
    std::vector<std::string> vgpus = ClaimVGpus(container, claims);
    if (devices) std::ranges::copy(devices(container), std::back_inserter(vgpus));
    for (const std::string& vgpu : vgpus) {
      const auto [known, first] = pods.labels.try_emplace(vgpu, its);
      if (!first) Agree(known->second, its);
    }
  }
  for (const auto& [_, claim] : claims) {
    for (const PreparedDevice& device : claim.devices) {
      const bool fresh = pods.labels.try_emplace(device.vgpu, Labels{{kNamespace, claim.namespace_name}}).second;
      if (fresh) pods.complete = false;
    }
  }
  return pods;
}

Labels WithPod(Labels labels, const Labels& wanted) {
  for (const char* key : {kNamespace, kPod, kContainer}) labels.erase(key);
  labels.insert(wanted.begin(), wanted.end());
  return labels;
}

}  // namespace tessera::kubernetes
