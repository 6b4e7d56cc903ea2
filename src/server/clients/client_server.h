#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "server/clients/session.h"
#include "server/config/config.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/acceptor.h"
#include "server/loop/event_loop.h"
#include "server/memory/exports.h"

namespace tessera::server {

// Serves client.sock: accepts programs, keeps their sessions, and ends a session when its socket closes or its process
// dies. Both are watched, because a forked child may hold a dead program's socket open.
class ClientServer {
 public:
  // `listener` listens on client.sock. Everything that is given outlives the server.
  static Result<std::unique_ptr<ClientServer>> Start(EventLoop& loop, UniqueFd listener,
                                                     const ClientServices& services);
  ~ClientServer();

  std::size_t Sessions() const { return sessions_.size(); }
  // Called after the last session is gone.
  void OnEmpty(std::function<void()> callback) { on_empty_ = std::move(callback); }

 private:
  struct Client {
    UserBounds::Claim claim;
    std::unique_ptr<Session> session;
    UniqueFd process_fd;  // pidfd; empty: of another PID namespace, where the kernel gives none
    EventLoop::Watch socket_watch, process_watch;
  };

  ClientServer(EventLoop& loop, const ClientServices& services);
  static void TurnAway(UniqueFd socket, const Error& why);
  void Begin(UniqueFd socket);
  Result<UserBounds::Claim> Admit(const Caller& caller) const;
  Result<void> WatchClient(Client& client, std::uint64_t id);
  void Act(std::uint64_t id, void (*act)(Session&));
  void ReadPending(std::optional<VgpuId> vgpu, Nanos now);
  void Reap();

  EventLoop& loop_;
  const ClientServices services_;
  Exports exports_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unordered_map<std::uint64_t, Client> sessions_;
  std::uint64_t last_id_ = 0;
  bool reaping_ = false;  // Reap is posted
  std::function<void()> on_empty_;
};

}  // namespace tessera::server
