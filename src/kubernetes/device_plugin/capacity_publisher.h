#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "kubernetes/api_server/api_server.h"
#include "kubernetes/device_plugin/node_memory.h"

namespace tessera::kubernetes {

// Writes into the Node how much tessera.dev/gpumem and tessera.dev/gpucores it has, as
// https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/ describes it: they are numbers that the
// scheduler counts, and of which the kubelet knows nothing. (As devices of a plugin, each MiB would need a name.)
class CapacityPublisher {
 public:
  // `server` outlives the object.
  CapacityPublisher(std::string node, const ApiServer& server) : node_(std::move(node)), server_(server) {}

  // To be called every few seconds with the daemon's answers to GET /v1/gpus and GET /v1/vgpus. Asks the API server
  // when the numbers have changed, and every kLooks calls: a Node that was made again has none.
  Result<void> Publish(const Json& gpus, const Json& vgpus);

 private:
  static constexpr int kLooks = 12;

  const std::string node_;
  const ApiServer& server_;
  std::optional<NodeCapacity> published_;
  int looks_ = 0;  // since the API server was asked
};

}  // namespace tessera::kubernetes
