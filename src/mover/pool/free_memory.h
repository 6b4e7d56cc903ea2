#pragma once

#include <cstdint>
#include <string>

namespace tessera::mover {

// Memory of the host that the swap pool leaves to others, where nobody says otherwise: 5 %, and at least 1 GiB.
std::uint64_t DefaultFloor(const std::string& root = "");

// What this process could still take: MemAvailable, or what is left to its control group (v1 or v2, and those above
// it) where that is less. UINT64_MAX where neither is to be found. `root` stands before /proc and /sys, for tests.
std::uint64_t FreeMemory(const std::string& root = "");

}  // namespace tessera::mover
