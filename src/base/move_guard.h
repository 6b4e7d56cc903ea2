// Two words in memory that a program shares with those who freeze it while its memory is moved. The watchdog, which
// thaws programs that a dead or hanging daemon froze, must not thaw one before all its addresses are valid and nothing
// copies memory that it could change. After that the program must take no part in moves that began before.
//
// Each side writes its own word and then reads the other's (sequentially consistent): at least one of them sees the
// other's write.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

struct MoveGuard {
  // Written by the program: bytes without a valid address, or being copied.
  std::atomic<std::uint64_t> unsafe{0};
  // Written before a thaw: the program begins no more moves with its present mover.
  std::atomic<std::uint32_t> released{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace tessera
