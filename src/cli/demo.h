#pragma once

#include "base/result.h"
#include "cli/common.h"

namespace tessera::cli {

// `tessera demo`: three programs share a GPU for `seconds`. 0 if all their results were right.
Result<int> Demo(const Common& common, double seconds);

}  // namespace tessera::cli
