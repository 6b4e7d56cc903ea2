#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "sched/residency/exchange.h"

namespace tessera::server {

// How much memory was moved, in bytes, and in how much time.
struct Moves {
  std::uint64_t out = 0, in = 0;
  Nanos time = 0;
};

// Where the memory of one process on one GPU lies, and what is being done about that. Bytes. Belongs to
// ResidencyServer, but for what a program said when it attached.
struct Residence {
  enum class Doing { kNothing, kEvicting, kLoading, kSettling };

  std::uint64_t number = 0;  // the mover's name for it; 0: it has no line
  UniqueFd line;             // the mover's end, until there is a mover
  std::uint64_t room = 0;    // GPU memory that it may have, the credit in its page included
  std::uint64_t wanted = 0;  // room that it waits for
  Nanos wanted_at = 0;       // when it said so last
  Nanos granted_at = 0;      // when it last got what it waited for, which it takes out of its credit
  bool stopped = false;      // it does not run, because of its memory
  bool leaves = false;       // memory of it is to go: it stays stopped until that has begun
  bool thawed = false;       // though stopped it is not frozen
  Nanos rests_since = 0;     // 0: it is not stopped, is moved, or has something to do
  bool rests = false;        // the mover was told that it stands still, and may bring to the file what it has out
  std::uint64_t push = 0;    // an operator wants so much of it out
  sched::Exchange exchange;
  bool exchanging = false;   // it is stopped so that colder memory of it makes place for hotter
  std::uint64_t colder = 0;  // what is to go out for that, and was not ordered yet
  Nanos moving_before = 0;   // `moving` when that began
  Doing doing = Doing::kNothing;
  std::uint64_t ordered = 0;  // of the mover, and not yet done
  Nanos ordered_at = 0;
  Nanos stuck_until = 0;  // the mover could do no more of it
  Nanos next_line = 0;    // before then it gets no other line
  int settle_error = 0;   // why the mover could not settle it last, as it was logged; errno value
  int evict_error = 0;    // why the last eviction brought out less than it should have, errno value; 0: it did not
  // Ordered of movers that are gone, or by lines that are: it may have been done, and nobody has told.
  std::uint64_t lost_out = 0, lost_in = 0;
  // What it may say at most that it had in host memory, or in the file, when it attached.
  std::uint64_t brought = 0;
  // As the mover counts, since it knows the process.
  std::uint64_t out = 0, in = 0;
  // Since it attached.
  std::uint64_t moved_out = 0, moved_in = 0;
  std::uint64_t traced_out = 0, traced_in = 0;  // of these, what the trace has
  Nanos moving = 0;                             // time in which its memory was moved
  Nanos waited = 0;       // time in which it had work, or wanted memory, and was stopped for its memory
  Nanos waits_since = 0;  // 0: it does not
};

}  // namespace tessera::server
