#include "guard/request/tenant_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace tessera::guard {
namespace {

constexpr std::uint64_t kPage = 4096;

void* Remote(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool Whole(ssize_t done, std::size_t wanted) {
  if (done == static_cast<ssize_t>(wanted)) return true;
  if (done >= 0) errno = EFAULT;
  return false;
}

}  // namespace

bool ReadTenant(pid_t tid, std::uint64_t address, std::span<std::byte> bytes) {
  const iovec local{bytes.data(), bytes.size()}, remote{Remote(address), bytes.size()};
  return Whole(process_vm_readv(tid, &local, 1, &remote, 1, 0), bytes.size());
}

bool WriteTenant(pid_t tid, std::uint64_t address, std::span<const std::byte> bytes) {
  const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()}, remote{Remote(address), bytes.size()};
  return Whole(process_vm_writev(tid, &local, 1, &remote, 1, 0), bytes.size());
}

std::size_t ReadTenantUpTo(pid_t tid, std::uint64_t address, std::span<std::byte> bytes) {
  std::size_t read = 0;
  while (read < bytes.size()) {
    const std::uint64_t from = address + read;
    const auto piece = bytes.subspan(read, std::min<std::uint64_t>(bytes.size() - read, kPage - from % kPage));
    if (!ReadTenant(tid, from, piece)) break;
    read += piece.size();
  }
  return read;
}

bool WriteTenantChanges(pid_t tid, std::uint64_t address, std::span<const std::byte> before,
                        std::span<const std::byte> after) {
  std::size_t first = 0, end = after.size();
  while (first < end && before[first] == after[first]) ++first;
  while (end > first && before[end - 1] == after[end - 1]) --end;
  return first == end || WriteTenant(tid, address + first, after.subspan(first, end - first));
}

}  // namespace tessera::guard
