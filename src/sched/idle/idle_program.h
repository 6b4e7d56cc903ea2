#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tessera::sched {

// State of a program at one look, on all of its GPUs together.
struct IdleFacts {
  bool away = false;       // it is off its GPUs, or on its way there or back
  bool by_itself = false;  // it is so because it was idle
  bool returns = false;    // and on its way back, or will be
  bool moves = false;      // it is on its way to another GPU
  bool idle = false;       // it has contexts, and none of its work is on a GPU, or waits for one
  bool calls = false;      // it is away, and has called the driver, or work of it waits
  std::uint64_t done = 0;  // changes when it works
  std::uint64_t used = 0;  // bytes of memory that it has
};

// Record of a program between looks.
struct IdleRecord {
  bool known = false;  // the two numbers are of the last look at which it was not away
  std::uint64_t done = 0, used = 0;
  Nanos since = kNever;        // it is idle; kNever: it is not, or is away
  bool tried = false;          // it was suspended, or was to be, since it last worked
  Nanos left_at = kNever;      // when that was, until it is on its GPUs again
  std::uint32_t patience = 1;  // so many times the limit it has to be idle
  Nanos resume_at = 0;         // not before then; and how long that was put off after the last attempt
  Nanos pause = 0;
};

enum class IdleVerdict { kNothing, kSuspend, kResume };

// Whether a program is to be suspended, because it is idle for `limit` (nanoseconds; 0: nobody is), or to be brought
// back, because it calls. Pure but for the record.
// - A suspension that failed, or that an operator ended, is not repeated before the program has worked.
// - If it was on its GPUs again within the limit, whatever the reason, it has to be idle for twice as long the next
//   time, 64 times the limit at most; else for the limit again.
// - What cannot be brought back is tried again after 1 s, 2 s and so on, every 16 s at last.
IdleVerdict Judge(IdleRecord& record, const IdleFacts& facts, Nanos limit, Nanos now);

// The suspension that Judge asked for was refused at once, and nothing has changed. It is asked for again when the
// program was idle for as long once more.
void NoteRefusal(IdleRecord& record, Nanos now);

}  // namespace tessera::sched
