#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "channel/control/control.h"
#include "channel/watchdog/watchdog.h"
#include "server/channels/availability.h"
#include "server/channels/channel_table.h"
#include "server/channels/driver_calls.h"
#include "server/channels/freezer.h"

namespace tessera::server {

// Steers the channels of this machine's GPU processes, as long as that is known to work: hears what channels there are,
// sets slices, and has the freezer. Runs on the event loop's thread.
class ChannelServer {
 public:
  using Source = ChannelTable::Source;

  // `control` null: nothing can be steered; `why` says why. The watchdog may be null.
  ChannelServer(std::unique_ptr<channel::Control> control, std::string why, channel::Watchdog* watchdog);
  ChannelServer(const ChannelServer&) = delete;

  // On which GPUs channels can be steered.
  class Availability& Availability() { return availability_; }
  bool Available(std::uint32_t gpu) const { return availability_.On(gpu); }
  const std::string& Why(std::uint32_t gpu) const { return availability_.Why(gpu); }  // not available; empty: it is

  // A process did something to its objects. New channels of a frozen process are frozen.
  void Observe(pid_t pid, const channel::ObjectEvent& event, Source source, Nanos now);
  // Called when Knows may answer otherwise.
  void OnChange(std::function<void(pid_t, Nanos now)> callback) { on_change_ = std::move(callback); }
  // Whether the process's work on the GPU can be steered.
  bool Knows(pid_t pid, std::uint32_t gpu) { return Available(gpu) && table_.Computes(pid, gpu); }
  const ChannelTable& Table() const { return table_; }

  // A process in a space uses a GPU, or does no more. Until it works, policy does not freeze the space, as long as
  // StartAllowance lasts.
  void EnterSpace(pid_t client, std::uint32_t space);
  // It has made its context.
  void ClientWorks(pid_t client);
  void LeaveSpace(pid_t client);
  // The space has this MPS server now; 0: none.
  void SetServer(std::uint32_t space, pid_t server);

  // The objects of a process that an earlier daemon knew, and whether it had frozen them for an operator.
  void Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events, bool frozen);
  // The process ended, or is in no vGPU any more. In the second case channels that policy froze are thawed now, because
  // no later event would thaw them. An operator's freeze stays, and the process is known until it ends.
  void Forget(pid_t pid);
  // The same once the process has ended, if nobody forgot it before. Looked for once a second.
  void ForgetWhenEnded(pid_t pid) { left_.insert(pid); }
  // Once a second: tells the watchdog that the daemon is alive, and does what could not be done before.
  void Tick();

  class Freezer& Freezer() { return freezer_; }
  Result<void> SetSlice(std::uint32_t gpu, pid_t pid, Nanos slice);

  const DriverCalls& Calls() const { return calls_; }

 private:
  const std::unique_ptr<channel::Control> control_;
  class Availability availability_;
  DriverCalls calls_;
  ChannelTable table_;
  class Freezer freezer_;
  std::set<pid_t> left_;  // in no vGPU, but frozen by an operator, or with objects that are known
  std::function<void(pid_t, Nanos)> on_change_;
};

}  // namespace tessera::server
