// Which devices the containers of this node have, as the kubelet knows it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::kubernetes {

// A device of a claim that a container uses.
struct ContainerClaim {
  std::string namespace_name, name;  // of the claim
  std::string driver, pool, device;  // empty before Kubernetes 1.34, as is the next
  std::string share_id;              // empty: it is no share
  bool operator==(const ContainerClaim&) const = default;
};

struct PodContainer {
  std::string namespace_name, pod, container;
  std::map<std::string, std::set<std::string>> devices;  // IDs of a device plugin's devices, by resource
  std::vector<ContainerClaim> claims;                    // one for each device of each claim
};

// The kubelet's socket for this, below its root directory.
inline constexpr const char* kPodResourcesSocket = "pod-resources/kubelet.sock";

// All containers of all pods on the node that the kubelet has given resources and that have not ended: also those that
// have none of ours, and those that are not started yet. `socket`: its path. Blocks for five seconds at most; any
// thread. ENOENT: there is no socket; ECONNREFUSED: the kubelet does not answer, or with an error.
Result<std::vector<PodContainer>> ListPodResources(const std::string& socket);

}  // namespace tessera::kubernetes
