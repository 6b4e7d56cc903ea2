#include "kubernetes/pods/asked_change.h"

#include <nlohmann/json.hpp>

#include "client/json_fields.h"

namespace tessera::kubernetes {

using client::Field;
using client::Json;
using client::TextField;

namespace {

// The claim's object for an entry of the pod's: named there, or made from a template and told in the status.
std::string ClaimOf(const Json& pod, const Json& entry) {
  const std::string named = TextField(entry, "resourceClaimName");
  if (!named.empty()) return named;
  for (const Json& made : Field(Field(pod, "status"), "resourceClaimStatuses")) {
    if (TextField(made, "name") == TextField(entry, "name")) return TextField(made, "resourceClaimName");
  }
  return {};
}

}  // namespace

std::vector<AskedChange> ChangesAskedBy(const Json& pod) {
  const Json& metadata = Field(pod, "metadata");
  const std::string config = TextField(Field(metadata, "annotations"), kConfigAnnotation);
  const Json& status = Field(pod, "status");
  const std::string phase = TextField(status, "phase");
  if (config.empty() || phase == "Succeeded" || phase == "Failed") return {};
  std::vector<AskedChange> asked;
  const auto ask = [&](const std::string& claim) {
    if (claim.empty()) return;
    asked.push_back({.namespace_name = TextField(metadata, "namespace"),
                     .claim = claim,
                     .pod = TextField(metadata, "name"),
                     .config = config});
  };
  for (const Json& entry : Field(Field(pod, "spec"), "resourceClaims")) ask(ClaimOf(pod, entry));
  // That of an extended resource, which the scheduler made.
  ask(TextField(Field(status, "extendedResourceClaimStatus"), "resourceClaimName"));
  return asked;
}

}  // namespace tessera::kubernetes
