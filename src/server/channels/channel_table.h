#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "channel/control/control.h"
#include "channel/control/process_objects.h"
#include "server/channels/start_allowance.h"

namespace tessera::server {

// Which channels each GPU process of this machine has, as the shim, the kernel gate and the watch tell. Runs on the
// event loop's thread.
class ChannelTable {
 public:
  using Source = channel::ProcessObjects::Source;

  // The control outlives the table. Null: no GPU's objects can be told apart, and no process has channels.
  explicit ChannelTable(channel::Control* control);

  // Whether the process's channels may be others now.
  bool Apply(pid_t pid, const channel::ObjectEvent& event, Source source);
  void Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events);
  void Erase(pid_t pid) { processes_.erase(pid); }

  bool Alive(pid_t pid) const;
  // The process is older than this daemon: one before may have frozen it.
  bool IsOlder(pid_t pid);

  // The channels that the process is said to have on a GPU; of an MPS server, those of its clients, too.
  std::vector<channel::Group> Groups(pid_t pid, std::uint32_t gpu) const;
  // The same for a call to the driver: of its clients, what they have been proved to have. May cost calls itself.
  channel::Target TargetOn(pid_t pid, std::uint32_t gpu);
  // All that it is said to have, on all GPUs.
  const channel::ObjectTable& Objects(pid_t pid) const;
  // Whether what is said is true. The answer may cost calls to the driver.
  bool Verify(pid_t pid);
  // Whether the process can be steered on the GPU: it has channels that compute, and they are its own.
  bool Computes(pid_t pid, std::uint32_t gpu);

  // Spaces. A process in one is a client of the space's MPS server, whose channel group has the channels of all: no
  // client can be steered by itself. The server is steered with the channels of its clients.
  // A client starts: it makes its context, until it is said to work.
  void EnterSpace(pid_t client, std::uint32_t space, Nanos now);
  // False: that was known, or it is in no space.
  bool ClientWorks(pid_t client, Nanos now);
  void LeaveSpace(pid_t client, Nanos now);
  bool InSpace(pid_t pid) const { return spaces_.contains(pid); }
  // Whether it is a client of an MPS server, of a space or of its user's own: only its gate can stop it by itself.
  bool IsClient(pid_t pid, std::uint32_t gpu) const;
  void SetServer(std::uint32_t space, pid_t server);  // 0: it has none now
  pid_t ServerOf(std::uint32_t space) const;          // 0: none
  // The MPS server whose client the process is; 0: it is none, or the server is not known.
  pid_t ServerOfClient(pid_t client) const;
  // Whether the server goes on, because clients of it start.
  bool Spared(pid_t server, Nanos now) const;

  // Whether that is the GPU which the driver's objects name by this instance.
  bool IsDevice(std::uint32_t gpu, std::uint32_t instance) const;

 private:
  struct Entry {
    UniqueFd fd;  // pidfd
    channel::ProcessObjects objects;
    bool older = false;
    std::set<std::uint32_t> found_on;  // GPUs on which a control that knows processes found it
  };
  struct Client {
    std::uint32_t space = 0;
    bool starts = true;
  };
  Entry& At(pid_t pid);
  std::vector<channel::Group> OwnGroups(pid_t pid, std::uint32_t gpu) const;
  std::vector<pid_t> ClientsOf(pid_t server) const;
  void AddClient(pid_t client, std::uint32_t gpu, std::vector<channel::Group>& groups) const;

  channel::Control* const control_;
  const std::uint64_t started_;  // this daemon, as ProcessStart tells
  std::map<pid_t, Entry> processes_;
  std::map<pid_t, Client> spaces_;                  // of clients
  std::map<std::uint32_t, pid_t> servers_;          // by space
  std::map<std::uint32_t, StartAllowance> starts_;  // likewise
};

}  // namespace tessera::server
