// The shared page: one per process and GPU, made by the daemon (memfd), mapped by both sides. docs/protocol.md
// describes its life. The daemon writes orders, the program writes reports; each side treats what the other wrote as a
// claim, not as truth. Any thread of the program and the daemon's event loop use the atomic fields without a lock. A
// change here needs a new kProtocolVersion.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/move_guard.h"

namespace tessera::wire {

inline constexpr std::uint64_t kPageMagic = 0x3161726573736574;  // "tessera1", little endian
inline constexpr std::uint32_t kPageBytes = 4096;

// State of the gate in front of every submission.
enum class GateOrder : std::uint32_t {
  kClosed = 0,   // submissions wait for the token
  kBounded = 1,  // submissions pass while the queued work is below Page::window_ns: others wait for the GPU, or a limit
                 // applies
  kOpen = 2,     // submissions pass
  kFree = 3,  // submissions pass, also of a parked process: its Wants is news, not a question. The channels are steered
  kStopped = 4,  // as kClosed, and no submission that waits is let through: the channels are frozen, and memory may be
                 // moved
};

// Why memory that the shim counts cannot be moved.
enum class PinReason : std::uint32_t {
  kSmall = 0,       // small allocations, in chunks that stay
  kExported = 1,    // others have it: by IPC handles, or by shareable handles of cuMemCreate's memory
  kRegistered = 2,  // a device has it: dma-buf, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  kPool = 3,        // stream-ordered pools of the driver's
  kVmm = 4,         // cuMemCreate
  kManaged = 5,     // cuMemAllocManaged
  kArray = 6,       // arrays and mipmapped arrays
  kUnpaged = 7,     // cuMemAlloc and its kind, where the program has no pager
  kGraph = 8,       // memory nodes of graphs. The shim does not count it: it is no part of Page::pinned
  kMulticast = 9,   // cuMemCreate, and it was bound to a multicast object
};
inline constexpr std::size_t kPinReasons = 10;

// What a program uses that the driver's checkpoint would lose: bits of Page::ties.
enum class Tie : std::uint32_t {
  kHostMemory = 1,  // cuMemCreate with host memory: after the checkpoint the driver cannot restore the program
  kImported = 2,    // memory of another program: IPC handles that it opened, shareable handles that it imported
  kExternal = 4,    // memory or semaphores of another API (cuImportExternalMemory, cuGraphics*)
};

// SMs that a vGPU has for itself, in hundredths of a percent of all: [from, from + width). Width 0: none.
struct SmPlace {
  std::uint32_t from = 0, width = 0;

  static constexpr SmPlace Of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }
  constexpr std::uint64_t Word() const { return from | std::uint64_t{width} << 32; }
  friend constexpr bool operator==(const SmPlace&, const SmPlace&) = default;
};
inline constexpr SmPlace kAllSms{.from = 0, .width = 10000};

// Page::away of a program that the driver saves, or has saved, on this GPU of the machine; `returns`: it is on its way
// back; `by_itself`: it is away because it was idle, and its first call brings it back. And what such a word, not 0,
// says.
inline constexpr std::uint32_t kAwayReturns = std::uint32_t{1} << 31, kAwayByItself = std::uint32_t{1} << 30;
constexpr std::uint32_t AwayWord(std::uint32_t gpu, bool returns, bool by_itself = false) {
  return (gpu + 1) | (returns ? kAwayReturns : 0) | (by_itself ? kAwayByItself : 0);
}
constexpr std::uint32_t AwayFrom(std::uint32_t word) { return (word & ~(kAwayReturns | kAwayByItself)) - 1; }
constexpr bool AwayReturns(std::uint32_t word) { return (word & kAwayReturns) != 0; }
constexpr bool AwayByItself(std::uint32_t word) { return (word & kAwayByItself) != 0; }

// Of a program that is away (Page::away): whether one of its threads has called the driver since.
enum class FirstCall : std::uint32_t {
  kUnseen = 0,   // nobody watches its calls
  kAwaited = 1,  // they are watched, and none has come
  kCame = 2,     // one has come, and waits
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
  std::atomic<std::int64_t> window_ns{0};      // bound on the queued work under kBounded
  std::atomic<std::int64_t> idle_grace_ns{0};  // after so long without work the program sends Idle

  // Futex that both sides ring: the daemon after an order, a thread of the program when it becomes active.
  alignas(64) std::atomic<std::uint32_t> doorbell{0};

  // The memory of the vGPU, in bytes: written by the daemon.
  alignas(64) std::atomic<std::uint64_t> memory_max{0};  // what the vGPU may allocate
  std::atomic<std::uint64_t> memory_available{0};        // what the vGPU could still reserve now
  std::atomic<std::uint64_t> memory_credit_keep{0};      // the program is to return credit above this
  std::atomic<std::uint64_t> memory_returned{0};         // sum of all Return messages that the daemon has read

