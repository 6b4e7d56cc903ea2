// Labels by which the metrics of a vGPU name its pod.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kubernetes/claims/checkpoint.h"
#include "kubernetes/kubelet/pod_resources.h"

namespace tessera::kubernetes {

using Labels = std::map<std::string, std::string>;

// The vGPUs that the device plugin has for a container.
using DeviceVGpus = std::function<std::vector<std::string>(const PodContainer&)>;

// The vGPUs of claims that a container has: those of the claims of its names, devices and shares. Any thread.
std::vector<std::string> ClaimVGpus(const PodContainer& container, const Checkpoint::Claims& claims);

// The vGPUs that the device plugin makes for a container. Any thread.
std::vector<std::string> PluginVGpus(const PodContainer& container);

// What is known of the pods of our vGPUs.
struct PodsOfVGpus {
  std::map<std::string, Labels> labels;  // `namespace`, `pod` and `container`, by vGPU
  bool complete = true;                  // each vGPU of a claim has a container
};

// Of the vGPUs of `claims`, and of those that `devices` tells. A vGPU of several containers has the labels in which
// they agree: one that several pods share has no `pod`. A claim that no container has yet has its `namespace`. Any
// thread.
PodsOfVGpus PodsOf(const std::vector<PodContainer>& listed, const Checkpoint::Claims& claims,
                   const DeviceVGpus& devices);

// The labels of a vGPU with those of its pod as `wanted` says, and the others, which somebody else gave it, as they
// are. Any thread.
Labels WithPod(Labels labels, const Labels& wanted);

}  // namespace tessera::kubernetes
