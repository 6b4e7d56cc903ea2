#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::tenant {

// Choices of what a tenant does; each is independent of the others.
struct Options {
  Nanos kernel_time = kMillisecond;  // of one launch, by calibration
  std::uint32_t iterations = 0;      // instead of calibration
  unsigned blocks = 1;
  unsigned threads = 32;
  std::uint64_t sweep_bytes = 0;  // kernels read and write so much memory, in place of computing; 0: they compute

  double seconds = 0;         // 0: until SIGTERM or SIGINT
  std::uint64_t kernels = 0;  // stop after so many; 0: no such end
  unsigned depth = 8;         // launches in a batch; 0: one batch, which needs `kernels`
  unsigned ahead = 2;         // batches under way before waiting for the oldest
  unsigned burst = 0;         // launches, then wait for them and be idle; 0: never idle
  unsigned idle_us = 0;

  std::uint64_t memory_bytes = 0;  // filled at the start, verified at the end
  std::uint64_t memory_stride = 4096;
  bool grab = false;  // at the start; SIGUSR1 does it at any time
  std::uint64_t grab_chunk = 64ull << 20;
  unsigned grab_hold_us = 0;

  std::string schedule;        // a file (schedule.h): bursts and memory over time, in place of the loop; else empty
  bool schedule_wait = false;  // it begins at SIGUSR1, and verifies at the next one

  unsigned report_every_ms = 100;  // 0: only at the end
  bool help = false;
};

Result<Options> ParseOptions(int argc, char** argv);
std::string Help();

}  // namespace tessera::tenant
