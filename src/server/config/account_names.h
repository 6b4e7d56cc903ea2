#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace tessera::server {

// The number of a user or group: by name, or the number itself as text. None if there is no such name. These ask the
// name service, which may wait for a network: never on the event loop. Any thread.
std::optional<uid_t> UserNumber(const std::string& name);
std::optional<gid_t> GroupNumber(const std::string& name);

}  // namespace tessera::server
