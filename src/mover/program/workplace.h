#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "mover/pool/slot_claims.h"
#include "mover/pool/swap_file.h"
#include "mover/program/copier.h"
#include "mover/program/disk.h"
#include "wire/mover.h"

namespace tessera::mover {

// For so long a living program may claim what it has in the pool after its line, or its mover, has ended. It asks for
// another line each second.
inline constexpr Nanos kClaimTime = 10 * kSecond;
// For so long a program may take for an answer, which a thread of its own gives after some driver calls. A program that
// was stopped meanwhile asks for another line when it goes on.
inline constexpr Nanos kPatience = 10 * kSecond;

// State that all programs of a mover share. For the loop's thread.
struct Workplace {
  Gpu& gpu;
  Pool& pool;
  SlotClaims& claims;
  Copier& copier;
  int epoll;
  std::function<void(const wire::MoverMessage&)> tell;  // the daemon
  // Likewise with a descriptor. False: it did not go, because too many are on their way between processes.
  std::function<bool(const wire::MoverMessage&, int fd)> give;
  Nanos patience = kPatience;        // with a program that has to answer
  std::optional<Error> broken = {};  // set when the GPU can no longer be used
  Nanos now = 0;                     // CLOCK_MONOTONIC, when this turn of the loop began

  // Windows of copies that have ended. Closing one takes the driver 0.1 ms for each chunk, for which a program that
  // waits for all of its memory need not wait as well.
  std::vector<std::unique_ptr<Window>> closing = {};

  // The second tier of the pool, where there is one.
  SwapFile* file = nullptr;
  Disk* disk = nullptr;
  std::optional<Error> file_full = {};  // why nothing more is written to the file
  std::uint64_t stored = 0;             // chunks stored so far; gives each its number

  // Slots that are kept for chunks on their way back from the file: without one, none could ever come back.
  std::uint64_t Reserve() const { return file != nullptr ? 1 : 0; }
  // Slots that a program of `domain` may take for chunks that go out.
  std::uint64_t FreeFor(Domain domain) const {
    const std::uint64_t free = pool.Count().free;
    return std::min(pool.FreeFor(domain), free - std::min(free, Reserve()));
  }
};

class Program;

// Identity of a program, and the place where its parts work.
struct ProgramContext {
  Workplace& place;
  Program& program;        // kept alive by the copies that are made for it
  const std::uint64_t id;  // the daemon's number for it
  const pid_t pid;         // of the program, as the mover sees it
  const Domain domain;
  bool gone = false;  // the daemon wants to hear no more of it

  // A slot of this GPU memory, which the program leaves in place; the daemon says whether it keeps it. ENOSPC: the
  // table is full; EMFILE: it could not be given to the daemon.
  Result<Slot> LeaveSlot(UniqueFd memory) const {
    Pool& pool = place.pool;
    if (pool.Places() == 0) return Fail(ENOSPC, "the pool's table is full");
    const int fd = memory.Get();
    const Slot slot = pool.Add({.fd = std::move(memory), .transit = true});
    const wire::MoverMessage left = {.type = wire::MoverType::kSlotLeft,
                                     .program = static_cast<std::uint64_t>(pid),
                                     .bytes = pool.EntryOf(slot).memory};
    if (place.give(left, fd)) return slot;
    pool.GiveBack(slot);
    return Fail(EMFILE, "too many descriptors are on their way");
  }
  void Tell(wire::MoverMessage message) const {
    message.program = id;
    place.tell(message);
  }
};

}  // namespace tessera::mover
