#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// `tessera demo`: three programs share a GPU for `seconds`, then two that do not fit together. 0 if all results were
// right.
Result<int> Demo(const Common& common, double seconds);

}  // namespace tessera::cli
