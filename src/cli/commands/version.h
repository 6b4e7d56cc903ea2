#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// `tessera version`: prints the versions of this program and of the daemon, if one answers.
Result<int> ShowVersion(const Common& common);

}  // namespace tessera::cli
