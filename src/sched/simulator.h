// A GPU shared by programs in virtual time, for tests of the token scheduler. Deterministic for a seed.
#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sched/tokens/token_scheduler.h"

namespace tessera::sched {

// How the programs of one vGPU use the GPU.
struct Workload {
  Nanos overrun = 0;  // work in flight when the gate closes, at most
  Nanos burst = 0;    // GPU time of one burst; 0: always busy
  Nanos think = 0;    // between the end of a burst and the next, on average
  Nanos start = 0;    // when the first burst arrives
  Nanos sync = 0;     // between a drain and the next wish: the program waited for its results
};

struct Machine {
  Nanos hand_over = 0;   // from a grant to the first work on the GPU, if another vGPU ran last
  Nanos idle_grace = 0;  // how long a client looks before it says that it is idle
  Nanos lateness = 0;    // of the daemon's timer, at most
  std::uint64_t seed = 1;
};

class Simulator {
 public:
  explicit Simulator(Machine machine = {}, Config config = {});

  // As the scheduler's; a failure is a violation.
  void Add(VgpuId id, Shares shares, Workload workload = {});
  void Update(VgpuId id, Shares shares);
  void Remove(VgpuId id);

  void Run(Nanos duration);

  // Figures are of the time since the last call of this.
  void StartMeasuring();
  double BilledPct(VgpuId id) const;
  double ExecutedPct(VgpuId id) const;  // work on the GPU, without hand-overs
  Nanos LongestWait(VgpuId id) const;   // from a wish to the first work
  double SwitchesPerSecond() const { return PerSecond(switches_); }
  double DecisionsPerSecond() const { return PerSecond(decisions_); }

  double WindowPct(VgpuId id) const { return scheduler_.UsageOf(id, now_).window_pct; }
  Nanos now() const { return now_; }

  // What the scheduler did that it must never do: two holders, a grant to nobody's wish, an idle GPU while somebody
  // without a limit waits, a deadline in the past, time that stands still.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  enum class State { kThinks, kWaits, kRuns, kLooksIdle, kDrains, kStraggles };
  struct Program {
    Shares shares;
    Workload workload;
    State state = State::kThinks;
    Nanos next = 0;        // when its next event comes
    Nanos left = 0;        // GPU time that the burst still needs; kNever: always busy
    Nanos wished = 0;      // kWaits
    Nanos open_at = 0;     // kRuns: since when its work executes
    Nanos revoked = 0;     // kDrains, kStraggles
    Nanos done_at = 0;     // kLooksIdle
    Nanos next_burst = 0;  // kLooksIdle: when the next arrives
    // Figures.
    Nanos executed = 0;
    Nanos billed_before = 0;
    Nanos longest_wait = 0;
  };

  void Step(VgpuId id, Program& program);
  void Wait(VgpuId id, Program& program);
  void StartRunning(Program& program, Nanos open_at);
  void FinishBurst(Program& program);
  void StopLookingIdle(VgpuId id, Program& program);
  void FinishDrain(VgpuId id, Program& program);
  void Obey();
  void ObeyGrant(const Decision& decision, Program& program);
  void ObeyRevoke(VgpuId id, Program& program);
  void Execute(Program& program, Nanos until);

  Nanos Random(Nanos most);
  Nanos Think(const Program& program) { return program.workload.think / 2 + Random(program.workload.think); }
  double Pct(Nanos time) const;
  double PerSecond(std::int64_t count) const;
  void Require(bool holds, const std::string& what);

  const Machine machine_;
  const Config config_;
  TokenScheduler scheduler_;
  std::mt19937_64 random_;
  std::map<VgpuId, Program> programs_;
  std::optional<VgpuId> holder_;
  std::optional<VgpuId> last_;  // whose work ran last
  Nanos now_ = 0;
  Nanos alarm_for_ = -1;  // the deadline for which the timer is set
  Nanos alarm_ = kNever;  // when it will ring
  int steps_without_time_ = 0;
  Nanos measured_from_ = 0;
  std::int64_t decisions_ = 0;
  std::int64_t switches_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace tessera::sched
