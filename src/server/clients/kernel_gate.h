#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "channel/rm/object_event.h"
#include "guard/record/tree_record.h"
#include "guard/supervisor/supervisor.h"
#include "server/access/authority.h"
#include "server/clients/gate_holder_link.h"
#include "server/clients/guest_server.h"
#include "server/clients/user_bounds.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Serves the programs under the kernel gate, each with all that it starts: charges memory that the gate is asked for to
// their vGPUs, and hears what they do to the driver's objects. Each program has a supervisor with a thread of its own,
// which comes in through the loop; all else runs on the loop's thread.
//
// A gate holder keeps their listeners and records, so that the next daemon goes on where this one ends.
class KernelGate {
 public:
  struct Setup {
    std::string holder_path;  // of the gate holder's socket
    Nanos grace = 0;          // how long calls wait for the next daemon
    bool soft = false;        // the programs' driver is guard::SoftBoundary
  };
  // Everything that is given outlives the object.
  KernelGate(EventLoop& loop, const Authority& authority, VGpuTable& table, VGpuTable::Gpus& gpus,
             ChannelServer& channels, GuestServer& guests, UserBounds& bounds, const Setup& setup)
      : loop_(loop),
        authority_(authority),
        table_(table),
        gpus_(gpus),
        channels_(channels),
        guests_(guests),
        bounds_(bounds),
        soft_(setup.soft),
        holder_(loop, setup.holder_path, setup.grace, [this] { HoldAll(); }),
        hold_timer_(loop, [this] { HoldRest(); }) {}

  // Goes on with the programs that a daemon before this one served, and charges what they have. The vGPUs are there
  // already, and no program is served yet.
  void TakeOver(Nanos now);

  // Serves the seccomp listener of a program that is about to start in these vGPUs, whose names `program` need not
  // have. EMFILE: its user has as many programs as one may have.
  Result<void> Supervise(UniqueFd listener, std::vector<VgpuId> vgpus, guard::TreeRecord::Program program);

  // The vGPU is about to end: no program is put into another one of its name by the next daemon.
  void Abandon(const VGpu& vgpu);

  bool Any() const { return !trees_.empty(); }

 private:
  struct Tree {  // a program and all that it starts
    UserBounds::Claim claim;
    std::vector<VgpuId> vgpus;
    UniqueFd listener, record;  // for another holder, should the first one end
    std::unique_ptr<guard::Supervisor> supervisor;
    bool held = false;  // the holder has both
  };

  Result<void> Serve(std::uint64_t id, UniqueFd listener, guard::TreeRecord record, std::vector<VgpuId> vgpus,
                     UserBounds::Claim claim);
  Result<void> Restore(std::uint64_t id, UniqueFd listener, UniqueFd memory, Nanos now);
  std::vector<VgpuId> Find(const guard::TreeRecord::Program& program) const;
  void RestoreObjects(const guard::TreeRecord& record, const std::vector<VgpuId>& vgpus, Nanos now);
  void RestoreCharge(pid_t pid, std::uint32_t device, std::uint64_t bytes, const std::vector<VgpuId>& vgpus, Nanos now);
  void HoldAll();
  void HoldRest();
  std::string NamesOf(const std::vector<VgpuId>& vgpus, VgpuId without = 0) const;
  guard::SupervisorHooks HooksFor(std::uint64_t tree_id, uid_t uid);
  void OnObject(const std::vector<VgpuId>& vgpus, pid_t pid, const channel::ObjectEvent& event, Nanos now);
  bool OnCharge(std::uint64_t tree_id, pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now);
  void OnGiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now);
  void OnEnded(std::uint64_t tree_id, Nanos now);
  VGpu* PayerOf(pid_t pid, std::uint32_t device, const std::vector<VgpuId>& vgpus) const;

  EventLoop& loop_;
  const Authority& authority_;
  VGpuTable& table_;
  VGpuTable::Gpus& gpus_;
  ChannelServer& channels_;
  GuestServer& guests_;
  UserBounds& bounds_;
  const bool soft_;
  GateHolderLink holder_;
  EventLoop::Timer hold_timer_;  // to give it what it could not take
  std::uint64_t last_tree_ = 0;
  std::map<std::uint64_t, Tree> trees_;
};

}  // namespace tessera::server
