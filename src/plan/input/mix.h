// A mix: a TOML file that says which programs there are, how each works and what it wants.
#pragma once

#include <cstddef>
#include <istream>
#include <string>

#include "base/result.h"
#include "plan/workload/tenant.h"

namespace tessera::plan {

inline constexpr std::size_t kMostTenants = 20'000;       // of a mix, copies counted
inline constexpr std::size_t kMostArrivals = 50'000'000;  // of all tenants of a mix that have theirs from files

// The mix that `text` holds; docs/plan-input.md has the keys. `source` is its path: errors name it, and files that it
// names lie beside it. EINVAL and ERANGE with file and line: no TOML, an unknown key, a value that is wrong or missing,
// a name twice, too much; as ReadArrivals for its files.
Result<Workload> ReadMix(std::istream& text, const std::string& source);

}  // namespace tessera::plan
