#include "kubernetes/device_plugin/capacity_publisher.h"

#include <nlohmann/json.hpp>

#include "client/json_fields.h"
#include "kubernetes/device_plugin/pod_words.h"
#include "kubernetes/objects/no_answer.h"
#include "kubernetes/objects/quantity.h"

namespace tessera::kubernetes {

using client::Field;
using client::TextField;

Result<void> CapacityPublisher::Publish(const Json& gpus, const Json& vgpus) {
  const NodeCapacity capacity = CapacityOf(gpus, vgpus);
  if (capacity == published_ && ++looks_ < kLooks) return {};
  const auto node = server_.Get("/api/v1/nodes/" + node_);
  if (!node) return std::unexpected(node.error());
  const Json& there = Field(Field(*node, "status"), "capacity");
  const auto is = [&](const char* resource, std::uint64_t value) {
    return ParseQuantity(TextField(there, resource)).value_or(value + 1) == value;
  };
  if (!is(kMemoryResource, capacity.mebibytes) || !is(kComputeResource, capacity.cores)) {
    const Json change = {{"status",
                          {{"capacity",
                            {{kMemoryResource, std::to_string(capacity.mebibytes)},
                             {kComputeResource, std::to_string(capacity.cores)}}}}}};
    if (auto patched = NoAnswer(server_.Patch("/api/v1/nodes/" + node_ + "/status", change)); !patched) return patched;
  }
  published_ = capacity;
  looks_ = 0;
  return {};
}

}  // namespace tessera::kubernetes
