#pragma once

#include <time.h>

#include <cstdint>

namespace tessera {

// Nanoseconds on CLOCK_MONOTONIC: the one clock that daemon and programs of a machine share (clock_gettime(2)).
using Nanos = std::int64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

inline Nanos MonotonicNow() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

}  // namespace tessera
