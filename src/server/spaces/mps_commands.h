#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/install/own_program.h"
#include "base/result.h"

namespace tessera::server {

// A control daemon of MPS: its program, nvidia-cuda-mps-control or its stand-in, and the directories where its clients
// find it and where it logs.
struct MpsPlace {
  std::string program;  // absolute path
  std::string pipes;
  std::string logs;
  std::optional<uid_t> user;  // as whom it runs; none: as the caller. It serves programs of that user
  std::string gpu;            // UUID of the one GPU that its clients see; empty: all that there are

  // Its program, with these arguments and the environment by which it finds the directories.
  OwnProgram Program(std::vector<std::string> arguments = {}) const;
};

// Commands to the control daemon, as its program takes them from standard input (MPS documentation, "nvidia-cuda-mps-
// control"). Each starts that program and waits for its answer and its end: not for the event loop's thread. Any
// thread. Daemon and program run as the space's user, who can stop them or put others in their place. So answers are
// believed only where they harm nobody but that user, and nobody waits longer than `patience`. Errors: those of
// OwnProgram's Spawn; ESRCH: the program failed, as where no daemon is there; ETIMEDOUT; EPROTO: an answer that makes
// no sense.
class MpsCommands {
 public:
  static constexpr Nanos kPatience = 10 * kSecond;

  explicit MpsCommands(MpsPlace place, Nanos patience = kPatience) : place_(std::move(place)), patience_(patience) {}

  // The text that the daemon answers to one line, 64 KiB of it at most.
  Result<std::string> Tell(const std::string& line) const;

  // The servers that it has now: pids as the daemon says them, which may be those of any process.
  Result<std::vector<pid_t>> Servers() const;
  // Starts a server for this user, if there is none yet.
  Result<void> StartServer(uid_t user) const;
  // Whether a client's fatal fault has ended the server's clients: it takes no others until all have gone.
  Result<bool> HasFaulted(pid_t server) const;
  // Ends a server and its clients' contexts, at once; the next client gets another server.
  Result<void> ShutDown(pid_t server) const;
  // The programs that are connected to the server.
  Result<std::vector<pid_t>> Clients(pid_t server) const;
  // Ends the client's contexts; the server and its other clients go on. The process itself goes on, too, with errors,
  // and is listed as a client until it ends. EBUSY: the daemon refuses. A process that is no client needs no end.
  Result<void> Terminate(pid_t server, pid_t client) const;
  // The daemon ends, and its servers with it: at once, with clients or without.
  Result<void> Quit() const;

 private:
  MpsPlace place_;
  Nanos patience_;
};

}  // namespace tessera::server
