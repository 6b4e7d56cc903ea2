#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "sched/tokens/token_scheduler.h"
#include "server/time/time_server.h"

namespace tessera::server {

// Executes the decisions of one GPU's token scheduler on the gates of the processes, and tells the scheduler what the
// processes of each vGPU do together: a vGPU wants when one of them does, is idle or released when all are.
//
// An open order is always the answer to a Wants; who sent none stays closed. So a process that parks itself while an
// order is on its way cannot take that order for a later permission.
class TokenServer : public TimeServer {
 public:
  // `in_flight` bounds what a process may have queued while others wait.
  TokenServer(const sched::Config& config, Nanos in_flight);
  ~TokenServer() override;

  Result<void> Set(Id vgpu, const sched::Shares& shares, Nanos now) override;
  void Remove(Id vgpu, Nanos now) override;

  void Join(Id vgpu, GateRecord& gate, Nanos now) override;
  void Leave(GateRecord& gate, Nanos now) override;
  void Abandon(Nanos now) override;

  void Wants(GateRecord& gate, Nanos now, bool waits = true) override;
  void Idle(GateRecord& gate, Nanos now, Nanos since) override;
  void Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) override;
  void Hold(GateRecord& gate, bool held, Nanos now) override;

  void Advance(Nanos now) override;
  Deadline NextDeadline() const override { return {.at = scheduler_.NextDeadline()}; }

  State StateOf(Id vgpu) const override;
  sched::Usage UsageOf(Id vgpu, Nanos now) const override { return scheduler_.UsageOf(vgpu, now); }

 private:
  void Open(GateRecord& gate, Nanos now);
  void OpenNext(TokenState& token, Nanos now);
  void Stopped(GateRecord& gate, Nanos now, Nanos at);
  void Grant(TokenState& token, const sched::Decision& decision, Nanos now);
  void Revoke(TokenState& token, Nanos now);
  void Settle(TokenState& token, Nanos now);
  void Execute(Nanos now);

  sched::TokenScheduler scheduler_;
  const Nanos in_flight_;
  std::unordered_map<Id, std::unique_ptr<TokenState>> tokens_;
};

}  // namespace tessera::server
