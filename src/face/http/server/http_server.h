#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "server/daemon/control.h"
#include "server/loop/acceptor.h"

namespace tessera::face {

// The HTTP API and the live page on api.sock and on TCP. Connections are accepted on the event loop, stay in a
// PendingConnections until their request arrives, and are served, one request each, by a few threads of its own: a
// silent client blocks nobody, and a slow one at most other requests. Requests act on the daemon through Control only.
class HttpServer {
 public:
  // Everything that is given outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(server::EventLoop& loop, UniqueFd listener,
                                                   server::Control& control);

  // Serves TCP connections on `listener` too, by threads of their own, so that remote clients cannot block api.sock.
  // Requests other than GET /healthz and the live page's files need "Authorization: Bearer TOKEN". To be called once.
  Result<void> AddTcp(server::EventLoop& loop, UniqueFd listener, std::string token);

  // Replaces the token. Any thread; no effect without TCP.
  void SetToken(std::string token);

  // Waits for requests that are under way; the loop must have ended, so that none of them waits for it.
  ~HttpServer();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<server::Acceptor> acceptor_, tcp_acceptor_;
};

}  // namespace tessera::face
