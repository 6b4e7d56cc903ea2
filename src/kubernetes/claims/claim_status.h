// The status of a claim's devices, as people read it with kubectl: whether its vGPU is ready, and what became of the
// last change. https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation
#pragma once

#include <string>

#include "client/json.h"
#include "kubernetes/claims/checkpoint.h"

namespace tessera::kubernetes {

// Types of conditions.
inline constexpr const char *kReady = "Ready", *kChanged = "Changed";

struct Condition {
  std::string type;     // kReady or kChanged
  bool good = false;    // its status: "True" or "False"
  std::string reason;   // one word, such as "Prepared"
  std::string message;  // for people
  bool operator==(const Condition&) const = default;
};

// The body of a server-side apply to the claim's status: each device of this driver in `pool` has the condition, keeps
// its other ones, and names its vGPU as far as `prepared` (null: unknown) knows it. `claim` is the object as the API
// server has it; `now` is RFC 3339, for conditions that change. Null if there is nothing to write: the claim has no
// such device, or says the same already.
client::Json StatusWith(const Condition& condition, const client::Json& claim, const std::string& pool,
                        const PreparedClaim* prepared, const std::string& now);

}  // namespace tessera::kubernetes
