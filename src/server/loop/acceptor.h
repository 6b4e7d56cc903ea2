#pragma once

#include <functional>
#include <memory>

#include "base/unique_fd.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Accepts connections on a listening socket. When no descriptor is left for one, it gives up a spare for a moment so
// that the connection can be turned away: left waiting, it would wake the loop for ever.
class Acceptor {
 public:
  using Take = std::function<void(UniqueFd)>;

  // Sockets are handed over non-blocking. `turn_away` gets those that there is no room for; they close when it returns.
  // The loop outlives the acceptor.
  static Result<std::unique_ptr<Acceptor>> Start(EventLoop& loop, UniqueFd listener, Take take, Take turn_away);

 private:
  Acceptor(UniqueFd listener, Take take, Take turn_away);
  void Accept();
  bool AcceptOne();

  const UniqueFd listener_;
  const Take take_, turn_away_;
  UniqueFd spare_fd_;
  EventLoop::Watch watch_;
};

}  // namespace tessera::server
