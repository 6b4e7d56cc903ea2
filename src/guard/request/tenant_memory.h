#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::guard {

// Access to the memory of a thread that waits behind the gate; `tid` as this process sees it. The program may unmap or
// change its memory at any time: read a value once, and use what was read. EPERM: the kernel does not permit the access
// (kernel.yama.ptrace_scope, if neither process is root's).

// All of `bytes`, or false with errno set.
bool ReadTenant(pid_t tid, std::uint64_t address, std::span<std::byte> bytes);
bool WriteTenant(pid_t tid, std::uint64_t address, std::span<const std::byte> bytes);

// Reads up to the first address that is not mapped. Returns the number of bytes.
std::size_t ReadTenantUpTo(pid_t tid, std::uint64_t address, std::span<std::byte> bytes);

// Writes the range in which `after` differs from `before` (of the same size), which the driver has changed. Concurrent
// writes of the program outside this range stay.
bool WriteTenantChanges(pid_t tid, std::uint64_t address, std::span<const std::byte> before,
                        std::span<const std::byte> after);

}  // namespace tessera::guard
