#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// `tessera reload`: reloads the daemon's configuration.
Result<int> Reload(const Common& common);

}  // namespace tessera::cli
