#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "sched/shares/shares.h"
#include "server/channels/channel_server.h"
#include "server/time/steering_server.h"
#include "server/time/time_server.h"
#include "server/time/token_server.h"

namespace tessera::server {

// Divides the time of a GPU by its channels, and that of each space by tokens. To the SteeringServer a space is one
// more vGPU, whose only process is the space's MPS server: by the channels of that server and its clients the space has
// its slice, its class and its freezes. In the space a TokenServer opens the gates of the vGPUs that may run now. While
// the space is off the GPU its tokens' time stands still; while it has a part of the GPU's time by its slice, requests
// and limits count so much more inside, because they are parts of the GPU's time. Runs on the loop's thread.
class SpaceServer : public TimeServer {
 public:
  // The channels outlive the server, and know the MPS servers. `tokens` and `in_flight` as for TokenServer, of each
  // space.
  SpaceServer(std::unique_ptr<SteeringServer> steering, const sched::Config& tokens, Nanos in_flight,
              const ChannelServer& channels);
  ~SpaceServer() override;

  // Errors: those of the SteeringServer and of TokenServer, and of SharedPage::Create for a space's first vGPU.
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
  void LeadersChanged(Nanos now) override;

  void Advance(Nanos now) override;
  Deadline NextDeadline() const override;
  void Seal() override;

  State StateOf(Id vgpu) const override;
  sched::Usage UsageOf(Id vgpu, Nanos now) const override;
  SpaceTime TimeOf(std::uint32_t space, Nanos now) const override;

 private:
  struct Space;
  struct Place {
    Space* space;
    Id vgpu;
  };

  Space* SpaceOf(Id vgpu) const;
  Space* SpaceOf(const GateRecord& gate) const;
  Result<void> SetIn(Space& space, Id vgpu, const sched::Shares& shares, Nanos now);
  void FollowLeader(Space& space, Nanos now);
  bool AnyWorks(const Space& space) const;
  void Settle(Space& space, Nanos now, Nanos since);
  void Mind(Nanos now);
  void Rescale(Space& space, Nanos now);

  const std::unique_ptr<SteeringServer> steering_;
  const sched::Config config_;
  const Nanos in_flight_;
  const ChannelServer& channels_;
  std::map<std::uint32_t, std::unique_ptr<Space>> spaces_;  // by number
  std::unordered_map<const GateRecord*, Place> gates_;      // of processes in spaces
};

}  // namespace tessera::server
