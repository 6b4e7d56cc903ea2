#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::server {

// Makes this the one daemon of a run directory for as long as the result lives. EBUSY names the other's pid. Waits, by
// `wait` between two tries and for 2 s at most, while a daemon that is gone still has the lock.
Result<UniqueFd> LockRunDir(const std::string& run_dir, const std::function<void()>& wait = [] { usleep(1000); });

// Waits until the watchdog of an earlier daemon in `run_dir` has ended: what it thaws must not be in the middle of a
// move that this daemon began. It sees by the touched lock that this daemon will thaw those that cannot go on yet. The
// lock is for this daemon's watchdog to keep. EBUSY after 15 s.
Result<UniqueFd> LockWatchdog(const std::string& run_dir);

// The group that a daemon of root lets use api.sock, if there is one of that name; none for other users' daemons, which
// could not give a socket to it. Asks the name service.
std::optional<gid_t> OperatorsGroup(const std::string& name);
// A socket at `path`, with this mode, in place of one that a dead daemon left.
Result<UniqueFd> ListenStream(const std::string& path, mode_t mode);
Result<UniqueFd> BindDatagrams(const std::string& path, mode_t mode);
// A socket in `run_dir` under a second name, in a folder with nothing else in it: what containers are given, who must
// not see api.sock, and in which they find the socket of the next daemon. The folder itself stays when a daemon ends,
// or they would keep looking into one that nobody else has.
Result<void> LinkForContainers(const std::string& run_dir, const std::string& name);

// The daemon's sockets: handed over by the service manager (sd_listen_fds(3), names "client" and "api"), or bound here.
class Listeners {
 public:
  // `group` may use api.sock, and all users if `everybody`; without them it is for the daemon's user alone. Needs
  // LockRunDir: what lies at the paths is taken for left over from a dead daemon.
  static Result<Listeners> Open(const std::string& run_dir, std::optional<gid_t> group = {}, bool everybody = false);
  Listeners(Listeners&& other) noexcept;
  ~Listeners();

  UniqueFd client;  // SOCK_SEQPACKET, everybody; also as <run-dir>/programs/client.sock, for containers
  UniqueFd api;     // SOCK_STREAM

 private:
  Listeners() = default;
  Result<void> TakeActivated();

  std::string client_path_, linked_path_, api_path_;  // to remove at the end; empty when they are not ours
};

}  // namespace tessera::server
