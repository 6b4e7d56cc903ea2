#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tessera {

// "500ms", "10s", "2min", "1.5h", or a bare number of seconds. EINVAL for anything else, ERANGE beyond a year.
Result<Nanos> ParseDuration(std::string_view text);

}  // namespace tessera
