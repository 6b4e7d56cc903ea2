#pragma once

#include <signal.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tenant/driver.h"
#include "tenant/memory.h"
#include "tenant/schedule.h"
#include "tenant/work.h"

namespace tessera::tenant {

// A program that follows a schedule: its bursts come when they are due, whether those before have ended or not, and its
// memory grows and shrinks. A burst's latency counts from the moment when it was due. For one thread.
class ScheduledRun {
 public:
  static constexpr std::uint64_t kPiece = 64ull << 20;  // bytes; memory grows and shrinks by so much

  // Takes and fills the memory of the first step. A burst is `launches` of the work's kernel and takes `service` alone.
  ScheduledRun(Driver& driver, Work& work, const Schedule& schedule, unsigned launches, Nanos service,
               std::uint64_t memory_stride);

  // Begins now. Until the schedule ends, or `stop` is not 0; bursts that are late then are still done, unless stopped.
  // Ends the program if memory is refused.
  void Loop(const volatile sig_atomic_t& stop);
  // Whether the memory that it has now holds what was written.
  bool Verify();
  // The last line: bursts due and done until the schedule's end, and their latencies.
  void ReportDone(bool verified);

 private:
  void FollowMemory();
  void Burst(Nanos due);

  Driver& driver_;
  Work& work_;
  const Schedule& schedule_;
  const unsigned launches_;
  const std::uint64_t memory_stride_;
  const std::vector<Nanos> due_;
  Nanos begin_ = 0;  // CLOCK_MONOTONIC
  std::vector<std::unique_ptr<Pattern>> memory_;
  std::vector<Nanos> latencies_;    // of the bursts done, in their order
  std::size_t step_ = 0;            // the next one whose memory was not taken yet
  std::uint64_t done_in_time_ = 0;  // before the schedule's end
};

}  // namespace tessera::tenant
