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
// control"). Each starts that program and waits for its answer, ten seconds at most: not for the event loop's thread.
// Any thread. ESRCH: no daemon is there; ETIMEDOUT; EPROTO: an answer that makes no sense.
class MpsCommands {
 public:
  explicit MpsCommands(MpsPlace place) : place_(std::move(place)) {}

  // The text that the daemon answers to one line.
  Result<std::string> Tell(const std::string& line) const;

  Result<std::vector<pid_t>> Servers() const;
  // Starts a server for this user, if there is none yet.
  Result<void> StartServer(uid_t user) const;
  // Whether a client's fatal fault has ended the server's clients: it takes no others until all have gone.
  Result<bool> HasFaulted(pid_t server) const;
  // Ends a server and its clients' contexts, at once; the next client gets another server.
  Result<void> ShutDown(pid_t server) const;
  Result<std::vector<pid_t>> Clients(pid_t server) const;
  // Ends the client's contexts; the server and its other clients go on. The process itself goes on, too, with errors.
  Result<void> Terminate(pid_t server, pid_t client) const;
  // The daemon ends, and its servers with it: at once, with clients or without.
  Result<void> Quit() const;

 private:
  MpsPlace place_;
};

}  // namespace tessera::server
