#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "face/http/peer_stream.h"
#include "face/http/pending_connections.h"
#include "face/http/server/api.h"
#include "face/http/user_requests.h"

namespace tessera::face {

// Connections to api.sock. The kernel says whose each is; users' silent or slow ones take no place and no thread of
// operators'.
class LocalClients {
 public:
  // Both outlive it.
  LocalClients(Api& api, server::Control& control);
  // Waits for requests that are under way.
  ~LocalClients();

  // On the event loop. `socket` is non-blocking.
  void Add(UniqueFd socket);

 private:
  // The daemon as the process that connected may use it.
  server::Control ControlOf(int socket) const;
  void Answer(UniqueFd socket);

  static constexpr int kOperatorThreads = 4, kUserThreads = 4;

  Api& api_;
  server::Control& control_;
  httplib::ThreadPool threads_{kOperatorThreads};
  UserRequests users_;
  std::unique_ptr<PendingConnections> users_pending_, pending_;
};

}  // namespace tessera::face
