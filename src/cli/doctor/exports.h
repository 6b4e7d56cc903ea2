#pragma once

#include <set>
#include <string>

#include "base/result.h"

namespace tessera::cli {

// The functions that a shared library exports, from its dynamic symbol table. ENOENT, or EINVAL for what is no library
// of this architecture.
Result<std::set<std::string>> ExportsOf(const std::string& path);

// The functions of the CUDA driver API (cuXxx) among `driver` that are not in `shim`: programs call them past gate and
// ledger.
std::set<std::string> UnknownTo(const std::set<std::string>& shim, const std::set<std::string>& driver);

}  // namespace tessera::cli
