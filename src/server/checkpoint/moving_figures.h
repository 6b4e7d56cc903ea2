#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "server/model/suspension_state.h"
#include "server/record/histogram.h"

namespace tessera::server {

// What came of a program's way off its GPUs, or back.
enum class SuspensionResult : std::uint8_t {
  kSuspended,  // nothing of it is on a GPU any more
  kResumed,    // it is back
  kFailed,     // it could not be suspended and goes on, or could not come back yet
  kLost,       // the driver lost it
};
inline constexpr std::array kSuspensionResults = {"suspended", "resumed", "failed", "lost"};

// The phases that take time because something is done, in order. Of those that last until somebody says so there are no
// figures.
inline constexpr std::array kTimedPhases = {
    SuspensionPhase::kPrepares, SuspensionPhase::kDrains, SuspensionPhase::kLeaves,  SuspensionPhase::kSaves,
    SuspensionPhase::kFiles,    SuspensionPhase::kReads,  SuspensionPhase::kReturns, SuspensionPhase::kRestores};

// Suspensions and migrations since the daemon began, on all GPUs. A program on several GPUs counts once.
struct MovingFigures {
  std::array<std::uint64_t, kSuspensionResults.size()> suspensions{};
  std::array<std::uint64_t, kSuspensionResults.size()> idle_suspensions{};  // of these, of programs that were idle
  std::uint64_t vgpus_moved = 0, vgpus_not_moved = 0;                       // by migrations
  std::array<Histogram, kTimedPhases.size()> phases;

  // `by_itself`: of a program that is, or was to be, suspended because it was idle.
  void Note(SuspensionResult result, bool by_itself) {
    ++suspensions[static_cast<std::size_t>(result)];
    if (by_itself) ++idle_suspensions[static_cast<std::size_t>(result)];
  }
  // A phase that ended; `took` in nanoseconds.
  void Note(SuspensionPhase phase, Nanos took) {
    for (std::size_t i = 0; i < kTimedPhases.size(); ++i) {
      if (kTimedPhases[i] == phase) phases[i].Note(took);
    }
  }
};

}  // namespace tessera::server
