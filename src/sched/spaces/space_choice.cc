#include "sched/spaces/space_choice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sched/goals/verdict.h"

namespace tessera::sched {
namespace {

constexpr double kBusy = 0.1;                         // of the time with work
constexpr double kMostGain = 4;                       // of one vGPU; the least is its reciprocal
constexpr double kSpeedTolerance = 0.02;              // a speed that is lower by less is no miss
constexpr double kLeastSubmissions = 10;              // in both legs together; fewer tell nothing of a speed
constexpr Nanos kLeastTimeOfLeg = 50 * kMillisecond;  // of the GPU, that the space must have had in a leg
using MissedByPriority = std::array<std::size_t, 16>;

// Figures of one vGPU in a leg.
struct Done {
  double submissions = 0;
  double ran = 0, worked = 0;  // ns with the token, and ns with work
  double busy = 0;             // the part of the time with work, [0, 1]
  double bursts = 0, violations = 0;
  bool same_programs = false;
};

double Grown(auto from, auto to) { return to > from ? static_cast<double>(to - from) : 0; }

std::optional<Done> DoneIn(const SpaceLeg& leg, VgpuId id) {
  const auto from = leg.from.members.find(id), to = leg.to.members.find(id);
  if (from == leg.from.members.end() || to == leg.to.members.end()) return std::nullopt;
  const SpaceProgress &before = from->second, &after = to->second;
  Done done = {.submissions = Grown(before.submissions, after.submissions),
               .ran = Grown(before.ran, after.ran),
               .bursts = Grown(before.bursts, after.bursts),
               .violations = Grown(before.violations, after.violations),
               .same_programs = before.programs == after.programs};
  done.worked = done.ran + Grown(before.waited, after.waited);
  const double passed = Grown(leg.from.passed, leg.to.passed);
  done.busy = passed > 0 ? std::min(1.0, done.worked / passed) : 0;
  return done;
}

// The part of the GPU that the space had in the leg; 0: too little to tell anything.
double PartIn(const SpaceLeg& leg) {
  const double passed = Grown(leg.from.passed, leg.to.passed);
  const double had = Grown(leg.from.had, leg.to.had);
  return had < kLeastTimeOfLeg ? 0 : std::min(1.0, had / passed);
}

// Progress while it has work and the GPU is the space's.
double Rate(const Done& done, double part) { return done.submissions / (done.worked * part); }

bool MissesGoal(const SpaceMember& member, const Done& here, const Done& in_turns) {
  if (!member.goal) return false;
  if (const auto* latency = std::get_if<LatencyGoal>(&*member.goal))
    return TooManyViolations(*latency, here.bursts, here.violations);
  // With the token in turns it has the GPU to itself, and so its speed alone.
  if (in_turns.submissions < kLeastSubmissions || here.worked == 0 || in_turns.ran == 0) return false;
  const double speed = here.submissions * in_turns.ran / in_turns.submissions / here.worked;
  return speed < (1 - kSpeedTolerance) * std::get<SpeedGoal>(*member.goal).part();
}

// One vGPU's part in the choice.
struct Figures {
  const SpaceMember* member;
  Done at_once, in_turns;

  bool CountsForGain() const {
    return at_once.same_programs && in_turns.same_programs &&
           at_once.submissions + in_turns.submissions >= kLeastSubmissions;
  }
};

std::optional<double> GainOf(const std::vector<Figures>& all, double part_at_once, double part_in_turns) {
  if (part_at_once == 0 || part_in_turns == 0) return std::nullopt;
  double sum = 0, weights = 0;
  for (const Figures& each : all) {
    if (!each.CountsForGain()) continue;
    const double rate = Rate(each.in_turns, part_in_turns);
    const double gain = rate == 0 ? kMostGain : Rate(each.at_once, part_at_once) / rate;
    const double weight = each.member->shares.weight * std::min(each.at_once.busy, each.in_turns.busy);
    sum += weight * std::log(std::clamp(gain, 1 / kMostGain, kMostGain));
    weights += weight;
  }
  return weights > 0 ? std::optional(std::exp(sum / weights)) : std::nullopt;
}

}  // namespace

std::vector<VgpuId> BusyIn(const SpaceLeg& leg) {
  std::vector<VgpuId> busy;
  for (const auto& [id, _] : leg.to.members) {
    if (const auto done = DoneIn(leg, id); done && done->busy >= kBusy) busy.push_back(id);
  }
  return busy;
}

std::optional<SpaceChoice> ChooseMode(const std::vector<SpaceMember>& members, const SpaceLeg& at_once,
                                      const SpaceLeg& in_turns, SpaceMode present) {
  std::vector<Figures> busy;
  std::vector<VgpuId> missed_at_once, missed_in_turns;
  MissedByPriority by_priority_at_once{}, by_priority_in_turns{};
  for (const SpaceMember& member : members) {
    const auto once = DoneIn(at_once, member.vgpu), turns = DoneIn(in_turns, member.vgpu);
    if (!once || !turns) continue;
    const std::size_t priority = std::min<std::size_t>(member.shares.priority, by_priority_at_once.size() - 1);
    if (MissesGoal(member, *once, *turns)) {
      missed_at_once.push_back(member.vgpu);
      ++by_priority_at_once[priority];
    }
    if (MissesGoal(member, *turns, *turns)) {
      missed_in_turns.push_back(member.vgpu);
      ++by_priority_in_turns[priority];
    }
    if (std::min(once->busy, turns->busy) >= kBusy) busy.push_back({&member, *once, *turns});
  }
  if (busy.size() < 2) return std::nullopt;
  SpaceChoice choice = {.mode = present, .gain = GainOf(busy, PartIn(at_once), PartIn(in_turns))};
  if (by_priority_at_once != by_priority_in_turns) {
    choice.mode = by_priority_at_once < by_priority_in_turns ? SpaceMode::kAtOnce : SpaceMode::kInTurns;
  } else if (choice.gain) {
    const double least = present == SpaceMode::kAtOnce ? kLeastGain / kGainNoise : kLeastGain * kGainNoise;
    choice.mode = *choice.gain > least ? SpaceMode::kAtOnce : SpaceMode::kInTurns;
  }
  const bool chose_at_once = choice.mode == SpaceMode::kAtOnce;
  choice.missed = chose_at_once ? missed_at_once : missed_in_turns;
  std::ranges::set_difference(chose_at_once ? missed_in_turns : missed_at_once, choice.missed,
                              std::back_inserter(choice.rescued));
  return choice;
}

}  // namespace tessera::sched
