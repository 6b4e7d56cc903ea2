#include "server/time/space_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/record/events.h"

namespace tessera::server {
namespace {

using sched::SpaceMode;

// How the time server is to run a space.
struct Present {
  SpaceMode mode = SpaceMode::kAtOnce;
  bool short_queues = false;

  friend bool operator==(const Present&, const Present&) = default;
};
constexpr Present kUntried;

Present PresentOf(const std::map<std::uint32_t, sched::SpaceTrial>& trials, std::uint32_t space) {
  const auto found = trials.find(space);
  return found == trials.end() ? kUntried : Present{found->second.mode(), found->second.short_queues()};
}

// Adds the figures of a process to its vGPU's.
void Add(const Process& process, sched::SpaceProgress& progress) {
  progress.submissions += process.page->submissions.load(std::memory_order_relaxed);
  progress.programs += static_cast<std::uint64_t>(process.pid) * 0x9e3779b97f4a7c15;  // so that sums differ
  if (process.gate.held || process.gate.state == GateRecord::State::kParked) return;
  progress.works = true;
  progress.reached = std::min<Nanos>(progress.reached, process.page->reached_ns.load(std::memory_order_relaxed));
}

}  // namespace

const char* TextOf(SpaceMode mode) { return mode == SpaceMode::kAtOnce ? "at once" : "in turns"; }

void SpaceModes::Serve(TimeServer& server, Nanos now) {
  server_ = &server;
  for (auto& [_, trial] : trials_) trial.Abort(now);  // the server counts from zero
}

std::vector<const VGpu*> SpaceModes::VGpusOf(std::uint32_t space) const {
  std::vector<const VGpu*> in;
  for (const VGpu* vgpu : vgpus_) {
    if (!vgpu->removed && vgpu->spec.compute.space.number == space) in.push_back(vgpu);
  }
  return in;
}

void SpaceModes::GoalMissed(const VGpu& vgpu, Nanos now) {
  const auto found = trials_.find(vgpu.spec.compute.space.number);
  if (found != trials_.end()) found->second.GoalMissed(now);
}

// The spaces in which a vGPU has a goal.
SpaceModes::Members SpaceModes::WithGoals() const {
  Members spaces;
  if (!config_.try_spaces) return spaces;
  for (const VGpu* vgpu : vgpus_) {
    if (!vgpu->removed && vgpu->spec.compute.space.number != 0)
      spaces[vgpu->spec.compute.space.number].push_back({vgpu->id, vgpu->spec.compute, vgpu->spec.goal});
  }
  std::erase_if(spaces, [](const auto& space) {
    return std::ranges::none_of(space.second, [](const auto& member) { return member.goal.has_value(); });
  });
  return spaces;
}

void SpaceModes::Look(Nanos now) {
  look_at_ = kNever;
  Members spaces = WithGoals();
  std::erase_if(trials_, [&](const auto& entry) {
    if (spaces.contains(entry.first)) return false;
    if (entry.second.choice().mode == SpaceMode::kInTurns)
      Tell(entry.first, SpaceMode::kAtOnce, config_.try_spaces ? "no vGPU has a goal" : "by the configuration");
    return true;
  });
  for (auto& [space, members] : spaces) {
    sched::SpaceTrial& trial = trials_[space];
    const SpaceMode before = trial.choice().mode;
    trial.SetMembers(std::move(members), now);
    if (trial.choice().mode != before) Tell(space, trial.choice().mode, "requests are kept only side by side");
  }
}

std::vector<SpaceModes::Id> SpaceModes::Advance(sched::Goals* goals, Nanos now) {
  if (now < NextDeadline()) return {};
  std::map<std::uint32_t, Present> before;
  for (const auto& [space, _] : trials_) before[space] = PresentOf(trials_, space);
  if (look_at_ <= now) Look(now);
  for (auto& [space, trial] : trials_) {
    before.try_emplace(space, kUntried);
    if (now < trial.NextDeadline()) continue;
    const SpaceMode chosen = trial.choice().mode;
    trial.Advance(FiguresOf(space, goals, now), now);
    if (trial.choice().mode != chosen) Tell(space, trial.choice().mode, WhyOf(space, trial.choice()));
  }
  std::vector<Id> changed;
  for (const auto& [space, present] : before) {
    if (present == PresentOf(trials_, space)) continue;
    for (const VGpu* vgpu : VGpusOf(space)) changed.push_back(vgpu->id);
  }
  return changed;
}

Nanos SpaceModes::NextDeadline() const {
  Nanos next = look_at_;
  for (const auto& [_, trial] : trials_) next = std::min(next, trial.NextDeadline());
  return next;
}

sched::Shares SpaceModes::Under(sched::Shares shares) const {
  if (shares.space.number == 0) return shares;
  const Present present = PresentOf(trials_, shares.space.number);
  shares.space.in_turns = present.mode == SpaceMode::kInTurns;
  shares.short_queue = present.short_queues;
  return shares;
}

sched::SpaceFigures SpaceModes::FiguresOf(std::uint32_t space, sched::Goals* goals, Nanos now) const {
  const TimeServer::SpaceTime time = server_->TimeOf(space, now);
  sched::SpaceFigures figures{.passed = time.passed, .had = time.had};
  for (const VGpu* vgpu : VGpusOf(space)) {
    const sched::Usage usage = server_->UsageOf(vgpu->id, now);
    sched::SpaceProgress& progress = figures.members[vgpu->id];
    progress.ran = usage.busy;
    progress.waited = usage.waited;
    for (const Process* process : vgpu->processes) Add(*process, progress);
    if (!vgpu->spec.goal || !goals) continue;
    if (const auto report = goals->ReportOf(vgpu->id, now)) {
      progress.bursts = report->since_start.bursts();
      progress.violations = report->since_start.violations;
    }
  }
  return figures;
}

// ---- words ----

std::string SpaceModes::GoalsOf(std::uint32_t space, const std::vector<Id>& ids) const {
  std::string text;
  for (const VGpu* vgpu : VGpusOf(space)) {
    if (std::ranges::find(ids, vgpu->id) == ids.end() || !vgpu->spec.goal) continue;
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", sched::FormatGoal(*vgpu->spec.goal), vgpu->spec.name);
  }
  return text;
}

std::string SpaceModes::WhyOf(std::uint32_t space, const sched::SpaceChoice& choice) const {
  if (choice.tried_at == kNever) return {};
  const bool at_once = choice.mode == SpaceMode::kAtOnce;
  std::string text = "nobody's progress can be compared";
  if (choice.gain)
    text = at_once ? fmt::format("{:.2f}x of taking turns", *choice.gain)
                   : fmt::format("at once is {:.2f}x of that", *choice.gain);
  if (const std::string goals = GoalsOf(space, choice.rescued); !goals.empty())
    text += fmt::format("; {} would be missed {}", goals, at_once ? "in turns" : "at once");
  if (const std::string goals = GoalsOf(space, choice.missed); !goals.empty())
    text += "; " + goals + " is missed so, too";
  return text;
}

SpaceModes::Report SpaceModes::ReportOf(std::uint32_t space) const {
  const auto found = trials_.find(space);
  if (found == trials_.end()) return {};
  const sched::SpaceChoice& choice = found->second.choice();
  return {.choice = choice, .why = WhyOf(space, choice)};
}

void SpaceModes::Tell(std::uint32_t space, SpaceMode mode, const std::string& why) const {
  const std::vector<const VGpu*> in = VGpusOf(space);
  if (in.empty()) return;  // it ends
  const VGpu& any = *in.front();
  events::Note({.type = EventType::kSpaceMode,
                .gpu = any.gpu,
                .owner = any.spec.uid,
                .text = fmt::format("space {} runs {}: {}", any.spec.space, TextOf(mode), why)});
}

}  // namespace tessera::server
