#include "sched/gangs/gangs.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace tessera::sched {

void Gangs::Decide(std::span<const GangGpu> gpus, Nanos now) {
  Take(gpus, now);
  Queue();
  Measure();
  Sort();
  Choose();
  while (Rotate()) {
    Sort();
    Choose();
  }
  Settle();
}

// Lets time pass, and reads what each job needs.
void Gangs::Take(std::span<const GangGpu> gpus, Nanos now) {
  const Nanos elapsed = std::max(now, now_) - now_;
  now_ += elapsed;
  ++events_;
  for (auto& [_, job] : jobs_) {
    if (job.started) {
      job.had += elapsed;
      for (auto& [gpu, away] : job.away) away += elapsed;
    }
    job.weight = 0;
    job.priority = UINT32_MAX;
    job.needs.clear();
    job.active = false;
    job.ready = true;
    job.move.reset();
  }
  parts_.clear();
  FindGoverned(gpus);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (!governed_[gpu]) continue;
    for (std::size_t i = 0; i < gpus[gpu].now.wishes.size(); ++i) {
      const TurnWish& wish = gpus[gpu].now.wishes[i];
      const GangId gang = gpus[gpu].gangs[i];
      AddPart(wish, {gang, gang == kNoGang ? Place(gpu, wish.vgpu) : Place()}, gpu);
    }
  }
  std::erase_if(jobs_, [this](const auto& entry) { return entry.second.seen != events_; });
}

// Where a gang competes on one GPU only, that GPU can decide alone.
void Gangs::FindGoverned(std::span<const GangGpu> gpus) {
  std::map<GangId, std::set<std::size_t>> takes_turns_on;
  governed_.assign(gpus.size(), false);
  capacity_.clear();
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    capacity_.push_back(gpus[gpu].now.capacity);
    if (!gpus[gpu].now.turns) continue;
    for (const GangId gang : gpus[gpu].gangs) {
      if (gang != kNoGang) takes_turns_on[gang].insert(gpu);
    }
  }
  for (const auto& [_, on] : takes_turns_on) {
    if (on.size() < 2) continue;
    for (const std::size_t gpu : on) governed_[gpu] = true;
  }
}

void Gangs::AddPart(const TurnWish& wish, const JobId& id, std::size_t gpu) {
  const auto [found, is_new] = jobs_.try_emplace(id);
  Job& job = found->second;
  if (is_new) {
    job.priority = UINT32_MAX;
    job.ready = true;
  }
  job.seen = events_;
  job.weight = std::max({job.weight, wish.weight, 1u});
  job.priority = std::min(job.priority, wish.priority);
  parts_[{gpu, wish.vgpu}] = id;
  if (wish.move) job.move = std::max(job.move.value_or(0), *wish.move);
  if (wish.active) {
    job.active = true;
    job.ready &= wish.ready;
    job.away[gpu] = 0;
  }
  const Nanos away = job.away.try_emplace(gpu, 0).first->second;
  if (away > kAway || wish.demand == 0) return;
  std::uint64_t& need = job.needs[gpu];
  need = wish.demand > UINT64_MAX - need ? UINT64_MAX : need + wish.demand;
}

void Gangs::Queue() {
  queue_.clear();
  for (auto& [_, job] : jobs_) {
    if (!job.active) {
      job.queued = job.holds = job.chosen = job.kept = job.started = false;
      job.waits_since = kNever;
      job.away.clear();
      continue;
    }
    if (!job.queued) Enqueue(job);
    job.queued = true;
    queue_.push_back(&job);
  }
}

void Gangs::Enqueue(Job& job) {
  job.place = next_place_++;
  job.had = job.had_before = 0;
  job.kept = job.waited = false;
}

// While nobody's turn ends, those that have it keep it: demands that go up and down move no memory.
void Gangs::Sort() {
  std::ranges::sort(queue_, {}, [](const Job* job) { return std::tuple(job->priority, !job->kept, job->place); });
}

