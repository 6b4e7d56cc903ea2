// A ResourceClaim of resource.k8s.io/v1 as far as this driver is concerned.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/json.h"

namespace tessera::kubernetes {

using client::Json;

// A device that the scheduler has given to a claim, or a share of it.
struct AllocatedDevice {
  std::string request;  // of the claim, for which it is; "a/b" for a subrequest
  std::string pool, device;
  std::string share_id;                           // empty: it is no share
  std::map<std::string, std::uint64_t> consumed;  // of its capacity
};

// Opaque parameters for the driver.
struct ClaimParameters {
  std::vector<std::string> requests;  // which they are for; empty: all
  bool later = false;                 // they were asked for while the claim was in use
  Json parameters;
};

struct Claim {
  std::string namespace_name, name, uid;
  std::vector<AllocatedDevice> devices;     // those of this driver in `pool`
  std::vector<ClaimParameters> parameters;  // those of its class first; later ones go before earlier ones
};

// Adds parameters that were asked for later, as JSON text, for all requests and before all others. Empty: none. They
// need no apiVersion and kind. EINVAL: the text is no JSON object.
Result<void> AddChange(const std::string& config, Claim& claim);

// EPROTO if `object` is no claim that was allocated; EINVAL for a capacity that is no quantity.
Result<Claim> ReadClaim(const Json& object, std::string_view pool);

}  // namespace tessera::kubernetes
