#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace tessera::face {

// Parsing of values that are written to files of the tree: one value, with at most one newline after it. Any thread.

// The value. EINVAL if it is empty, too long, more than one, or has other white space.
Result<std::string_view> OneValue(std::string_view text);

// Decimal digits and nothing else, as GVM's files take them. EINVAL, or ERANGE beyond 64 bits.
Result<std::uint64_t> WholeNumber(std::string_view text);

// "1" or "0". ERANGE for other numbers, EINVAL for anything else.
Result<bool> OnOrOff(std::string_view text);

}  // namespace tessera::face
