// Two words in memory that a program shares with those who freeze it while its memory is moved. Who finds it frozen by
// a daemon that is dead or hangs (the watchdog) must not let it run before every address of it is valid and nothing
// copies what it could change; and from then on the program must take no part in a move that began before.
//
// Each side writes its word, and then reads the other's (both in one order for all): so at least one of them sees what
// the other did.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

struct MoveGuard {
  // By the program: bytes that are not where its kernels would find them, or are being copied.
  std::atomic<std::uint64_t> unsafe{0};
  // By whoever is about to let it run: the program begins no more moves with the mover that it has.
  std::atomic<std::uint32_t> released{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace tessera
