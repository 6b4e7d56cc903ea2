// How much of the node's GPUs pods may still have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/json.h"
#include "kubernetes/kubelet/pod_resources.h"

namespace tessera::kubernetes {

using client::Json;

// All arguments named gpus and vgpus are the daemon's answers to GET /v1/gpus and GET /v1/vgpus.

// What all pods of the node together may have of the resources that are counted (pod_words.h): of each GPU that has not
// failed, what vGPUs that are not the device plugin's have left.
struct NodeCapacity {
  std::uint64_t mebibytes = 0;  // tessera.dev/gpumem
  std::uint64_t cores = 0;      // tessera.dev/gpucores
  bool operator==(const NodeCapacity&) const = default;
};
NodeCapacity CapacityOf(const Json& gpus, const Json& vgpus);

// Bytes of each GPU, by its UUID, that are promised neither to a vGPU nor to a container that has devices already but
// no vGPU yet. `pods`: the node's pods that wait to run, as a PodList; `listed`: all containers and their devices.
std::map<std::string, std::uint64_t> RoomOf(const Json& gpus, const Json& vgpus, const Json& pods,
                                            const std::vector<PodContainer>& listed);

// The most that one of the containers needs for each of its devices for which the kubelet may be choosing `size`
// devices now: they ask for so many, and have none.
std::uint64_t NeedOf(const Json& pods, const std::vector<PodContainer>& listed, std::size_t size);

}  // namespace tessera::kubernetes
