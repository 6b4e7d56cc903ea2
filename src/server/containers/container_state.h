#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::server {

// What a container runtime tells of a container whose seccomp profile has a listener: the "Container Process State" of
// the OCI runtime specification (config-linux.md, Seccomp).
struct ContainerState {
  std::string id;            // of the container
  std::string bundle;        // its folder, as the runtime sees it
  std::string metadata;      // linux.seccomp.listenerMetadata: here the names of vGPUs
  pid_t pid = 0;             // of its first process, as the runtime sees it
  std::size_t listener = 0;  // which of the descriptors that came along is the listener
};
// EPROTO: it is something else.
Result<ContainerState> ParseContainerState(std::string_view json);

// The value of a variable in a container's config.json (OCI runtime specification), the last one if there are several;
// empty without it. EPROTO: the text is no configuration.
Result<std::string> VariableIn(std::string_view config, std::string_view name);

// The text of the bundle's config.json as a process of this pid sees it; if that has ended, as we do. Errors of the
// file; EFBIG: it has more than 4 MiB.
Result<std::string> ReadConfig(const std::string& bundle, pid_t runtime);

}  // namespace tessera::server
