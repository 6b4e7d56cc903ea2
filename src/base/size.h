#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera {

inline constexpr std::uint64_t kKiB = 1ull << 10;
inline constexpr std::uint64_t kMiB = 1ull << 20;
inline constexpr std::uint64_t kGiB = 1ull << 30;

// Parses a size: a number with K, M, G or T, alone or with "iB" (all powers of 1024) or with "B" (powers of 1000), or
// "N%" of `whole`. A fraction is allowed ("1.5G"); the result is rounded down to a byte. EINVAL for anything else,
// ERANGE for values beyond 64 bits or 100 %. A percentage without a `whole` (0) is EINVAL.
Result<std::uint64_t> ParseSize(std::string_view text, std::uint64_t whole = 0);

// "20 GiB", "1.5 GiB", "512 B": for people. At most one decimal.
std::string FormatSize(std::uint64_t bytes);

// A percentage of time or multiprocessors: "30", "30%", "12.5". EINVAL or ERANGE (outside [0, 100]).
Result<double> ParsePercent(std::string_view text);

}  // namespace tessera
