// Properties of GangTime that hold for all jobs. The cases are the same on every run; RC_PARAMS="seed=..." or
// "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "base/testing/same_cases.h"
#include "sched/gangs/gang_time.h"
#include "sched/testing/any_number.h"

namespace tessera::sched {
namespace {

constexpr std::size_t kMostJobs = 8;
constexpr std::uint32_t kMostWeight = 400;
constexpr VgpuId kPartsEach = 10, kRanks = 2;  // vGPU 20 * job + 2 * GPU + rank

struct Job {
  std::map<std::size_t, bool> works;  // by GPU
  std::uint32_t weight = 100;
  std::uint32_t priority = 8;
  bool limited = false;
  VgpuId ranks = 1;   // of a gang: vGPUs on each GPU,
  VgpuId worker = 0;  // of which this one works, and the others if it is the first
  Nanos waits_since = kNever;

  bool Active() const {
    return std::ranges::any_of(works, [](const auto& on) { return on.second; });
  }
  bool Gang() const { return works.size() > 1; }
};

// All jobs work on all of their GPUs when they come, so each is a gang on these from then on.
struct World {
  World(std::size_t gpus, bool classes) : gpus(gpus), classes(classes) {}

  void Decide() {
    std::vector<std::vector<GangPart>> parts(gpus);
    for (const auto& [id, job] : jobs) {
      for (const auto& [gpu, works] : job.works) {
        for (VgpuId rank = 0; rank < job.ranks; ++rank) {
          const bool active = works && rank >= job.worker;
          parts[gpu].push_back({.vgpu = Part(id, gpu, rank),
                                .gang = job.Gang() ? id : kNoGang,
                                .weight = job.weight,
                                .priority = job.priority,
                                .active = active,
                                .at_limit = active && job.limited});
        }
      }
    }
    time.Decide(parts, now);
    Check();
  }

  static VgpuId Part(VgpuId id, std::size_t gpu, VgpuId rank) {
    return (id * kPartsEach + static_cast<VgpuId>(gpu)) * kRanks + rank;
  }
  bool Stands(VgpuId id, std::size_t gpu, VgpuId rank = 0) const {
    return time.Standing().contains(Part(id, gpu, rank));
  }
  bool Stands(const std::pair<const VgpuId, Job>& job) const {
    return Stands(job.first, job.second.works.begin()->first);
  }
  static bool Share(const Job& one, const Job& other) {
    return std::ranges::any_of(one.works, [&](const auto& on) { return other.works.contains(on.first); });
  }

  void Check() {
    for (auto& entry : jobs) {
      auto& [id, job] = entry;
      const bool stands = Stands(entry);
      for (const auto& [gpu, _] : job.works) {  // on all of its GPUs or on none
        for (VgpuId rank = 0; rank < job.ranks; ++rank) RC_ASSERT(Stands(id, gpu, rank) == stands);
      }
      RC_ASSERT(!stands || job.Active());
      RC_ASSERT(!job.Gang() || !job.Active() || !job.limited || stands);
      if (!stands || job.limited) {
        job.waits_since = kNever;
      } else if (job.waits_since == kNever) {
        job.waits_since = now;
      }
    }
    for (const auto& one : jobs) {
      if (!one.second.Active() || one.second.limited) continue;
      bool in_the_way = false;
      for (const auto& other : jobs) {
        if (&one == &other || !other.second.Active() || other.second.limited || !Share(one.second, other.second))
          continue;
        if (!Stands(other)) in_the_way = true;
        // A gang runs beside no other job of its class.
        const bool exclude = one.second.Gang() || other.second.Gang();
        RC_ASSERT(!exclude || one.second.priority != other.second.priority || Stands(one) || Stands(other));
      }
      if (!Stands(one) || classes) continue;
      RC_ASSERT(in_the_way);  // a GPU that somebody could use does not stand idle
    }
    if (classes) return;
    // It waits for one turn of each other job, and once because it gave its own away.
    constexpr Nanos kLongest = GangTime::kMeanTurn * static_cast<Nanos>(kMostJobs);
    constexpr Nanos kBound = static_cast<Nanos>(kMostJobs - 1) * kLongest + GangTime::kLeastTurn;
    for (const auto& [_, job] : jobs) RC_ASSERT(job.waits_since == kNever || now - job.waits_since <= kBound);
    RC_ASSERT(time.NextDeadline() > now);
  }

