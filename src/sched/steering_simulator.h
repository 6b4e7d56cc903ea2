// A GPU whose channels can be steered, shared by programs in virtual time, for tests of Steering. Deterministic for a
// seed.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sched/steering/steering.h"

namespace tessera::sched {

// How the program of a vGPU uses the GPU. Bursts arrive with exponential gaps, and queue. Each is made of steps of GPU
// time with pauses between them, in which the program looks at its results.
struct Demand {
  Nanos burst = 0;    // GPU time of one; 0: always busy
  Nanos gap = 0;      // between a burst's end and the next one's arrival, on average; or with `open` between arrivals
  bool open = false;  // bursts arrive whether or not the ones before are done
  Nanos step = 0;     // 0: the burst is one
  Nanos least_pause = 0;  // between two steps
  Nanos most_pause = 0;
  Nanos start = 0;  // of the first burst, at most
};

struct SteeredGpu {
  Nanos switch_cost = 140 * kMicrosecond;  // nobody's work runs then
  bool switch_in_slice = false;            // the time of a switch is taken off the slice that follows it
  Nanos freeze = 450 * kMicrosecond;       // a driver call each; one carries vgpus_per_call vGPUs
  Nanos thaw = 260 * kMicrosecond;
  Nanos set_slice = 300 * kMicrosecond;
  Nanos message = 50 * kMicrosecond;   // from a program to the daemon, at most
  Nanos lateness = 50 * kMicrosecond;  // of the daemon's timer, at most
  std::uint64_t seed = 1;
};

class SteeringSimulator {
 public:
  explicit SteeringSimulator(SteeredGpu gpu = {}, SteeringConfig config = {});

  void Add(VgpuId id, Shares shares, Demand demand = {});
  void Update(VgpuId id, Shares shares);
  void Remove(VgpuId id);
  void Hold(VgpuId id, bool held);
  void Run(Nanos duration);

  // Figures are of the time since the last call of this.
  void StartMeasuring();
  double ExecutedPct(VgpuId id) const;  // of the whole time
  double BilledPct(VgpuId id) const;
  double WantedPct(VgpuId id) const;   // of the time it was in a burst, pauses included, or had one waiting
  double WorkPct(VgpuId id) const;     // of the time it had work for the GPU, done or not
  double CallsPerSecond() const;       // to the driver
  int MostCallsInASecond() const;      // of all whole seconds
  int Orders(Order::Kind kind) const;  // so many
  const Steering& steering() const { return steering_; }
  Nanos now() const { return now_; }

  // What must never happen: the same order twice, a deadline in the past, time that stands still.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Program {
    Demand demand;
    Nanos queued = 0;  // bursts that wait for the present one
    bool bursting = false;
    Nanos burst_left = 0;    // GPU time of the burst without the step's
    Nanos work = 0;          // of the step that is on the GPU or waits to be; kNever: always
    Nanos arrival = kNever;  // of the next burst
    Nanos step_at = kNever;  // the next step's begin
    // What it tells the daemon.
    Nanos grace = 0;
    Nanos idle_since = 0;
    Nanos idle_at = kNever;  // will count as idle
    bool said_active = false;
    Nanos told = 0;  // its last message arrives
    // As the driver and the gate have it.
    bool gate_open = true;
    bool frozen = false;
    bool held = false;
    bool on_gpu = false;  // its work passed the gate
    bool stop_ordered = false;
    bool freeze_ordered = false;
    Nanos slice = 2048 * kMicrosecond;  // the driver's default
    Nanos grace_order = 0;
    // Figures.
    Nanos executed = 0, wanted = 0, had_work = 0, billed_before = 0;
    Nanos executed_before = 0;
    bool CanRun() const { return on_gpu && work > 0 && !frozen && !held; }
  };
  // Something that comes to pass at a time: a driver call's effect, or a message.
  struct Effect {
    enum class Kind { kFreeze, kThaw, kSlice, kActive, kIdle } kind;
    VgpuId vgpu;
    Nanos value = 0;
  };

  void Obey();
  void Apply(const Effect& effect);
  void Elapse(Nanos until);
  void Dispatch();
  void StartWork(VgpuId id, Program& program);
  void FinishWork(VgpuId id, Program& program);
  void NextBurst(VgpuId id, Program& program);
  void Arrive(VgpuId id, Program& program);
  void Tell(Program& program, const Effect& message);
  void Submit(Program& program);
  void Call();
  Nanos NextEvent() const;

  Nanos Random(Nanos least, Nanos most);
  Nanos Exponential(Nanos mean);
  double Pct(Nanos time) const;
  void Require(bool holds, const std::string& what);

  const SteeredGpu gpu_;
  const SteeringConfig config_;
  Steering steering_;
  std::mt19937_64 random_;
  std::map<VgpuId, Program> programs_;
  std::multimap<Nanos, Effect> effects_;
  Nanos now_ = 0;
  Nanos alarm_for_ = -1;
  Nanos alarm_ = kNever;
  Nanos driver_free_ = 0;  // its calls are one after the other
  int steps_without_time_ = 0;

  // On the GPU.
  std::optional<VgpuId> runs_;
  VgpuId last_ = 0;
  Nanos switched_ = 0;  // the switch ends
  Nanos slice_end_ = 0;

  Nanos measured_from_ = 0;
  std::vector<Nanos> calls_;
  std::map<Order::Kind, int> order_counts_;
  std::vector<std::string> violations_;
};

}  // namespace tessera::sched
