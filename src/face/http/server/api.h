#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "face/http/event_streams.h"
#include "face/http/peer_stream.h"
#include "face/http/routes/page_figures.h"
#include "server/daemon/control.h"

namespace tessera::face {

// The API: answers the one request of a connection, and refuses what is no request of it or comes from another's page
// or without the token. httplib parses and dispatches; who has the connections calls Answer on threads of its own. Any
// thread.
class Api : private httplib::Server {
 public:
  // `control` outlives it.
  explicit Api(server::Control& control);

  // `control` is the daemon as the caller may use it; none: the caller is an operator if the request has the token, and
  // else nobody. The connection is closed, or kept for the events that it follows.
  void Answer(UniqueFd socket, std::optional<server::Control> control);

  // Requests under way end, and further ones at once.
  void Interrupt();

  void SetToken(std::string token);

 private:
  bool MayAsk(const httplib::Request& request);
  void AddRoutes();
  void AddWrongMethods();
  void AddRefusals();

  static constexpr std::size_t kMostBodyBytes = 64 << 10;

  server::Control& control_;
  const UniqueFd stop_fd_;  // eventfd, readable from the end on
  EventStreams streams_;
  PageFigures figures_;
  Mutex token_mutex_;
  std::string token_ TESSERA_GUARDED_BY(token_mutex_);
};

}  // namespace tessera::face
