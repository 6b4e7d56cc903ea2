#pragma once

#include <string>

#include "base/result.h"

namespace tessera {

// The path of the MPS control daemon's program: the driver's, or the stand-in of the soft GPU. ENOENT: it is not there.
Result<std::string> FindMpsControl(bool soft);

}  // namespace tessera
