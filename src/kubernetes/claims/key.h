#pragma once

#include <string>

#include "base/result.h"

namespace tessera::kubernetes {

// A new key for the vGPUs of a claim: 128 random bits. Errors of getrandom(2).
Result<std::string> NewKey();

}  // namespace tessera::kubernetes
