#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tessera::mover {

// Default for the memory of the host that the swap pool leaves free: 5 %, and at least 1 GiB.
std::uint64_t DefaultFloor(const std::string& root = "");

// Memory that this process could still take: MemAvailable, or what is left to its control group (v1 or v2, and those
// above it) if that is less. UINT64_MAX if neither is found. `root` stands before /proc and /sys, for tests.
std::uint64_t FreeMemory(const std::string& root = "");

// Hundredths of a percent of the last 10 s in which some program of the machine waited for memory:
// /proc/pressure/memory (PSI; Documentation/accounting/psi.rst). 0 where the kernel does not tell.
std::uint32_t MemoryPressure(const std::string& root = "");

// The machine's memory at one moment, as it matters to a pool.
struct MachineMemory {
  std::uint64_t free = UINT64_MAX;  // as FreeMemory says
  std::uint64_t floor = 0;          // of that, bytes that a pool leaves to others
  std::uint32_t pressure = 0;       // as MemoryPressure says

  // Whether a pool may take so many bytes: ENOMEM if not.
  Result<void> MayTake(std::uint64_t bytes) const;
  // What a pool that has `size` bytes could have in all; UINT64_MAX if that is not known.
  std::uint64_t MostFor(std::uint64_t size) const;
};

}  // namespace tessera::mover
