#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "plan/gpu.h"
#include "plan/model/figures.h"
#include "plan/model/part.h"
#include "plan/model/random.h"
#include "plan/model/workload.h"

namespace tessera::plan {

// A program that runs: goes through its phases and bursts, gives its GPUs work, and sees when that has ended. A program
// on several GPUs gives all of them the same work, which goes on only while it executes on all of them at once, as that
// of programs which wait for one another in each step does.
class Runner {
 public:
  // `gpus` outlive it; they do not know its parts yet.
  Runner(Program program, std::vector<Gpu*> gpus, sched::VgpuId id, const sched::Shares& shares, std::uint64_t seed,
         Nanos now);

  const MemoryTerms& terms() const { return program_.terms; }
  const std::vector<Gpu*>& gpus() const { return gpus_; }
  std::vector<Part>& parts() { return parts_; }
  const std::vector<Part>& parts() const { return parts_; }

  // A program on one GPU goes to another one of the same type: it stands still until its memory is out, and for `pause`
  // besides. Its memory is in host memory then. An error if that GPU does not take it: then it is where it was.
  Result<void> Migrate(Gpu& to, Nanos pause, Nanos now);
  // It is on its way.
  bool Migrates(Nanos now) const { return now < arrives_at_; }

  Nanos NextEvent(Nanos now) const;
  // Ends the work that is done, and begins what is due.
  void Step(Nanos now);
  // The GPUs have decided who executes: how fast the work goes on follows from that.
  void SetPace();
  void Elapse(Nanos elapsed);

  void StartMeasuring() { figures_ = {.finished_at = figures_.finished_at}; }
  const BurstFigures& figures() const { return figures_; }

 private:
  const Phase& phase() const { return program_.phases[phase_]; }
  // When the phase after this one begins whatever has ended; kNever: when this one has.
  Nanos NextBegins() const;
  bool WorkDone() const;
  void BeginPhase(Nanos now);
  void EndPhase(Nanos now);
  void Arrive(Nanos now);
  void Wish(std::uint64_t memory, Nanos now);
  void BeginNext(Nanos now);
  void BeginBurst(Nanos now);
  void BeginStep(Nanos now);
  void EndStep(Nanos now);
  void EndBurst(Nanos now);
  void Allocate(std::uint64_t bytes, Nanos now);

  const Program program_;
  std::vector<Gpu*> gpus_;
  std::vector<Part> parts_;  // in the order of gpus_
  Random random_;

  Nanos began_ = 0;  // the program
  Nanos arrives_at_ = 0;
  std::size_t phase_ = 0;
  std::uint32_t repeats_left_;
  std::uint32_t to_arrive_ = 0;  // bursts of the phase that have not arrived
  std::uint32_t to_end_ = 0;     // that have not ended
  struct Waiting {
    Nanos arrived = 0;
    const Phase* phase = nullptr;  // of a burst; nullptr: it is to have `memory` from then on
    std::uint64_t memory = 0;
  };
  std::deque<Waiting> waiting_;  // for the burst that is under way
  const Phase* of_ = nullptr;    // phase of the burst that is under way
  bool in_burst_ = false;
  bool has_work_ = false;      // a step is with the GPUs
  Nanos arrived_at_ = 0;       // of the burst that is under way
  Nanos burst_left_ = 0;       // GPU time of it after the present step; kNever
  Nanos phase_at_ = kNever;    // the next phase begins,
  bool due_ = false;           // whether or not the present one has ended
  Nanos arrival_at_ = kNever;  // the next burst arrives
  Nanos step_at_ = kNever;     // the next step begins
  BurstFigures figures_;
};

}  // namespace tessera::plan
