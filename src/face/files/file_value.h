#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace tessera::face {

// What one write to a file of the tree may be: one value, with one newline behind it or none. Any thread.

// The value. EINVAL for nothing, for more than one, for other white space, and for what is longer than any value.
Result<std::string_view> OneValue(std::string_view text);

// Decimal digits and nothing else, as GVM's files take them. EINVAL, or ERANGE beyond 64 bits.
Result<std::uint64_t> WholeNumber(std::string_view text);

// "1" or "0". ERANGE for other numbers, EINVAL for anything else.
Result<bool> OnOrOff(std::string_view text);

}  // namespace tessera::face
