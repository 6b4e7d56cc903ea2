#pragma once

#include <string>

#include "base/result.h"

namespace tessera::kubernetes {

// For a tesserad that runs in a container: links in `folder`/lib64 to the NVIDIA driver's libraries of the machine
// whose root is mounted at `root`, under the names that programs load, and in `folder`/bin to its MPS programs, if it
// has them. What was in both is gone. ENOENT where no driver is loaded, or its libraries are in no usual folder.
Result<void> LinkDriver(const std::string& root, const std::string& folder);

}  // namespace tessera::kubernetes
