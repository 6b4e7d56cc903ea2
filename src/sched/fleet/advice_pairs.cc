#include <algorithm>
#include <utility>

#include "sched/fleet/advice.h"
#include "sched/fleet/advice_words.h"

namespace tessera::sched {
namespace {

// How two vGPUs of one GPU get on, in moments in which both were there.
struct Meeting {
  std::size_t moments = 0;
  std::size_t busy[2] = {};
  std::size_t both = 0;
  std::size_t over = 0;               // wanted more than the GPU has, together
  std::size_t missed_beside[2] = {};  // missed its goal while both were busy
  std::size_t missed_alone[2] = {};   // while the other was not
};

double PartOfAll(std::size_t of, std::size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(of) / static_cast<double>(whole);
}

Meeting Meet(const MeteredVgpu& one, const MeteredVgpu& other, const AdviceRules& rules) {
  Meeting meeting;
  for (std::size_t at = 0; at < std::min(one.samples.size(), other.samples.size()); ++at) {
    const UsedSample* used[2] = {&one.samples[at], &other.samples[at]};
    if (!used[0]->there || !used[1]->there) continue;
    ++meeting.moments;
    const bool busy[2] = {used[0]->duty + used[0]->waited >= rules.busy, used[1]->duty + used[1]->waited >= rules.busy};
    const bool both = busy[0] && busy[1];
    meeting.both += both;
    meeting.over += both && WantedPart(one, *used[0]) + WantedPart(other, *used[1]) > 1 + 1e-9;
    for (int i = 0; i < 2; ++i) {
      meeting.busy[i] += busy[i];
      meeting.missed_beside[i] += both && used[i]->violated;
      meeting.missed_alone[i] += busy[i] && !both && used[i]->violated;
    }
  }
  return meeting;
}

// Whether the other makes it miss its goal: in too many of the moments, and at least twice as often as without.
bool Misses(const Meeting& meeting, int i, const AdviceRules& rules) {
  const double beside = PartOfAll(meeting.missed_beside[i], meeting.both);
  const double alone = PartOfAll(meeting.missed_alone[i], meeting.busy[i] - meeting.both);
  return PartOfAll(meeting.missed_beside[i], meeting.moments) > rules.collides && beside >= 2 * alone;
}

// Another GPU of the type that has room for the vGPU, and nothing of its space to leave behind.
void Relieve(const MeteredFleet& fleet, std::size_t vgpu, const AdviceRules& rules, Advice& advice) {
  const std::size_t here = fleet.vgpus[vgpu].gpu;
  if (!fleet.vgpus[vgpu].space.empty()) return;
  for (std::size_t gpu = 0; gpu < fleet.gpus.size(); ++gpu) {
    if (gpu == here || fleet.gpus[gpu].type != fleet.gpus[here].type) continue;
    std::vector<std::size_t> members = {vgpu};
    for (std::size_t i = 0; i < fleet.vgpus.size(); ++i) {
      if (fleet.vgpus[i].gpu == gpu) members.push_back(i);
    }
    if (!FitTogether(fleet, fleet.gpus[gpu], members, rules)) continue;
    advice.moves = {{.vgpu = vgpu, .to = gpu}};
    return;
  }
}

}  // namespace

std::vector<Advice> AdvisePairs(const MeteredFleet& fleet, const AdviceRules& rules) {
  std::vector<Advice> all;
  for (std::size_t i = 0; i < fleet.vgpus.size(); ++i) {
    for (std::size_t j = i + 1; j < fleet.vgpus.size(); ++j) {
      const MeteredVgpu &one = fleet.vgpus[i], &other = fleet.vgpus[j];
      if (one.gpu != other.gpu || (!one.space.empty() && one.space == other.space)) continue;
      const Meeting meeting = Meet(one, other, rules);
      if (meeting.moments == 0 || meeting.moments < rules.least_samples) continue;
      const double both = PartOfAll(meeting.both, meeting.moments), over = PartOfAll(meeting.over, meeting.moments);
      const double by_chance =
          PartOfAll(meeting.busy[0], meeting.moments) * PartOfAll(meeting.busy[1], meeting.moments);
      // Of two that are always busy neither chooses when.
      const bool collide = over > rules.collides && (both > by_chance + 1e-9 || by_chance > 0.9);
      const bool missed[2] = {Misses(meeting, 0, rules), Misses(meeting, 1, rules)};
      if (!collide && !missed[0] && !missed[1]) continue;
      Advice advice = {
          .kind = Advice::Kind::kApart,
          .vgpus = {i, j},
          .reason = one.name + " and " + other.name + " were busy at the same time in " + PctWords(100 * both) +
                    " of the samples (by chance: " + PctWords(100 * by_chance) + ")",
          .figures = {
              {"both_busy_pct", 100 * both}, {"by_chance_pct", 100 * by_chance}, {"over_capacity_pct", 100 * over}}};
      if (collide) advice.reason += ", and wanted more than the GPU has in " + PctWords(100 * over);
      for (int each = 0; each < 2; ++each) {
        if (!missed[each]) continue;
        const double beside = 100 * PartOfAll(meeting.missed_beside[each], meeting.both);
        advice.reason +=
            ", and " + (each == 0 ? one : other).name + " missed its goal in " + PctWords(beside) + " of these";
        advice.figures.push_back({each == 0 ? "first_missed_pct" : "second_missed_pct", beside});
      }
      // The one without a goal goes, or the one that uses less.
      const bool first_goes = one.goal != other.goal ? other.goal : meeting.busy[0] < meeting.busy[1];
      Relieve(fleet, first_goes ? i : j, rules, advice);
      if (advice.moves.empty()) Relieve(fleet, first_goes ? j : i, rules, advice);
      if (advice.moves.empty()) advice.reason += "; no other GPU of the type has room for either";
      all.push_back(std::move(advice));
    }
  }
  return all;
}

}  // namespace tessera::sched
