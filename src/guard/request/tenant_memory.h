#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::guard {

// The memory of a thread that waits behind the gate; `tid` as this process sees it. Its program may unmap it or write
// to it at any time, so read a thing once, and believe what was read. EPERM: the kernel does not let this user look
// (kernel.yama.ptrace_scope where neither is root).

// All of `bytes`, or false with errno set.
bool ReadTenant(pid_t tid, std::uint64_t address, std::span<std::byte> bytes);
bool WriteTenant(pid_t tid, std::uint64_t address, std::span<const std::byte> bytes);

// As many as there are before the next hole; how many.
std::size_t ReadTenantUpTo(pid_t tid, std::uint64_t address, std::span<std::byte> bytes);

// Writes the part in which `after` differs from `before`, which have the same size: what the driver has changed.
// What another thread writes beside it at the same time stays.
bool WriteTenantChanges(pid_t tid, std::uint64_t address, std::span<const std::byte> before,
                        std::span<const std::byte> after);

}  // namespace tessera::guard
