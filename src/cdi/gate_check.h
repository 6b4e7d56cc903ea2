// A check that a container is behind the kernel gate, which its engine makes before it starts.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::cdi {

// Whether a container with this config.json (OCI runtime specification) sends the listener of its seccomp profile to
// `socket`, and its ioctls wait for that. EPERM with what to do if not; EPROTO: the text is no configuration.
Result<void> CheckBehindGate(std::string_view config, const std::string& socket);

// The folder of the container of which the state is, as the runtime gives it to its hooks; EPROTO: there is none.
Result<std::string> BundleIn(std::string_view state);

}  // namespace tessera::cdi
