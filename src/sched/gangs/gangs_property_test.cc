// Properties of Gangs that hold for all jobs. The cases are the same on every run; RC_PARAMS="seed=..." or
// "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/testing/same_cases.h"
#include "sched/gangs/gangs.h"
#include "sched/testing/any_number.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kCapacity = 100;
constexpr ResidencyConfig kConfig = {.turn_min = kSecond, .turn_max = 4 * kSecond};
constexpr Nanos kMove = kSecond / 10;  // until a job that gets the turn is ready
constexpr std::size_t kMostJobs = 10;
constexpr VgpuId kRanks = 2;  // at most, of a gang on a GPU: vGPUs kRanks * job + rank

struct Job {
  std::map<std::size_t, std::uint64_t> needs;  // by GPU
  bool active = true;
  VgpuId ranks = 1;  // vGPUs on each GPU
  Nanos has_since = kNever;
  Nanos waits_since = kNever;
};

// Jobs in one class; each is ready kMove after it got the turn.
struct World {
  explicit World(std::size_t gpus) : gpus(gpus) {}

  void Decide() {
    std::vector<GangGpu> all(gpus);
    for (auto& gpu : all) gpu.now = {.turns = true, .capacity = kCapacity, .wishes = {}};
    for (const auto& [id, job] : jobs) {
      for (const auto& [gpu, bytes] : job.needs) {
        const bool ready = job.has_since != kNever && now >= job.has_since + kMove;
        std::uint64_t left = bytes;
        for (VgpuId rank = 0; rank < job.ranks; ++rank) {
          const std::uint64_t its = rank + 1 < job.ranks ? left / 2 : left;
          left -= its;
          all[gpu].now.wishes.push_back(
              {.vgpu = id * kRanks + rank, .demand = its, .active = job.active, .ready = ready, .move = kMove});
          all[gpu].gangs.push_back(job.needs.size() > 1 ? id : kNoGang);
        }
      }
    }
    policy.Decide(all, now);
    Check();
  }

  void Check() {
    std::vector<std::uint64_t> used(gpus, 0), on(gpus, 0);
    std::vector<bool> decides(gpus, false);
    for (const auto& [id, job] : jobs) {
      for (const auto& [gpu, _] : job.needs) decides[gpu] = decides[gpu] || job.needs.size() > 1;
    }
    for (auto& [id, job] : jobs) {
      std::set<GangTurn> turns;
      for (const auto& [gpu, _] : job.needs) {
        for (VgpuId rank = 0; rank < job.ranks; ++rank) turns.insert(policy.TurnOf(gpu, id * kRanks + rank));
      }
      RC_ASSERT(turns.size() == 1u);  // on all of its GPUs or on none
      const GangTurn turn = *turns.begin();
      RC_ASSERT((turn == GangTurn::kOpen) == (!job.active || !decides[job.needs.begin()->first]));
      if (turn == GangTurn::kHas) {
        if (job.has_since == kNever) job.has_since = now;
        for (const auto& [gpu, bytes] : job.needs) {
          used[gpu] += bytes;
          ++on[gpu];
        }
      } else {
        job.has_since = kNever;
      }
      if (turn != GangTurn::kWaits) {
        job.waits_since = kNever;
      } else if (job.waits_since == kNever) {
        job.waits_since = now;
      }
      RC_ASSERT(policy.WaitsSince(job.needs.begin()->first, id * kRanks) ==
                (job.waits_since == kNever ? std::nullopt : std::optional(job.waits_since)));
      // It waits for one turn of each that was there before it, or came while one of these had its turn.
      constexpr Nanos kBound = static_cast<Nanos>(kMostJobs) * (2 * kConfig.turn_max + 2 * kMove);
      RC_ASSERT(job.waits_since == kNever || now - job.waits_since <= kBound);
    }
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) RC_ASSERT(used[gpu] <= kCapacity || on[gpu] == 1);
    // Who waits does so for somebody who has the turn.
    for (const auto& [id, job] : jobs) {
      if (job.waits_since == kNever) continue;
      bool blocked = false;
      for (const auto& [gpu, bytes] : job.needs) blocked = blocked || (on[gpu] > 0 && used[gpu] + bytes > kCapacity);
      RC_ASSERT(blocked);
    }
    RC_ASSERT(policy.NextDeadline() > now);
  }

  const std::size_t gpus;
  Gangs policy{kConfig};
  std::map<VgpuId, Job> jobs;
  Nanos now = 0;
};

RC_GTEST_PROP(GangsProperty, EachJobHasItsTurnWithinABoundOnAllOfItsGpusOrOnNone, ()) {
  World world(Number<std::size_t>(1, 8));
  VgpuId next = 1;
  const int steps = Number(20, 200);
  for (int i = 0; i < steps; ++i) {
    const int event = Number(0, 9);
    if (event == 0 && world.jobs.size() < kMostJobs) {
      Job& job = world.jobs[next++];
      const std::size_t on = Number<std::size_t>(1, world.gpus);
      for (std::size_t k = 0; k < on; ++k)
        job.needs[Number<std::size_t>(0, world.gpus - 1)] = Number<std::uint64_t>(1, kCapacity * 11 / 10);
      if (job.needs.size() > 1) job.ranks = Number<VgpuId>(1, kRanks);
    } else if (event == 1 && !world.jobs.empty()) {
      auto job = std::next(world.jobs.begin(), Number<int>(0, static_cast<int>(world.jobs.size()) - 1));
      if (Number(0, 1) == 0) {
        world.jobs.erase(job);
      } else {
        job->second.active = !job->second.active;
        job->second.waits_since = job->second.has_since = kNever;
      }
    } else {
      // To the next deadline, or to when somebody is ready.
      Nanos next_time = world.now + Number<Nanos>(1, kSecond);
      if (event > 5) next_time = std::min(next_time, world.policy.NextDeadline());
      world.now = next_time;
    }
    world.Decide();
  }
}

}  // namespace
}  // namespace tessera::sched
