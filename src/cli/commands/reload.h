#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// `tessera reload`: the daemon reads its configuration again.
Result<int> Reload(const Common& common);

}  // namespace tessera::cli