// A round has the turns of those that wait for each other: what fits beside all others makes it no longer.
void Gangs::Measure() {
  std::set<std::uint32_t> known;
  for (const Job* job : queue_) {
    if (job->waited) known.insert(job->priority);
  }
  std::map<std::uint32_t, TurnMeasure> classes;
  for (const Job* job : queue_) {
    if (job->waited || !known.contains(job->priority)) classes[job->priority].Add(job->weight, job->move);
  }
  time_per_weight_.clear();
  for (const auto& [priority, measure] : classes) time_per_weight_[priority] = measure.TimePerWeight(config_);
}

Nanos Gangs::Length(const Job& job) const {
  return TurnMeasure::Length(config_, time_per_weight_.at(job.priority), job.weight);
}

// As on one GPU: what it had before, when others were in its way later, counts for half a turn at most.
Nanos Gangs::TurnEnd(const Job& job) const {
  const Nanos length = Length(job);
  return std::max(length, job.had_before + std::max(length / 2, config_.turn_min));
}

// One after the other, each on all of its GPUs or on none. One that is alone on a GPU may need more than there is.
void Gangs::Choose() {
  std::vector<std::uint64_t> left = capacity_;
  std::vector<bool> used(left.size(), false);
  for (Job* job : queue_) {
    job->chosen = std::ranges::all_of(
        job->needs, [&](const auto& need) { return need.second <= left[need.first] || !used[need.first]; });
    if (!job->chosen) continue;
    for (const auto& [gpu, bytes] : job->needs) {
      left[gpu] -= std::min(bytes, left[gpu]);
      used[gpu] = true;
    }
  }
}

// Whether another job of its class waits for one of its GPUs.
bool Gangs::InTheWay(const Job& job) const {
  return std::ranges::any_of(queue_, [&](const Job* other) {
    return !other->chosen && other->priority == job.priority &&
           std::ranges::any_of(other->needs, [&](const auto& need) { return job.needs.contains(need.first); });
  });
}

// Those that had their time, and are in the way of others, go to the back. Then all places count again.
bool Gangs::Rotate() {
  std::set<std::uint32_t> rotated;
  for (Job* job : queue_) {
    if (!job->chosen || job->had < TurnEnd(*job) || !InTheWay(*job)) continue;
    Enqueue(*job);
    rotated.insert(job->priority);
  }
  for (Job* job : queue_) {
    if (rotated.contains(job->priority)) job->kept = false;
  }
  return !rotated.empty();
}

// Makes the choice turns: new ones, or those that are under way.
void Gangs::Settle() {
  deadline_ = kNever;
  for (Job* job : queue_) {
    if (!job->chosen) {
      if (job->waits_since == kNever) job->waits_since = now_;
      if (job->had >= Length(*job)) Enqueue(*job);
      job->holds = job->kept = job->started = false;
      job->waited = true;
      continue;
    }
    if (!job->holds) {
      job->holds = true;
      job->held_since = now_;
      job->had_before = job->had;
    }
    job->waits_since = kNever;
    job->kept = true;
    job->started = job->started || job->ready || now_ - job->held_since >= kLongestStart;
    if (!InTheWay(*job)) continue;
    const Nanos next = job->started ? now_ + TurnEnd(*job) - job->had : job->held_since + kLongestStart;
    deadline_ = std::min(deadline_, std::max(next, now_ + 1));
  }
}

GangTurn Gangs::TurnOf(std::size_t gpu, VgpuId vgpu) const {
  const auto part = parts_.find({gpu, vgpu});
  if (part == parts_.end()) return GangTurn::kOpen;
  const Job& job = jobs_.at(part->second);
  if (!job.active) return GangTurn::kOpen;
  return job.chosen ? GangTurn::kHas : GangTurn::kWaits;
}

std::optional<Nanos> Gangs::WaitsSince(std::size_t gpu, VgpuId vgpu) const {
  const auto part = parts_.find({gpu, vgpu});
  if (part == parts_.end()) return {};
  const Nanos since = jobs_.at(part->second).waits_since;
  return since == kNever ? std::nullopt : std::optional(since);
}

}  // namespace tessera::sched
