#pragma once

#include <optional>
#include <string_view>

#include "base/clock.h"

namespace tessera::plan {

// Nanoseconds since 1970 of a date with time: "2023-11-16 18:17:03.9799600", also with a T between them and with Z or
// +00:00 behind. Years 1970 to 2200. None: it is not such a text. Digits beyond nanoseconds are dropped.
std::optional<Nanos> ParseTimestamp(std::string_view text);

}  // namespace tessera::plan