  // Credits, in bytes: written by both sides.
  // Memory that the process has reserved and does not use. The program takes from it when it allocates and adds when it
  // frees; the daemon adds with a reservation, and may take all of it back (exchange with 0) when others run short.
  alignas(64) std::atomic<std::int64_t> memory_credit{0};
  // Room that the process has and does not use: GPU memory that it may make. Where memory is swapped, what memory.max
  // bounds and what lies on the GPU are two different amounts.
  std::atomic<std::int64_t> room_credit{0};

  // Reports: written by the program.
  alignas(64) std::atomic<std::uint64_t> submissions{0};  // calls that passed the gate, as of the last marker
  std::atomic<std::uint64_t> busy_ns{0};                  // time with work on the GPU, as far as markers tell
  std::atomic<std::uint64_t> gate_waits{0};               // submissions that found the gate closed
  std::atomic<std::uint64_t> gate_wait_ns{0};             // and how long they waited in sum
  std::atomic<std::uint64_t> window{0};                   // submissions that may be in flight now
  std::atomic<std::uint64_t> oom_errors{0};               // allocations refused by the limit
  // Memory by where it lies, in bytes; pager::HeapFigures, and for `pinned` also what the driver allocated.
  std::atomic<std::uint64_t> pinned{0};    // of the room taken: it cannot be moved
  std::atomic<std::uint64_t> empty{0};     // of the room taken, pinned or not: no allocation uses it, and it soon goes
  std::atomic<std::uint64_t> swapped{0};   // in chunks that are out
  std::atomic<std::uint64_t> recalled{0};  // of `swapped`: it must come back, because it was pinned meanwhile
  std::atomic<std::uint64_t> room_waits{0};  // allocations that waited for room
  // Bytes moved out, and back in, since the process attached. The daemon hears the same from the mover, later. Read
  // them in the order moved_in, swapped, moved_out, which is not the order in which they are written: then bytes that
  // are on their way do not count twice.
  std::atomic<std::uint64_t> moved_out{0}, moved_in{0};
  // CLOCK_MONOTONIC, nanoseconds: the youngest work that the GPU is known to have done was submitted then, or later. By
  // it the daemon sees a process that works although it is frozen.
  std::atomic<std::int64_t> reached_ns{0};
  // Whether the program, stopped while its memory is moved, could run again. Written by both sides.
  MoveGuard guard;
  // Of `swapped`: bytes that are so much hotter than bytes on the GPU that the two should change places.
  std::atomic<std::uint64_t> hot_out{0};
  // 1: the process is parked, and none of its work is left. It has looked again since it parked, at a time when no
  // thread could be between the gate and the driver any more.
  std::atomic<std::uint32_t> rests{0};
  // Threads inside driver calls that may wait for GPU work which no marker shows.
  std::atomic<std::uint32_t> calls{0};
  // Bytes by PinReason. All but kGraph add up to `pinned`, when nothing changes.
  std::atomic<std::uint64_t> pinned_by[kPinReasons]{};
  // While memory is out: bytes of chunks that were used lately, and those of them that are out. They keep their values
  // while nothing is submitted.
  std::atomic<std::uint64_t> used{0}, used_out{0};
  // Of the room taken, in bytes: parts of whole chunks that no allocation uses, and that come free if the chunks go out
  // and come back; and all of those chunks.
  std::atomic<std::uint64_t> holes{0}, holed{0};
  std::atomic<std::uint64_t> squeezed{0};  // of `swapped`, not recalled: went out for that, and is to come back first
  // Room that what is out would take beside `swapped` if its chunks came back whole. Those that were squeezed do not.
  std::atomic<std::uint64_t> holes_out{0};
  // Of `swapped`, not recalled: stays out until it is freed, because no mover has its host memory.
  std::atomic<std::uint64_t> stranded{0};
  // Host memory that would hold nothing if all were out: what chunks at the program's own addresses take of it beside
  // what is mapped in them. And what mappings that are being made will add to that.
  std::atomic<std::uint64_t> blank{0}, blank_planned{0};

  // An order: 1: holes become room when an allocation needs it, and count as free.
  std::atomic<std::uint32_t> squeezes{0};
  // An order, for good: 1: the vGPU was removed by force. Its gate is closed, and whoever comes there gets an error.
  std::atomic<std::uint32_t> removed{0};

