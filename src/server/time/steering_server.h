#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "sched/steering/steering.h"
#include "server/channels/channel_server.h"
#include "server/time/time_server.h"

namespace tessera::server {

struct SteeringState;

// Executes the orders of one GPU's Steering on the channels of the processes, and tells it what the processes of each
// vGPU do together. The gates stay open: a process submits when it likes, and its Wants is news. Only one that has
// nothing queued is kept out by its gate, which costs no call to the driver.
//
// A process whose channels are not all known is stopped by its own gate (GateRecord::Stop), which is open only in
// answer to a Wants, and bounded. It keeps the driver's slice. What it says of its work moves others only as far as
// that is believed.
class SteeringServer : public TimeServer {
 public:
  // The channels outlive the server. `in_flight` bounds what a process may have queued whose gate must stop it.
  SteeringServer(std::uint32_t gpu, const sched::SteeringConfig& config, Nanos in_flight, ChannelServer& channels);
  ~SteeringServer() override;

  Result<void> Set(Id vgpu, const sched::Shares& shares, Nanos now) override;
  void Remove(Id vgpu, Nanos now) override;

  void Join(Id vgpu, GateRecord& gate, Nanos now) override;
  void Leave(GateRecord& gate, Nanos now) override;
  void Abandon(Nanos now) override;

  void Wants(GateRecord& gate, Nanos now, bool waits) override;
  void Idle(GateRecord& gate, Nanos now, Nanos since) override;
  void Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) override;
  void Hold(GateRecord& gate, bool held, Nanos now) override;

  void ChannelsChanged(GateRecord& gate, GateRecord::Stop stop, Nanos now) override;
  void SetAside(const std::set<Id>& vgpus, Nanos now) override;

  void Advance(Nanos now) override;
  Deadline NextDeadline() const override;

  State StateOf(Id vgpu) const override;
  sched::Usage UsageOf(Id vgpu, Nanos now) const override { return steering_.UsageOf(vgpu, now); }
  double PartOf(Id vgpu) const { return steering_.PartOf(vgpu); }

 private:
  void Execute(Nanos now);
  void Stop(const std::vector<SteeringState*>& states, Nanos now);
  void Go(const std::vector<SteeringState*>& states, Nanos now);
  std::vector<pid_t> FrozenIn(const SteeringState& steered, pid_t pid = 0) const;
  void Thaw(const std::vector<pid_t>& pids);
  void Report(SteeringState& steered, Nanos now, Nanos idle_since);
  void Runs(GateRecord& gate, const SteeringState& steered, Nanos now);
  void ApplySlices(Nanos now);
  void Free(GateRecord& gate, const SteeringState& steered, SharedPage::Bell bell);
  void ChangeStop(GateRecord& gate, GateRecord::Stop stop, Nanos now);
  void WantsGate(GateRecord& gate, SteeringState& steered, Nanos now, bool waits);
  void FreezeNow(const GateRecord& gate);

  const std::uint32_t gpu_;
  const sched::SteeringConfig config_;
  const Nanos in_flight_;
  sched::Steering steering_;
  ChannelServer& channels_;
  std::map<Id, std::unique_ptr<SteeringState>> states_;
  bool slices_due_ = false;
  bool slices_fail_ = false;  // said once
  Nanos slices_at_ = 0;       // no sooner
};

}  // namespace tessera::server
