#pragma once

#include <cstdint>
#include <string>

namespace tessera::mover {

// Default for the memory of the host that the swap pool leaves free: 5 %, and at least 1 GiB.
std::uint64_t DefaultFloor(const std::string& root = "");

// Memory that this process could still take: MemAvailable, or what is left to its control group (v1 or v2, and those
// above it) if that is less. UINT64_MAX if neither is found. `root` stands before /proc and /sys, for tests.
std::uint64_t FreeMemory(const std::string& root = "");

}  // namespace tessera::mover
