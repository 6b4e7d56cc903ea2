// The GPUs' time for gangs: jobs on several GPUs run on all of them, or on none.
//
// A pure function of events, as Gangs is, which does the same for memory. Not thread-safe. It says only which vGPUs
// must stand still; among the others slices and classes divide each GPU as ever. docs/scheduler.md tells the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sched/gangs/gangs.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// One vGPU at one moment.
struct GangPart {
  VgpuId vgpu = 0;        // unique among all GPUs
  GangId gang = kNoGang;  // vGPUs of one gang stand and run together
  std::uint32_t weight = 100;
  std::uint32_t priority = 8;  // class
  bool strict = true;          // lower classes stand still while it has work
  bool active = false;         // it has work, whether it runs or not
  bool at_limit = false;       // and has had what its limit permits
};

class GangTime {
 public:
  static constexpr Nanos kMeanTurn = 100 * kMillisecond;
  static constexpr Nanos kLeastTurn = 20 * kMillisecond;
  // A gang that does nothing on one of its GPUs for so long of its turns does not need it.
  static constexpr Nanos kAway = kSecond;

  // Takes the vGPUs of all GPUs at `now`, which does not go back, as one event. A GPU keeps its index. A GPU on which
  // nobody can be made to stand is empty.
  void Decide(std::span<const std::vector<GangPart>> gpus, Nanos now);

  // As of the last event: the vGPUs that must stand.
  const std::set<VgpuId>& Standing() const { return standing_; }
  Nanos NextDeadline() const { return deadline_; }  // when Decide must be called at the latest; kNever

 private:
  // A gang; or kNoGang and a vGPU.
  using JobId = std::pair<GangId, VgpuId>;
  struct Job {
    std::uint32_t weight = 0;    // the most of its vGPUs
    std::uint32_t priority = 0;  // the last of them, as the last one's class stops all
    bool strict = false;
    bool active = false;
    bool limited = false;
    std::vector<VgpuId> vgpus;
    std::map<std::size_t, Nanos> needs;  // GPUs, and the time of its turns since it last had work there

    std::uint64_t place = 0;  // in the queue: the least is first
    Nanos had = 0;            // had the turn so long since it got this place
    bool chosen = false;      // has the turn
    bool barred = false;      // stands for a higher class
    Nanos barred_until = 0;   // for which it stands until then at least
    Nanos back_at = 0;        // it gave its turn away, and may take it from others from then on
    std::uint64_t seen = 0;   // number of the event that last had it

    bool IsGang() const { return needs.size() > 1; }
  };

  void Take(std::span<const std::vector<GangPart>> gpus, Nanos now);
  void AddPart(const GangPart& part, std::size_t gpu);
  void Queue();
  void Govern(std::size_t gpus);
  bool Contested(std::size_t gpu) const;
  void Measure();
  void Sort();
  void Choose();
  bool Rotate();
  void Settle();
  void Enqueue(Job& job);
  bool Governed(const Job& job) const;
  bool InTheWay(const Job& job) const;
  Nanos Length(const Job& job) const;

  std::map<JobId, Job> jobs_;
  std::vector<Job*> queue_;                     // those that may run
  std::vector<bool> governed_;                  // by GPU: whether jobs take turns there
  std::map<std::uint32_t, Nanos> time_of_100_;  // length of a turn for 100 of weight, by priority
  std::set<VgpuId> standing_;
  std::uint64_t next_place_ = 1;
  std::uint64_t events_ = 0;
  Nanos now_ = 0;
  Nanos deadline_ = kNever;
};

}  // namespace tessera::sched
