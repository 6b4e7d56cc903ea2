#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/move_guard.h"

namespace tessera::channel {

// The MoveGuard of a process, in a page that it shares: mapped as long as this object lives.
class MoveGuardPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  // `file` is the page's, `offset` where in it the guard is. Without memory for the mapping there is no guard.
  MoveGuardPage(int file, std::uint32_t offset) : offset_(offset) {
    void* bytes = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes != MAP_FAILED) bytes_ = static_cast<std::byte*>(bytes);
  }
  MoveGuardPage(MoveGuardPage&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), offset_(other.offset_) {}
  MoveGuardPage& operator=(MoveGuardPage&&) = delete;
  ~MoveGuardPage() {
    if (bytes_) munmap(bytes_, kBytes);
  }

  // Whether nothing would go wrong if the process ran now. A move may begin any moment.
  bool Safe() const { return !bytes_ || reinterpret_cast<const MoveGuard*>(bytes_ + offset_)->unsafe == 0; }

  // Whether nothing would go wrong if the process ran. It begins no more moves with the mover that it has.
  bool Release() const {
    if (!bytes_) return true;
    auto* guard = reinterpret_cast<MoveGuard*>(bytes_ + offset_);
    guard->released = 1;
    return guard->unsafe == 0;
  }

 private:
  std::byte* bytes_ = nullptr;
  std::uint32_t offset_;
};

}  // namespace tessera::channel
