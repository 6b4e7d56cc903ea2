#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/model/costs.h"
#include "plan/model/random.h"
#include "plan/model/violations.h"
#include "plan/time/late_timer.h"
#include "plan/time/time_model.h"
#include "sched/tokens/token_scheduler.h"

namespace tessera::plan {

// Time divided by the token scheduler: the gates of one vGPU are open, or of several of one space that run at the same
// time, each on its SMs; those of the others are closed. Work in flight when a gate closes runs to its end; the GPU
// divides its time between that and the next holder's if both run.
class TokenTime : public TimeModel {
 public:
  TokenTime(const GpuSpec& spec, std::uint64_t seed, Violations& violations);

  Result<void> Add(Part& part, Nanos now) override;
  Result<void> Update(Part& part, const sched::Shares& shares, Nanos now) override;
  void Remove(Part& part, Nanos now) override;
  void Submits(Part& part, Nanos now) override;
  void Done(Part& part, Nanos now) override;
  void Hold(Part& part, Nanos now) override;
  bool Still(const Part& part) const override;
  bool Active(const Part& part) const override;
  Nanos NextEvent() const override;
  void Step(Nanos now) override;
  void Settle(Nanos now) override;
  std::optional<sched::Usage> Billed(const Part& part, Nanos now) const override;
  bool Switching(Nanos now) const override;
  void Count(GpuFigures& figures) const override;
  void Reset() override { switches_ = decisions_ = 0; }

 private:
  struct Client {
    enum class State {
      kIdle,       // has no work, and said so
      kHeldBack,   // has work, and may not ask for the token as its memory is not there
      kWaits,      // asked for the token
      kRuns,       // has it
      kLooksIdle,  // has it and no work, and will say so at `at`
      kDrains,     // it was revoked, work is in flight
      kStraggles,  // the same, and another vGPU has the token
      kLeaves,     // its memory is to go: the token is given back, work is in flight
      kSyncs,      // looks at its results until `at`, then asks for the token
    };
    Part* part = nullptr;
    State state = State::kIdle;
    Nanos at = kNever;
    Nanos opens_at = 0;    // kRuns: its work begins
    Nanos done_at = 0;     // kLooksIdle
    Nanos revoked_at = 0;  // kDrains, kStraggles
  };
  using State = Client::State;

  void Want(Client& client, Nanos now);
  void Drained(Client& client, Nanos now);
  void SayIdle(Client& client, Nanos now, Nanos since);
  void Obey(Nanos now);
  void ObeyGrant(const sched::Decision& decision, Client& client, Nanos now);
  void ObeyRevoke(Client& client, Nanos now);
  void MakeStraggle(const sched::Decision& grant, const Client& client, Nanos now);
  // Those that run at the same time are of one entity: a vGPU alone, or a space.
  static std::pair<std::uint32_t, sched::VgpuId> EntityOf(const Part& part);
  // Work that its closing gate leaves in flight.
  Nanos CloseGate(Part& part);

  const TokenCosts costs_;
  const sched::Config config_;
  sched::TokenScheduler scheduler_;
  Random random_;
  Violations& violations_;
  LateTimer timer_;
  std::map<sched::VgpuId, Client> clients_;
  std::set<sched::VgpuId> holders_;
  std::optional<sched::VgpuId> last_;                               // was given the token last
  std::vector<std::pair<std::uint32_t, sched::VgpuId>> executing_;  // entities; of the last Settle
  Nanos now_ = 0;
  std::int64_t switches_ = 0;
  std::int64_t decisions_ = 0;
};

}  // namespace tessera::plan
