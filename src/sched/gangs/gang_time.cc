#include "sched/gangs/gang_time.h"

#include <algorithm>
#include <tuple>

namespace tessera::sched {
namespace {

template <typename Job>
bool Share(const Job& one, const Job& other) {
  return std::ranges::any_of(one.needs, [&](const auto& need) { return other.needs.contains(need.first); });
}

}  // namespace

void GangTime::Decide(std::span<const std::vector<GangPart>> gpus, Nanos now) {
  Take(gpus, now);
  Queue();
  Govern(gpus.size());
  Measure();
  do {
    Sort();
    Choose();
  } while (Rotate());
  Settle();
}

// Lets time pass, and reads what each job does.
void GangTime::Take(std::span<const std::vector<GangPart>> gpus, Nanos now) {
  const Nanos elapsed = std::max(now, now_) - now_;
  now_ += elapsed;
  ++events_;
  for (auto& [_, job] : jobs_) {
    if (job.chosen) {
      job.had += elapsed;
      for (auto& [gpu, away] : job.needs) away += elapsed;
    }
    job.weight = 1;
    job.priority = 0;
    job.strict = job.active = job.limited = false;
    job.vgpus.clear();
  }
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    for (const GangPart& part : gpus[gpu]) AddPart(part, gpu);
  }
  std::erase_if(jobs_, [this](const auto& entry) { return entry.second.seen != events_; });
  for (auto& [_, job] : jobs_) std::erase_if(job.needs, [](const auto& need) { return need.second >= kAway; });
}

void GangTime::AddPart(const GangPart& part, std::size_t gpu) {
  Job& job = jobs_[{part.gang, part.gang == kNoGang ? part.vgpu : VgpuId{}}];
  job.seen = events_;
  job.vgpus.push_back(part.vgpu);
  if (part.active) job.needs[gpu] = 0;
  if (!job.needs.contains(gpu)) return;
  job.active |= part.active;
  job.limited |= part.active && part.at_limit;
  job.weight = std::max(job.weight, part.weight);
  job.priority = std::max(job.priority, part.priority);
  job.strict |= part.strict;
}

// A job that has nothing to do, or must not do it, gives its turn away. It keeps its place: for the rest of its turn it
// goes first again, but not so soon that others are stopped all the time.
void GangTime::Queue() {
  queue_.clear();
  for (auto& [_, job] : jobs_) {
    job.barred = now_ < job.barred_until;
    if (job.active && !job.limited && !job.barred) {
      if (job.place == 0) Enqueue(job);
      queue_.push_back(&job);
    } else if (job.chosen) {
      job.chosen = false;
      job.back_at = now_ + kLeastTurn;
    }
  }
}

void GangTime::Enqueue(Job& job) {
  job.place = next_place_++;
  job.had = 0;
}

// Jobs take turns where a gang meets another job, and on all GPUs that gangs connect with these.
void GangTime::Govern(std::size_t gpus) {
  governed_.assign(gpus, false);
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) governed_[gpu] = Contested(gpu);
  for (bool spreads = true; spreads;) {
    spreads = false;
    for (const Job* job : queue_) {
      if (!Governed(*job)) continue;
      for (const auto& [gpu, _] : job->needs) {
        spreads |= !governed_[gpu];
        governed_[gpu] = true;
      }
    }
  }
}

bool GangTime::Contested(std::size_t gpu) const {
  return std::ranges::any_of(queue_, [&](const Job* gang) {
    return gang->IsGang() && gang->needs.contains(gpu) && std::ranges::any_of(queue_, [&](const Job* other) {
             return other != gang && other->needs.contains(gpu) &&
                    (other->priority == gang->priority || (other->priority < gang->priority && other->strict));
           });
  });
}

bool GangTime::Governed(const Job& job) const {
  return std::ranges::any_of(job.needs, [this](const auto& need) { return governed_[need.first]; });
}

void GangTime::Measure() {
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> sums;  // of weights, and jobs, by priority
  for (const Job* job : queue_) {
    if (!Governed(*job)) continue;
    auto& [weights, count] = sums[job->priority];
    weights += job->weight;
    ++count;
  }
  time_of_100_.clear();
  for (const auto& [priority, sum] : sums)
    time_of_100_[priority] = static_cast<Nanos>(100 * kMeanTurn * sum.second / sum.first);
}

// Turns are as weights, and as long as kMeanTurn on an average.
Nanos GangTime::Length(const Job& job) const {
  return std::max(kLeastTurn, time_of_100_.at(job.priority) * job.weight / 100);
}

void GangTime::Sort() {
  std::ranges::sort(queue_, {},
                    [this](const Job* job) { return std::tuple(job->priority, now_ < job->back_at, job->place); });
}

// One after the other, each on all of its GPUs or on none.
void GangTime::Choose() {
  std::vector<const Job*> chosen;
  for (Job* job : queue_) {
    job->chosen = true;
    job->barred = false;
    if (!Governed(*job)) continue;
    for (const Job* other : chosen) {
      if (!Share(*job, *other)) continue;
      const bool above = other->priority < job->priority;
      if (above && !other->strict) continue;  // slices divide the GPU between them
      job->chosen = false;
      job->barred |= above;
    }
    if (job->chosen) chosen.push_back(job);
  }
}

// Whether another job of its class waits for one of its GPUs.
bool GangTime::InTheWay(const Job& job) const {
  return std::ranges::any_of(queue_, [&](const Job* other) {
    return !other->chosen && !other->barred && other->priority == job.priority && Share(*other, job);
  });
}

// Those that had their time, and are in the way of others, go to the back.
bool GangTime::Rotate() {
  bool rotated = false;
  for (Job* job : queue_) {
    if (!job->chosen || !Governed(*job) || job->had < Length(*job) || !InTheWay(*job)) continue;
    Enqueue(*job);
    rotated = true;
  }
  return rotated;
}

void GangTime::Settle() {
  standing_.clear();
  deadline_ = kNever;
  const auto wake = [this](Nanos at) { deadline_ = std::min(deadline_, std::max(at, now_ + 1)); };
  for (Job* job : queue_) {
    if (job->chosen) {
      if (Governed(*job) && InTheWay(*job)) wake(now_ + Length(*job) - job->had);
      for (const auto& [gpu, away] : job->needs) {
        if (away > 0 && governed_[gpu]) wake(now_ + kAway - away);
      }
      continue;
    }
    if (job->had >= Length(*job)) Enqueue(*job);
    if (now_ < job->back_at) wake(job->back_at);
    // A class takes one vGPU off its GPU by itself. A gang leaves the others as well, and not too often.
    if (job->barred && job->IsGang()) job->barred_until = now_ + kLeastTurn;
    if (!job->barred) standing_.insert(job->vgpus.begin(), job->vgpus.end());
  }
  for (const auto& [_, job] : jobs_) {
    if (!job.active || !job.IsGang()) continue;
    if (now_ < job.barred_until) wake(job.barred_until);
    if (job.limited || now_ < job.barred_until) standing_.insert(job.vgpus.begin(), job.vgpus.end());
  }
}

}  // namespace tessera::sched
