#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "channel/watchdog/watchdog.h"
#include "server/access/authority.h"
#include "server/channels/channel_server.h"
#include "server/channels/steering_check.h"
#include "server/checkpoint/suspensions.h"
#include "server/clients/client_server.h"
#include "server/clients/guest_server.h"
#include "server/clients/kernel_gate.h"
#include "server/clients/user_bounds.h"
#include "server/config/config.h"
#include "server/containers/container_gate.h"
#include "server/daemon/declarations.h"
#include "server/daemon/device_meter.h"
#include "server/daemon/error_trace.h"
#include "server/daemon/request_socket.h"
#include "server/devices/fault_watch.h"
#include "server/devices/gpu_driver.h"
#include "server/draining/vgpu_moves.h"
#include "server/gpu/gang_server.h"
#include "server/gpu/gpu_server.h"
#include "server/gpu/peers.h"
#include "server/gpu/quota_keeper.h"
#include "server/gpu/vgpu_table.h"
#include "server/handover/stray_slots.h"
#include "server/idle/idle_suspension.h"
#include "server/loop/event_loop.h"
#include "server/migration/memory_giver.h"
#include "server/spaces/client_files.h"
#include "server/spaces/own_sms.h"
#include "server/spaces/space_table.h"
#include "server/state/state_files.h"

namespace tessera::server {

struct DaemonTraits {
  bool soft = false;      // its GPUs are soft ones
  bool embedded = false;  // a program started it; it ends with the last one
};

// The daemon without its faces: GPU servers, vGPUs, programs, state file. Runs on the event loop's thread.
class Daemon {
 public:
  struct Setup {
    Config config;
    std::optional<gid_t> operators;  // the group of operators, where there is one
    std::string run_dir;             // where state.json is
    std::string state_dir;           // where vgpus.json is; empty: in run_dir
    UniqueFd client_listener;
    std::unique_ptr<channel::Control> control;  // null: channels cannot be steered, for this reason:
    std::string why_no_control;
    std::unique_ptr<channel::Watchdog> watchdog;  // may be null
    bool watch = false;                           // see the programs that nobody manages
    UserBounds::Most user_bounds = UserBounds::Usual();
    bool exit_when_idle = false;  // end the loop soon after the last program and the last vGPU owner are gone
  };

  // Finds the GPUs, brings back the vGPUs of state.json and vgpus.json, makes those that the configuration declares,
  // and begins to serve programs. The loop outlives the daemon.
  static Result<std::unique_ptr<Daemon>> Start(EventLoop& loop, std::unique_ptr<GpuDriver> driver, Setup setup);
  ~Daemon();

  // Any thread.
  const Authority& Access() const { return authority_; }
  VGpuTable& VGpus() { return *table_; }
  // Another number whenever a vGPU was made, removed or set. Any thread.
  std::uint64_t VGpuChanges() const { return vgpu_changes_.load(std::memory_order_acquire); }
  const QuotaKeeper& Quotas() const { return *quotas_; }
  GuestServer& Guests() { return *guests_; }
  ChannelServer& Channels() { return channels_; }
  const VGpuTable::Gpus& Gpus() const { return gpus_; }
  // Takes what of a configuration that was read again can take effect at once, and says what it changes; programs go
  // on.
  Result<std::vector<ConfigChange>> Reload(const Config& read, Nanos now);
  DaemonTraits Traits() const { return {.soft = driver_->IsSoft(), .embedded = setup_.exit_when_idle}; }
  const std::string& RunDir() const { return setup_.run_dir; }

  Suspensions& Suspended() { return *suspensions_; }
  VGpuMoves& Moves() { return *moves_; }
  bool RebalancesItself() const { return setup_.config.rebalance_auto; }
  DeviceMeter& Meter() { return *meter_; }
  SpaceTable& Spaces() { return *spaces_; }
  // A space was made to last, or is not kept any more.
  void SpacesChanged() { VGpusChanged(); }

  // Any thread but the loop's. Waits until what was changed before is in the files (see StateSaver::Await).
  void AwaitSaved() { files_.Await(); }

  // Somebody uses the daemon: an embedded one stays for a while longer.
  void StayAwhile(Nanos now);

  static constexpr Nanos kLinger = 2 * kSecond;
  static constexpr Nanos kFirstLinger = 10 * kSecond;  // until whoever started an embedded daemon has found it

 private:
  Daemon(EventLoop& loop, std::unique_ptr<GpuDriver> driver, Setup setup);
  Result<void> FindGpus();
  GpuServer::Hooks HooksOfGpu();
  void RestoreVGpus(Nanos now);
  std::string State() const;
  std::string LastingVGpus() const;
  void VGpusChanged();
  std::vector<Error> DeclareVGpus(Nanos now);
  void ServePrograms();
  void EndIfIdle(Nanos now);
  void CheckSteering();
  void SteeringChecked(Nanos now);
  void Beat(Nanos now);
  void NoteFault(const GpuFault& fault, Nanos now);

  EventLoop& loop_;
  const std::unique_ptr<GpuDriver> driver_;
  Setup setup_;
  const Authority authority_;
  ChannelServer channels_;
  Peers peers_;
  GangServer gangs_;
  std::unique_ptr<SpaceTable> spaces_;
  ClientFiles client_files_;
  LeftMemory left_memory_;
  VGpuTable::Gpus gpus_;
  std::unique_ptr<DeviceMeter> meter_;
  std::unique_ptr<FaultWatch> faults_;
  std::unique_ptr<VGpuTable> table_;
  std::unique_ptr<QuotaKeeper> quotas_;
  MemoryGiver giver_;
  std::unique_ptr<SuspendedFiles> suspended_files_;
  std::unique_ptr<Suspensions> suspensions_;
  std::unique_ptr<VGpuMoves> moves_;
  std::unique_ptr<StraySlots> stray_slots_;
  std::unique_ptr<IdleSuspension> idle_suspension_;
  std::atomic<std::uint64_t> vgpu_changes_{0};
  UserBounds bounds_;  // before all that has a claim
  std::unique_ptr<GuestServer> guests_;
  std::unique_ptr<KernelGate> kernel_gate_;
  std::unique_ptr<RequestSocket> requests_;        // null: as the next
  std::unique_ptr<ContainerGate> container_gate_;  // null: its socket could not be made
  std::unique_ptr<ClientServer> clients_;
  std::unique_ptr<Declarations> declarations_;
  EventLoop::Timer linger_timer_;
  Nanos linger_until_ = 0;
  EventLoop::Timer beat_timer_;
  SmOrders sm_orders_;
  std::vector<SavedProcess> saved_processes_;  // of the daemon before this one, until channels can be steered
  SteeringCheck steering_check_;
  ErrorTrace error_trace_;
  StateFiles files_;
  bool ending_ = false;
  bool restoring_ = false;  // the vGPUs of the daemon before
};

}  // namespace tessera::server
