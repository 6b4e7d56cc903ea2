#include "cli/page/relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "cli/page/relay_request.h"

namespace tessera::cli {
namespace {

// Appends what can be read now. False at the end of the stream.
bool ReadInto(std::string& buffer, int fd) {
  char piece[16 << 10];
  const ssize_t got = recv(fd, piece, sizeof piece, 0);
  if (got > 0) buffer.append(piece, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// Writes what can be written now. False if nobody reads it any more.
bool WriteFrom(std::string& buffer, int fd) {
  const ssize_t sent = send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL);
  if (sent > 0) buffer.erase(0, static_cast<std::size_t>(sent));
  return sent >= 0 || errno == EAGAIN || errno == EINTR;
}

}  // namespace

Result<std::unique_ptr<Relay>> Relay::Listen(std::uint16_t port, std::string token, Connect connect) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof address;
  if (!fd || setsockopt(fd.Get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.Get(), kMost) != 0 || getsockname(fd.Get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return FailErrno("cannot listen at port " + std::to_string(port), "choose another --port");
  return std::unique_ptr<Relay>(
      new Relay(std::move(fd), ntohs(address.sin_port), std::move(token), std::move(connect)));
}

Result<void> Relay::Serve(int stop_fd) {
  std::vector<pollfd> fds;
  for (;;) {
    const Nanos now = MonotonicNow();
    Nanos next = kNever;
    const bool room = connections_.size() < kMost;
    fds = {{stop_fd, POLLIN, 0}, {room ? listener_.Get() : -1, POLLIN, 0}};
    for (const Connection& each : connections_) {
      // A side is read only while there is room for what it sends.
      const bool to_read = !each.last && each.up.size() < kBuffer;
      const int browser = (to_read ? POLLIN : 0) | (each.down.empty() ? 0 : POLLOUT);
      const int daemon = (each.down.size() < kBuffer ? POLLIN : 0) | (each.up.empty() ? 0 : POLLOUT);
      fds.push_back({each.browser.Get(), static_cast<short>(browser), 0});
      fds.push_back({each.daemon.Get(), static_cast<short>(daemon), 0});
      if (!each.daemon) next = std::min(next, each.until);
    }
    const int wait = next == kNever ? -1 : static_cast<int>(std::max<Nanos>(next - now, 0) / kMillisecond) + 1;
    if (poll(fds.data(), fds.size(), wait) < 0 && errno != EINTR) return FailErrno("cannot wait for browsers");
    if (fds[0].revents != 0) return {};
    auto fd = fds.begin() + 2;
    for (Connection& each : connections_) {
      Work(each, fd[0].revents, fd[1].revents);
      fd += 2;
      if (!each.daemon && MonotonicNow() >= each.until) each.gone = true;
    }
    connections_.remove_if([](const Connection& each) { return each.gone; });
    if (fds[1].revents != 0) Accept();
  }
}

void Relay::Accept() {
  UniqueFd browser(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (browser) connections_.push_back({.browser = std::move(browser), .until = MonotonicNow() + kHeadTime});
}

void Relay::Work(Connection& connection, short browser, short daemon) {
  if (browser & POLLIN) {
    const bool more = ReadInto(connection.up, connection.browser.Get());
    if (!connection.daemon) TakeHead(connection);
    // A peer that has closed waits for nothing.
    if (!more) connection.gone = true;
  }
  if (browser & (POLLERR | POLLHUP)) connection.gone = true;
  // A daemon that refuses a request does not read all of it, and its answer can be read all the same.
  if ((daemon & POLLOUT) && !WriteFrom(connection.up, connection.daemon.Get())) connection.up.clear();
  if (daemon & (POLLIN | POLLERR | POLLHUP)) {
    if (!ReadInto(connection.down, connection.daemon.Get())) {
      connection.last = true;
      connection.daemon.Reset();
      connection.until = MonotonicNow() + kHeadTime;
    }
  }
  if (!connection.down.empty() && !WriteFrom(connection.down, connection.browser.Get())) connection.gone = true;
  if (connection.last && connection.down.empty()) connection.gone = true;
}

void Relay::TakeHead(Connection& connection) {
  if (connection.last) return;
  const std::size_t end = connection.up.find("\r\n\r\n");
  if (end == std::string::npos && connection.up.size() < kLongestHead) return;
  auto head = end == std::string::npos ? Fail(EINVAL, "the head of the request is too long")
                                       : ForwardedHead(connection.up.substr(0, end + 4), token_);
  auto to_daemon = head ? connect_() : std::unexpected(head.error());
  if (!to_daemon) {
    connection.down = RefusalOf(to_daemon.error());
    connection.up.clear();
    connection.last = true;
    return;
  }
  connection.daemon = std::move(*to_daemon);
  fcntl(connection.daemon.Get(), F_SETFL, fcntl(connection.daemon.Get(), F_GETFL) | O_NONBLOCK);
  connection.up.replace(0, end + 4, *head);
}

}  // namespace tessera::cli
