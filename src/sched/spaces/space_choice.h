// Choice between the two ways in which the vGPUs of a space can share the GPU, by figures of both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/goals/goal.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Way in which the vGPUs of a space use the GPU.
enum class SpaceMode {
  kAtOnce,   // as many at the same time as there are SMs for
  kInTurns,  // one at a time
};

// vGPU of a space, as its owner set it.
struct SpaceMember {
  VgpuId vgpu = 0;
  Shares shares;
  std::optional<Goal> goal;
};

// Progress of one vGPU of a space. All counts only grow.
struct SpaceProgress {
  // Submissions that passed its gates. Its programs say so: it may be anything.
  std::uint64_t submissions = 0;
  std::uint64_t programs = 0;  // another number means that others of its programs run
  // Time in which it had the token, and in which it wanted it, as SpaceFigures::passed counts.
  Nanos ran = 0, waited = 0;
  std::uint64_t bursts = 0, violations = 0;  // of a latency goal, since the goal was set
  bool works = false;                        // now
  Nanos reached = kNever;                    // work that it was given until then has ended; kNever: it has none
};

// Figures of a space at one moment.
struct SpaceFigures {
  Nanos passed = 0;  // time of its tokens: stands still while the space is off the GPU with work
  Nanos had = 0;     // the part of it that the space had of the GPU, by its slices
  std::map<VgpuId, SpaceProgress> members;
};

// Leg of a trial: what happened between two moments in one mode.
struct SpaceLeg {
  SpaceFigures from, to;
};

// Mode that is better for a space, and why.
struct SpaceChoice {
  SpaceMode mode = SpaceMode::kAtOnce;
  Nanos tried_at = kNever;      // when the trial ended; kNever: there was none
  std::optional<double> gain;   // speed at once over the speed in turns; empty: not known
  std::vector<VgpuId> missed;   // those whose goals were missed in this mode,
  std::vector<VgpuId> rescued;  // and in the other one alone
};

// At once must be so much faster: less is not worth that vGPUs disturb one another.
inline constexpr double kLeastGain = 1.05;
// The mode changes only if the gain is beyond that by this factor: two trials of the same programs differ by so much.
inline constexpr double kGainNoise = 1.02;

// vGPUs that had work for a tenth of the leg's time at least.
std::vector<VgpuId> BusyIn(const SpaceLeg& leg);

// The mode in which goals of the highest priority are missed by the fewest, then of the next; if that is equal, at once
// if it gains more than kLeastGain, within kGainNoise. `present`: the mode that stays if nothing tells which is better.
// Empty: fewer than two vGPUs were busy in both legs.
//
// The gain is the mean of the vGPUs' own (the exponential of the mean logarithm, so that neither mode has an advantage
// by its name), weighted by their weight and by how much of the time they had work. Each counts as 1/4 to 4, so a vGPU
// that lies about its progress moves the mean by no more than one that tells the truth can.
std::optional<SpaceChoice> ChooseMode(const std::vector<SpaceMember>& members, const SpaceLeg& at_once,
                                      const SpaceLeg& in_turns, SpaceMode present);

}  // namespace tessera::sched
