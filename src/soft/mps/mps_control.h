#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "soft/mps/mps_log.h"
#include "soft/mps/mps_server_process.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// The stand-in for nvidia-cuda-mps-control: starts MPS servers for clients and answers commands. It has one server at
// a time; while one ends, newcomers are told to try again. Clients may be of any user, commands come from its own user
// or from root. Of one thread.
class MpsControl {
 public:
  // `percentage`: the ceiling of clients, in (0, 100]. Logs go to control.log and server.log in `logs`.
  MpsControl(SharedState& state, UniqueFd listener, double percentage, const std::string& logs);

  // Serves until a `quit` has been carried out, or the listener's path is gone: unlike NVIDIA's, so that a test which
  // removes its folder leaves nothing behind.
  void Run();

 private:
  using Words = std::vector<std::string>;
  struct Server {
    MpsServerProcess process;
    bool draining = false;
    bool faulted = false;  // the log says so
  };
  struct Command {
    const char* name;
    const char* arguments;  // as the usage shows them
    std::size_t least, most;
    std::string (MpsControl::*answer)(const Words& arguments);
  };
  static const Command kCommands[];

  bool Reachable() const;
  void Accept();
  // False if the connection has ended.
  bool Serve(int connection);
  std::string Connect(const ucred& client);
  std::string Answer(const std::string& line);
  // Ends servers that shall end, forgets those that have, and tells the log of faults.
  void Tend();
  void Watch(Server& server);

  // The server that takes clients of `user`, started if there is none. EAGAIN while another one ends.
  Result<Server*> ServerFor(uid_t user);
  Result<Server*> Find(const std::string& pid);
  void Drain(Server& server);

  std::string StartServer(const Words& arguments);
  std::string ServerList(const Words& arguments);
  std::string ServerStatus(const Words& arguments);
  std::string ClientList(const Words& arguments);
  std::string DeviceClientList(const Words& arguments);
  std::string SetDefaultPercentage(const Words& arguments);
  std::string DefaultPercentage(const Words& arguments);
  std::string SetPercentage(const Words& arguments);
  std::string Percentage(const Words& arguments);
  std::string TerminateClient(const Words& arguments);
  std::string ShutdownServer(const Words& arguments);
  std::string Quit(const Words& arguments);

  SharedState& state_;
  const UniqueFd listener_;
  double percentage_;
  const MpsLog log_;
  const MpsLog server_log_;
  std::vector<UniqueFd> connections_;
  std::vector<Server> servers_;
  bool quitting_ = false;
  std::optional<Nanos> quit_by_;  // MonotonicNow: servers end then, clients or not
};

// A percentage in (0, 100], or nothing.
std::optional<double> ParseMpsPercentage(const std::string& text);

}  // namespace tessera::soft
