#pragma once

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

#include "base/clock.h"

namespace tessera::soft {

// Sleeps until `deadline` (MonotonicNow). Makes the calling thread's timers precise: by default the kernel may be 50 µs
// late (PR_SET_TIMERSLACK in prctl(2)).
inline void WaitUntil(Nanos deadline) {
  thread_local const int precise = prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  static_cast<void>(precise);
  const timespec until = {deadline / kSecond, deadline % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace tessera::soft
