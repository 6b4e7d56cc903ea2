// The order of turns over several GPUs: a gang has the turn on all of its GPUs, or on none.
//
// A pure function of events, as Residency is: no clock, no thread, no I/O. Not thread-safe. It speaks only for GPUs on
// which memory takes turns and that a gang shares with another such GPU; all other GPUs decide by themselves.
// docs/memory.md tells the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sched/turns/residency_turns.h"
#include "sched/turns/turn_wishes.h"

namespace tessera::sched {

using GangId = std::uint64_t;
inline constexpr GangId kNoGang = 0;

// One GPU at one moment.
struct GangGpu {
  TurnWishes now;
  std::vector<GangId> gangs;  // of each of `now.wishes`; kNoGang: it is a job of its own
};

class Gangs {
 public:
  explicit Gangs(const ResidencyConfig& config = {}) { Configure(config); }
  // Other lengths of turns, from the next one on. `config` has been mended as Residency does it.
  void Configure(const ResidencyConfig& config) { config_ = config; }

  // Takes the state of all GPUs at `now`, which does not go back, as one event. A GPU keeps its index.
  void Decide(std::span<const GangGpu> gpus, Nanos now);

  // As of the last event. kOpen for a vGPU that is not known.
  GangTurn TurnOf(std::size_t gpu, VgpuId vgpu) const;
  // Since when the vGPU, or its gang, has had work and not the turn; none: it does not wait by this order.
  std::optional<Nanos> WaitsSince(std::size_t gpu, VgpuId vgpu) const;
  Nanos NextDeadline() const { return deadline_; }  // when Decide must be called at the latest; kNever

  // A job that has the turn, but is not ready, has its time all the same from then on.
  static constexpr Nanos kLongestStart = 20 * kSecond;
  // A gang that does nothing on one of its GPUs for so long of its turns needs no memory there.
  static constexpr Nanos kAway = kSecond;

 private:
  using Place = std::pair<std::size_t, VgpuId>;  // a vGPU, with its GPU
  // A gang, or one vGPU.
  using JobId = std::pair<GangId, Place>;
  struct Job {
    std::uint32_t weight = 0;                    // the most of its vGPUs
    std::uint32_t priority = 0;                  // the first of them
    std::map<std::size_t, std::uint64_t> needs;  // bytes, by GPU
    bool active = false;
    bool ready = false;
    std::optional<Nanos> move;

    std::uint64_t place = 0;  // in the queue: the least is first
    bool queued = false;
    Nanos had = 0;         // had the turn so long since it got this place
    Nanos had_before = 0;  // of that, before it was chosen
    bool chosen = false;   // is to have the turn
    bool kept = false;     // was chosen, and nobody's turn has ended since
    bool holds = false;    // the turn is its own
    bool started = false;  // and has begun
    bool waited = false;   // did not have it once since it got this place
    Nanos held_since = 0;
    Nanos waits_since = kNever;
    std::map<std::size_t, Nanos> away;  // time of its turns since it last had work on a GPU
    std::uint64_t seen = 0;             // number of the event that last had it
  };

  void Take(std::span<const GangGpu> gpus, Nanos now);
  void FindGoverned(std::span<const GangGpu> gpus);
  void AddPart(const TurnWish& wish, const JobId& id, std::size_t gpu);
  void Queue();
  void Sort();
  void Measure();
  void Choose();
  bool Rotate();
  void Settle();
  void Enqueue(Job& job);
  Nanos Length(const Job& job) const;
  Nanos TurnEnd(const Job& job) const;
  bool InTheWay(const Job& job) const;

  ResidencyConfig config_;
  std::map<JobId, Job> jobs_;
  std::map<Place, JobId> parts_;                     // of the GPUs that this decides for
  std::vector<Job*> queue_;                          // the active ones
  std::map<std::uint32_t, double> time_per_weight_;  // by priority
  std::vector<bool> governed_;                       // by GPU
  std::vector<std::uint64_t> capacity_;
  std::uint64_t next_place_ = 0;
  std::uint64_t events_ = 0;
  Nanos now_ = 0;
  Nanos deadline_ = kNever;
};

}  // namespace tessera::sched
