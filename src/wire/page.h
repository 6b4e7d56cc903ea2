// The shared page: one per process and GPU, made by the daemon (memfd), mapped by both sides. docs/protocol.md tells
// its life. The daemon writes orders, the program reports; each side treats what the other wrote as a claim, not as
// truth.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/move_guard.h"

namespace tessera::wire {

inline constexpr std::uint64_t kPageMagic = 0x3161726573736574;  // "tessera1", little endian
inline constexpr std::uint32_t kPageBytes = 4096;

// What the gate in front of every submission does.
enum class GateOrder : std::uint32_t {
  kClosed = 0,   // wait for the token
  kBounded = 1,  // submit, but keep what is queued below Page::window_ns: others wait for the GPU, or a limit applies
  kOpen = 2,     // submit freely
  kFree = 3,     // submit freely, also when parked: Wants is news then, not a question. The channels are steered
  kStopped = 4,  // as kClosed, and nothing that waits is let through: the channels stand still, and memory may be moved
};

constexpr bool IsClosed(GateOrder gate) { return gate == GateOrder::kClosed || gate == GateOrder::kStopped; }

struct Page {
  // Constant from the moment the daemon hands the page out.
  std::uint64_t magic = kPageMagic;
  std::uint32_t version = 0;  // wire::kProtocolVersion of the daemon
  std::uint32_t gpu = 0;      // index of the GPU on this machine

  // Orders: written by the daemon, read in front of every submission. An order is complete when `epoch` changes:
  // the daemon stores the fields, then increments `epoch` (release), then `doorbell`, and wakes the futex on it.
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  std::atomic<GateOrder> gate{GateOrder::kClosed};
  std::atomic<std::int64_t> window_ns{0};      // bound on the queued work while kBounded
  std::atomic<std::int64_t> idle_grace_ns{0};  // without work for this long: send Idle

  // Futex that both sides ring: the daemon after an order, a thread of the program when it becomes active.
  alignas(64) std::atomic<std::uint32_t> doorbell{0};

  // The memory view: written by the daemon, bytes.
  alignas(64) std::atomic<std::uint64_t> memory_max{0};  // what the vGPU may allocate
  std::atomic<std::uint64_t> memory_available{0};        // what the vGPU could still reserve now
  std::atomic<std::uint64_t> memory_credit_keep{0};      // credit above this is to be returned
  std::atomic<std::uint64_t> memory_returned{0};         // sum of all Return messages that the daemon has read
  // Bytes reserved for this process and not in use. The program takes from it when it allocates and adds when it frees;
  // the daemon adds with a reservation and may take everything back (exchange with 0) when others run short.
  alignas(64) std::atomic<std::int64_t> memory_credit{0};
  // The same of room: bytes of GPU memory that the process may have and does not. What memory.max counts and what lies
  // on the GPU are two things where memory is swapped.
  std::atomic<std::int64_t> room_credit{0};

  // Reports: written by the program, for people to look at. The last tells whether a freeze is one.
  alignas(64) std::atomic<std::uint64_t> submissions{0};  // calls that passed the gate, as of the last marker
  std::atomic<std::uint64_t> busy_ns{0};                  // time with work on the GPU, as far as markers tell
  std::atomic<std::uint64_t> gate_waits{0};               // submissions that found the gate closed
  std::atomic<std::uint64_t> gate_wait_ns{0};             // and how long they waited
  std::atomic<std::uint64_t> window{0};                   // submissions that may be in flight now
  std::atomic<std::uint64_t> oom_errors{0};               // allocations refused by the limit
  std::atomic<std::uint64_t> pinned{0};                   // bytes of the room taken that cannot be moved
  std::atomic<std::uint64_t> empty{0};                    // of it, and of what can be moved: kept for a moment only
  std::atomic<std::uint64_t> swapped{0};                  // bytes in chunks in host memory
  std::atomic<std::uint64_t> recalled{0};                 // of it, what must come back: others are to map it
  std::atomic<std::uint64_t> room_waits{0};               // allocations that waited for room
  // Bytes moved to host memory, and back, since the process attached; the daemon hears of it from the mover, later. To
  // be read in this order, which is not the one in which they are written: moved_in, swapped, moved_out. Then nothing
  // counts twice that is on its way.
  std::atomic<std::uint64_t> moved_out{0}, moved_in{0};
  // CLOCK_MONOTONIC: the youngest work that the GPU is known to have done was submitted then, or later.
  std::atomic<std::int64_t> reached_ns{0};
  // Where the program is stopped while its memory is moved: whether it could go on.
  MoveGuard guard;
  // Of `swapped`: bytes that are used so much more than others on the GPU that the two should change places.
  std::atomic<std::uint64_t> hot_out{0};
  // 1: it does nothing. Looked at again since it parked, when nobody could be between the gate and the driver any more.
  std::atomic<std::uint32_t> rests{0};
  // Threads inside of calls that may wait for the GPU beyond what markers tell of.
  std::atomic<std::uint32_t> calls{0};
};

static_assert(sizeof(Page) <= kPageBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<GateOrder>::is_always_lock_free);
static_assert(offsetof(Page, epoch) == 64 && offsetof(Page, doorbell) == 128 && offsetof(Page, memory_max) == 192);
static_assert(offsetof(Page, memory_credit) == 256 && offsetof(Page, submissions) == 320 && sizeof(Page) == 512);

}  // namespace tessera::wire
