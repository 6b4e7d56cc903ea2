// Seccomp profile for container engines that puts a container behind the kernel gate: a profile of podman's and
// Docker's form whose ioctl rules hold the requests that the gate decides. linux.seccomp of the OCI runtime
// specification.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"

namespace tessera::cdi {

using Json = nlohmann::ordered_json;

struct SeccompFacts {
  std::string socket;                      // the daemon's, for listeners of containers; listenerPath
  std::string vgpus;                       // names, separated by commas; listenerMetadata
  std::span<const std::uint32_t> numbers;  // of ioctl requests (the low byte) that wait for the daemon
};

// The engine's profile `base` with these rules for ioctl in place of its own. Other requests stay allowed. EINVAL if
// `base` is no profile.
Result<Json> SeccompProfile(Json base, const SeccompFacts& facts);

}  // namespace tessera::cdi
