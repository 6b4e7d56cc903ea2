// CLOCK_MONOTONIC, whose times of different processes can be compared.
#pragma once

#include <time.h>

inline double NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

inline double NowUs() { return NowNs() / 1e3; }

// In seconds.
inline double Now() { return NowNs() / 1e9; }
