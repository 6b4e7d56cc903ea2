// For tests that wait for another thread or process.
#pragma once

#include <poll.h>

#include "base/clock.h"

namespace tessera {

// Asks until the condition holds, a thousand times a second: what is waited for needs the processor, too. A test that
// waits for ever is ended by CTest. Any thread.
template <typename Condition>
void WaitUntil(Condition condition) {
  while (!condition()) poll(nullptr, 0, 1);
}

// The same for at most this long; false if it did not come to hold.
template <typename Condition>
[[nodiscard]] bool BecomesTrue(Condition condition, Nanos within = 10 * kSecond) {
  const Nanos end = MonotonicNow() + within;
  while (!condition()) {
    if (MonotonicNow() > end) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace tessera
