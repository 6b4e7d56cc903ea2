#pragma once

#include <nlohmann/json_fwd.hpp>

namespace tessera::client {

// Fields stay in the order in which the daemon wrote them, which is meant for people.
using Json = nlohmann::ordered_json;

}  // namespace tessera::client