  void Step() {
    const int event = Number(0, 11);
    if (event == 0 && jobs.size() < kMostJobs) {
      Job& job = jobs[next++];
      const auto on = Number<std::size_t>(1, gpus);
      for (std::size_t k = 0; k < on; ++k) job.works[Number<std::size_t>(0, gpus - 1)] = true;
      if (job.Gang()) job.ranks = Number<VgpuId>(1, kRanks);
      job.worker = Number<VgpuId>(0, job.ranks - 1);
      job.weight = Number<std::uint32_t>(1, kMostWeight);
      if (classes) job.priority = Number<std::uint32_t>(7, 9);
    } else if (event <= 5 && !jobs.empty()) {
      const auto job = std::next(jobs.begin(), Number<int>(0, static_cast<int>(jobs.size()) - 1));
      Change(job);
    } else {
      // To the next deadline, or a little.
      const Nanos step = Number<Nanos>(1, event > 8 ? 50 * kMillisecond : 5 * kMillisecond);
      now = std::min(now + step, std::max(now, time.NextDeadline()));
    }
    if (now >= all_work_at) AllWork();
    Decide();
  }

  // So often that no gang is without work on a GPU for kAway of its turns.
  void AllWork() {
    all_work_at = now + GangTime::kAway / 2;
    for (auto& [_, job] : jobs) {
      for (auto& [gpu, works] : job.works) works |= job.Active();
    }
  }

  void Change(std::map<VgpuId, Job>::iterator job) {
    const int change = Number(0, 9);
    if (change == 0) {
      jobs.erase(job);
    } else if (change == 1) {
      job->second.limited = !job->second.limited;
    } else if (change < 6) {
      const bool works = !job->second.Active();
      for (auto& [_, on] : job->second.works) on = works;
    } else {
      auto& works = job->second.works;
      auto one = std::next(works.begin(), Number<int>(0, static_cast<int>(works.size()) - 1));
      one->second = !one->second;
    }
  }

  const std::size_t gpus;
  const bool classes;
  GangTime time;
  std::map<VgpuId, Job> jobs;
  VgpuId next = 1;
  Nanos now = 0;
  Nanos all_work_at = 0;
};

void Play(bool classes) {
  World world(Number<std::size_t>(1, 8), classes);
  const int steps = Number(20, 400);
  for (int i = 0; i < steps; ++i) world.Step();
}

RC_GTEST_PROP(GangTimeProperty, EachJobRunsWithinABoundOnAllOfItsGpusOrOnNone, ()) { Play(false); }
RC_GTEST_PROP(GangTimeProperty, ClassesLeaveNoGangRunningOnSomeOfItsGpus, ()) { Play(true); }

// Busy jobs, for long: nobody that could run waits, and each has its part of what it meets.
RC_GTEST_PROP(GangTimeProperty, BusyJobsAllGoOn, ()) {
  World world(Number<std::size_t>(1, 8), false);
  const auto count = Number<std::size_t>(2, kMostJobs);
  for (VgpuId id = 1; id <= count; ++id) {
    for (int k = Number(1, 4); k > 0; --k) world.jobs[id].works[Number<std::size_t>(0, world.gpus - 1)] = true;
  }
  std::map<VgpuId, Nanos> ran;
  world.Decide();
  for (constexpr Nanos kLong = 20 * kSecond; world.now < kLong;) {
    const Nanos before = world.now;
    world.now = std::min(kLong, world.time.NextDeadline());
    for (const auto& job : world.jobs) ran[job.first] += world.Stands(job) ? 0 : world.now - before;
    world.Decide();
  }
  // All weigh the same: a turn is kMeanTurn, and each waits for one of each other.
  const Nanos least = 20 * kSecond / static_cast<Nanos>(count) - GangTime::kMeanTurn;
  for (const auto& [id, time] : ran) RC_ASSERT(time >= least);
}

}  // namespace
}  // namespace tessera::sched