  // Of a vGPU that has SMs for itself. An order: SmPlace::Word of those in which its work is to run; 0: as Welcome
  // said.
  std::atomic<std::uint64_t> sm_place{0};
  // Reports: SmPlace::Word of those in which its work runs, 0 before it has any; and how many streams and graphs it
  // made that keep their SMs: with some it goes on in these, whatever the order is.
  std::atomic<std::uint64_t> sm_taken{0};
  std::atomic<std::uint32_t> sm_pins{0};
  std::atomic<std::uint32_t> sms{0};  // a report of any program: multiprocessors that it may use; 0: not known yet
  // An order: 1: no other vGPU of its space has programs, so its work may run in all SMs while nothing keeps them.
  std::atomic<std::uint32_t> sm_burst{0};
  // A report: what of the program's the driver cannot save, as Tie has it. Bits stay until the process ends.
  std::atomic<std::uint32_t> ties{0};
  // An order: the UUID of the GPU on which the work of the device runs now, in the order of its bytes; 0: as it
  // attached. The program attaches to that with the next daemon.
  std::atomic<std::uint64_t> gpu_uuid[2]{};
  // An order: not 0 (AwayWord): the driver is about to save the program, has saved it, or restores it. Its calls wait
  // meanwhile, before the driver or in it. So no thread of Tessera's may call it: whoever it kept waiting would not
  // reach the next daemon, which is told this word.
  std::atomic<std::uint32_t> away{0};
  // A report: threads of Tessera's that call the driver now. Each counts itself, then reads `away`, and calls only
  // where that is 0. So none does once `away` is not 0 and this is.
  std::atomic<std::uint32_t> own_calls{0};
  // A report: bytes of host memory of the mover's that the program has, mapped or not. The driver could not restore it.
  std::atomic<std::uint64_t> host_held{0};
  // A report while `away` is not 0. The driver is asked to lock the program only when calls are watched: some would not
  // wait in the driver, and nobody would learn of one that does.
  std::atomic<FirstCall> first_call{FirstCall::kUnseen};
};

static_assert(sizeof(Page) == 704 && sizeof(Page) <= kPageBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<GateOrder>::is_always_lock_free);
static_assert(offsetof(Page, version) == 8 && offsetof(Page, gpu) == 12);
static_assert(offsetof(Page, epoch) == 64 && offsetof(Page, gate) == 68 && offsetof(Page, window_ns) == 72 &&
              offsetof(Page, idle_grace_ns) == 80 && offsetof(Page, doorbell) == 128);
static_assert(offsetof(Page, memory_max) == 192 && offsetof(Page, memory_available) == 200 &&
              offsetof(Page, memory_credit_keep) == 208 && offsetof(Page, memory_returned) == 216);
static_assert(offsetof(Page, memory_credit) == 256 && offsetof(Page, room_credit) == 264);
static_assert(offsetof(Page, submissions) == 320 && offsetof(Page, busy_ns) == 328 &&
              offsetof(Page, gate_waits) == 336 && offsetof(Page, gate_wait_ns) == 344 &&
              offsetof(Page, window) == 352 && offsetof(Page, oom_errors) == 360);
static_assert(offsetof(Page, pinned) == 368 && offsetof(Page, empty) == 376 && offsetof(Page, swapped) == 384 &&
              offsetof(Page, recalled) == 392 && offsetof(Page, room_waits) == 400);
static_assert(offsetof(Page, moved_out) == 408 && offsetof(Page, moved_in) == 416 &&
              offsetof(Page, reached_ns) == 424 && offsetof(Page, guard) == 432 && offsetof(Page, hot_out) == 448 &&
              offsetof(Page, rests) == 456 && offsetof(Page, calls) == 460);
static_assert(offsetof(Page, pinned_by) == 464 && offsetof(Page, used) == 544 && offsetof(Page, used_out) == 552);
static_assert(offsetof(Page, holes) == 560 && offsetof(Page, holed) == 568 && offsetof(Page, squeezed) == 576 &&
              offsetof(Page, holes_out) == 584 && offsetof(Page, stranded) == 592 && offsetof(Page, blank) == 600 &&
              offsetof(Page, blank_planned) == 608 && offsetof(Page, squeezes) == 616 &&
              offsetof(Page, removed) == 620 && offsetof(Page, sm_place) == 624 && offsetof(Page, sm_taken) == 632 &&
              offsetof(Page, sm_pins) == 640 && offsetof(Page, sms) == 644 && offsetof(Page, sm_burst) == 648 &&
              offsetof(Page, ties) == 652 && offsetof(Page, gpu_uuid) == 656 && offsetof(Page, away) == 672 &&
              offsetof(Page, own_calls) == 676 && offsetof(Page, host_held) == 680 &&
              offsetof(Page, first_call) == 688);

}  // namespace tessera::wire
