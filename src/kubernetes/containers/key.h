#pragma once

#include <string>

#include "base/result.h"

namespace tessera::kubernetes {

// 128 random bits. Errors of getrandom(2).
Result<std::string> NewKey();

// The key of the vGPUs that a CDI file gives to containers: the one in it, so that what is there stays joined by it; a
// new one if there is no such file.
Result<std::string> KeyFor(const std::string& cdi_file);

}  // namespace tessera::kubernetes
