#include "plan/simulator.h"

#include <algorithm>
#include <utility>

namespace tessera::plan {

Simulator::Simulator(const std::vector<GpuSpec>& gpus, std::uint64_t seed) : seed_(seed) {
  if (!gpus.empty()) gangs_.Configure(gpus.front().residency);
  for (const GpuSpec& spec : gpus) {
    gpus_.push_back(std::make_unique<Gpu>(spec, seed + gpus_.size(), violations_));
  }
}

Result<void> Simulator::Add(sched::VgpuId id, const sched::Shares& shares, Program program,
                            const std::vector<std::size_t>& gpus, const std::optional<sched::Goal>& goal) {
  if (runners_.contains(id)) return Fail(EEXIST, "program " + std::to_string(id) + " exists already");
  if (gpus.empty() || program.phases.empty()) return Fail(EINVAL, "a program needs a GPU and a phase");
  std::vector<Gpu*> on;
  for (const std::size_t gpu : gpus) {
    if (gpu >= gpus_.size()) return Fail(ENODEV, "there is no GPU " + std::to_string(gpu));
    on.push_back(gpus_[gpu].get());
  }
  constexpr std::uint64_t kSpread = 1'000'003;  // so that no program has the random numbers of a GPU or of another
  auto runner = std::make_unique<Runner>(std::move(program), on, id, shares, seed_ * kSpread + id + 1, now_);
  for (std::size_t i = 0; i < on.size(); ++i) {
    runner->parts()[i].goal = goal;
    if (auto added = on[i]->Add(runner->parts()[i], runner->terms(), now_); !added) {
      while (i-- > 0) on[i]->Remove(runner->parts()[i], now_);
      return added;
    }
  }
  has_gangs_ |= on.size() > 1;
  runners_[id] = std::move(runner);
  return {};
}

Result<void> Simulator::Update(sched::VgpuId id, const sched::Shares& shares) {
  const auto found = runners_.find(id);
  if (found == runners_.end()) return Fail(ENOENT, "program " + std::to_string(id) + " does not exist");
  Runner& runner = *found->second;
  for (std::size_t i = 0; i < runner.gpus().size(); ++i) {
    const sched::Shares before = runner.parts()[i].shares;
    auto updated = runner.gpus()[i]->Update(runner.parts()[i], shares, now_);
    if (updated) continue;
    // Those that took it go back to what they had, which fitted.
    while (i-- > 0) (void)runner.gpus()[i]->Update(runner.parts()[i], before, now_);
    return updated;
  }
  return {};
}

void Simulator::Remove(sched::VgpuId id) {
  const auto found = runners_.find(id);
  if (found == runners_.end()) return;
  Runner& runner = *found->second;
  std::erase_if(turns_, [&](const auto& entry) { return entry.first.second == id; });
  for (std::size_t i = 0; i < runner.gpus().size(); ++i) runner.gpus()[i]->Remove(runner.parts()[i], now_);
  runners_.erase(found);
}

Result<void> Simulator::Migrate(sched::VgpuId id, std::size_t to, Nanos pause) {
  const auto found = runners_.find(id);
  if (found == runners_.end()) return Fail(ENOENT, "program " + std::to_string(id) + " does not exist");
  Runner& runner = *found->second;
  if (to >= gpus_.size()) return Fail(ENODEV, "there is no GPU " + std::to_string(to));
  if (runner.gpus().size() > 1) return Fail(ENOTSUP, "a program on several GPUs does not move");
  const std::size_t from = IndexOf(runner.gpus().front());
  if (from == to) return {};
  if (auto moved = runner.Migrate(*gpus_[to], pause, now_); !moved) return moved;
  turns_.erase({from, id});
  return {};
}

std::size_t Simulator::GpuOf(sched::VgpuId id) const { return IndexOf(runners_.at(id)->gpus().front()); }

std::uint64_t Simulator::AllocatedBy(sched::VgpuId id) const {
  const Runner& runner = *runners_.at(id);
  return runner.gpus().front()->AllocatedBy(runner.parts().front());
}

std::size_t Simulator::IndexOf(const Gpu* gpu) const {
  return static_cast<std::size_t>(std::ranges::find(gpus_, gpu, [](const auto& each) { return each.get(); }) -
                                  gpus_.begin());
}

std::vector<Simulator::Island> Simulator::Islands() const {
  std::vector<Island> islands(has_gangs_ ? 1 : gpus_.size());
  for (std::size_t i = 0; i < gpus_.size(); ++i) islands[has_gangs_ ? 0 : i].gpus.push_back(gpus_[i].get());
  for (const auto& [_, runner] : runners_)
    islands[has_gangs_ ? 0 : IndexOf(runner->gpus().front())].runners.push_back(runner.get());
  return islands;
}

// One after the other.
void Simulator::Run(Nanos duration) {
  const Nanos begin = now_, window_end = window_end_;
  for (const Island& island : Islands()) {
    if (!violations().empty()) return;
    now_ = begin;
    window_end_ = window_end;
    RunUntil(begin + duration, island);
  }
}

void Simulator::RunUntil(Nanos end, const Island& island) {
  int steps_without_time = 0;
  while (violations().empty()) {
    Settle(island);
    ++events_;
    const Nanos next = std::max(now_, NextEvent(island));
    if (next > end) break;
    constexpr int kMostSteps = 10'000;
    steps_without_time = next == now_ ? steps_without_time + 1 : 0;
    violations_.Require(steps_without_time < kMostSteps, "time stands still", now_);
    Elapse(next, island);
    for (Gpu* gpu : island.gpus) gpu->Step(now_);
    for (Runner* runner : island.runners) runner->Step(now_);
  }
  if (violations().empty()) Elapse(end, island);
}

Nanos Simulator::NextEvent(const Island& island) const {
  Nanos next = has_gangs_ ? std::min(window_end_, gangs_.NextDeadline()) : window_end_;
  for (const Gpu* gpu : island.gpus) next = std::min(next, gpu->NextEvent());
  for (const Runner* runner : island.runners) next = std::min(next, runner->NextEvent(now_));
  return next;
}

void Simulator::Settle(const Island& island) {
  constexpr int kMostRounds = 100;
  int rounds = 0;
  do {
    for (Gpu* gpu : island.gpus) gpu->Settle(now_);
    violations_.Require(++rounds < kMostRounds, "GPUs do not agree on turns", now_);
  } while (OrderTurns() && rounds < kMostRounds);
  for (Runner* runner : island.runners) runner->SetPace();
}

// Has the turns of programs on several GPUs decided for all of them. Whether something is different now.
bool Simulator::OrderTurns() {
  if (!has_gangs_) return false;
  std::vector<sched::GangGpu> gpus;
  for (const auto& gpu : gpus_) {
    sched::GangGpu& its = gpus.emplace_back(sched::GangGpu{.now = gpu->Wishes(), .gangs = {}});
    for (const sched::TurnWish& wish : its.now.wishes)
      its.gangs.push_back(runners_.at(wish.vgpu)->gpus().size() > 1 ? wish.vgpu : sched::kNoGang);
  }
  gangs_.Decide(gpus, now_);
  bool changed = false;
  for (auto& [id, runner] : runners_) {
    for (std::size_t i = 0; i < runner->gpus().size(); ++i) {
      const std::size_t index = IndexOf(runner->gpus()[i]);
      const sched::GangTurn turn = gangs_.TurnOf(index, id);
      changed |= std::exchange(turns_[{index, id}], turn) != turn;
      runner->gpus()[i]->SetTurn(runner->parts()[i], turn);
    }
  }
  return changed;
}

void Simulator::Elapse(Nanos until, const Island& island) {
  if (until > now_) {
    for (Gpu* gpu : island.gpus) gpu->Elapse(now_, until);
    for (Runner* runner : island.runners) runner->Elapse(until - now_);
  }
  now_ = until;
  if (now_ < window_end_) return;
  for (Gpu* gpu : island.gpus) gpu->EndWindow(window_);
  window_end_ += window_;
}

void Simulator::StartMeasuring(Nanos window) {
  window_ = window;
  window_end_ = window > 0 ? now_ + window : kNever;
  for (auto& gpu : gpus_) gpu->StartMeasuring(now_);
  for (auto& [_, runner] : runners_) runner->StartMeasuring();
}

PartFigures Simulator::Of(sched::VgpuId id, std::size_t gpu) const {
  const Runner& runner = *runners_.at(id);
  return runner.gpus().at(gpu)->FiguresOf(runner.parts().at(gpu), now_);
}

std::optional<sched::GoalReport> Simulator::GoalOf(sched::VgpuId id, std::size_t gpu) {
  Runner& runner = *runners_.at(id);
  return runner.gpus().at(gpu)->GoalOf(runner.parts().at(gpu), now_);
}

}  // namespace tessera::plan
