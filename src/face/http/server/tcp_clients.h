#pragma once

#include <atomic>
#include <memory>

#include "base/unique_fd.h"
#include "face/http/peer_stream.h"
#include "face/http/pending_connections.h"
#include "face/http/server/api.h"

namespace tessera::face {

// Connections by TCP, with threads of their own, so that remote clients cannot block api.sock. Who asks is said by the
// token alone.
class TcpClients {
 public:
  // `api` outlives it.
  explicit TcpClients(Api& api);
  // Waits for requests that are under way.
  ~TcpClients();

  // On the event loop. `socket` is non-blocking.
  void Add(UniqueFd socket) { pending_->Add(std::move(socket)); }

 private:
  void Enqueue(UniqueFd socket);

  static constexpr int kThreads = 2;
  static constexpr int kMostWaiting = 128;  // requests; further ones are closed. A browser makes six at once

  Api& api_;
  httplib::ThreadPool threads_{kThreads};
  std::atomic<int> requests_{0};
  std::unique_ptr<PendingConnections> pending_;
};

}  // namespace tessera::face
