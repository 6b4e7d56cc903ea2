#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace tessera::cli {

// Passes a browser's requests on to the daemon's socket: each connection to a port of this computer alone becomes one
// to the daemon, of the user who runs this, if its request may pass (ForwardedHead). One thread; a slow browser or
// daemon delays only its own connection.
class Relay {
 public:
  using Connect = std::function<Result<UniqueFd>()>;

  // Listens on 127.0.0.1; port 0: any that is free. `connect` makes a connection to the daemon. Errors of bind(2).
  static Result<std::unique_ptr<Relay>> Listen(std::uint16_t port, std::string token, Connect connect);

  std::uint16_t Port() const { return port_; }

  // Serves until `stop_fd` becomes readable (-1: for ever). Errors of poll(2).
  Result<void> Serve(int stop_fd = -1);

 private:
  static constexpr std::size_t kMost = 128;         // connections at a time; more wait in the socket's queue
  static constexpr std::size_t kBuffer = 64 << 10;  // bytes that wait to be written, one way
  static constexpr std::size_t kLongestHead = 16 << 10;
  static constexpr Nanos kHeadTime = 10 * kSecond;  // in which the head of a request must come

  struct Connection {
    UniqueFd browser, daemon;  // no daemon: the head has not come, or the request is refused
    std::string up, down;      // what is to be written to the daemon, and to the browser
    Nanos until = 0;           // when it ends, if no head has come by then
    bool last = false;         // nothing more comes for the browser
    bool gone = false;
  };

  Relay(UniqueFd listener, std::uint16_t port, std::string token, Connect connect)
      : listener_(std::move(listener)), port_(port), token_(std::move(token)), connect_(std::move(connect)) {}
  void Accept();
  void Work(Connection& connection, short browser, short daemon);
  void TakeHead(Connection& connection);

  const UniqueFd listener_;
  const std::uint16_t port_;
  const std::string token_;
  const Connect connect_;
  std::list<Connection> connections_;
};

}  // namespace tessera::cli
