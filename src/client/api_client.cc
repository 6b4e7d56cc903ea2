#include "client/api_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/install/peer.h"
#include "base/install/run_dir.h"
#include "base/unique_fd.h"
#include "client/json_fields.h"

namespace tessera::client {
namespace {

constexpr std::size_t kMaxAnswerBytes = 64 << 20;

std::string StartHint() { return "start a daemon with 'tesserad', or let 'tessera run' start one"; }

// `wait_s`: how long to wait for room in the socket's queue, and for the daemon to take what is sent.
Result<UniqueFd> ConnectTo(const std::string& path, int wait_s) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) {
    return Fail(ENAMETOOLONG, "the socket path " + path + " is longer than 107 bytes", "choose a shorter --run-dir");
  }
  if (auto trusted = CheckRunDir(path.substr(0, path.rfind('/'))); !trusted) return std::unexpected(trusted.error());
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return FailErrno("cannot make a socket");
  const timeval limit = {.tv_sec = ApiClient::kAnswerSeconds, .tv_usec = 0};
  setsockopt(fd.Get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const timeval wait = {.tv_sec = wait_s, .tv_usec = 0};
  setsockopt(fd.Get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  if (connect(fd.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    if (PeerIsTrusted(fd.Get())) return fd;
    return Fail(
        EPERM,
        "the daemon at " + path + " is user " + std::to_string(PeerUser(fd.Get())) + "'s, who is neither root nor you",
        "use another --run-dir, or act as that user");
  }
  if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) {
    return Fail(ECONNREFUSED, "no daemon answers at " + path, StartHint());
  }
  if (errno == EACCES) {
    return FailErrno("cannot open " + path, "ask to be added to the group of this socket, or use another --run-dir");
  }
  if (errno == EAGAIN) return Fail(ETIMEDOUT, "the daemon at " + path + " does not accept the connection");
  return FailErrno("cannot connect to " + path);
}

Result<void> SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EPIPE) return {};  // refused before all was read; the answer can still be read
    if (sent < 0) return FailErrno("cannot write to the daemon");
    bytes.remove_prefix(sent);
  }
  return {};
}

// Waits until there is something to receive.
Result<void> Await(int fd, int stop_fd) {
  pollfd fds[] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
  int ready = 0;
  do {
    ready = poll(fds, std::size(fds), ApiClient::kAnswerSeconds * 1000);
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return FailErrno("cannot wait for the daemon");
  if (ready == 0) return Fail(ETIMEDOUT, "the daemon accepted the connection but does not answer");
  if (fds[1].revents != 0) return Fail(ECANCELED, "stopped waiting for the daemon");
  return {};
}

Result<std::string> ReceiveAll(int fd, int stop_fd) {
  std::string all;
  char piece[16384];
  for (;;) {
    if (auto there = Await(fd, stop_fd); !there) return std::unexpected(there.error());
    const ssize_t got = recv(fd, piece, sizeof piece, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FailErrno("cannot read from the daemon");
    all.append(piece, got);
    if (all.size() > kMaxAnswerBytes) return Fail(EMSGSIZE, "the daemon's answer is longer than 64 MiB");
  }
}

// The errno value for an HTTP status.
int ErrnoOf(int status) {
  switch (status) {
    case 403:
      return EPERM;
    case 404:
      return ENOENT;
    case 409:
      return EBUSY;
    default:
      return status < 500 ? EINVAL : EIO;
  }
}

}  // namespace

Result<Json> ReadAnswer(const std::string& answer) {
  const std::size_t head_end = answer.find("\r\n\r\n");
  int status = 0;
  if (!answer.starts_with("HTTP/1.") || head_end == std::string::npos || answer.size() < 12 ||
      std::from_chars(answer.data() + 9, answer.data() + 12, status).ec != std::errc()) {
    return Fail(EPROTO, "the program at this socket is not a Tessera daemon", "check --run-dir");
  }
  const std::string body = answer.substr(head_end + 4);
  Json json = body.empty() ? Json() : Json::parse(body, nullptr, false);
  if (status >= 200 && status < 300) {
    if (json.is_discarded()) return Fail(EPROTO, "the daemon's answer is incomplete or not JSON");
    return json;
  }
  const std::string detail = TextField(json, "detail", TextField(json, "title"));
  return Fail(ErrnoOf(status),
              detail.empty() ? "the daemon answered with HTTP status " + std::to_string(status) : detail,
              TextField(json, "hint"));
}

Result<Json> ApiClient::Call(const std::string& method, const std::string& path, const std::string& body) const {
  const auto socket = ConnectTo(socket_path_, stop_fd_ < 0 ? kAnswerSeconds : kStopSeconds);
  if (!socket) return std::unexpected(socket.error());
  std::string request = method + " " + path + " HTTP/1.0\r\nHost: tessera\r\nConnection: close\r\n";
  if (!body.empty()) {
    request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  request += "\r\n" + body;
  if (auto sent = SendAll(socket->Get(), request); !sent) return std::unexpected(sent.error());
  const auto answer = ReceiveAll(socket->Get(), stop_fd_);
  if (!answer) return std::unexpected(answer.error());
  // A daemon that is ending closes the connections in its queue without an answer.
  if (answer->empty())
    return Fail(ECONNREFUSED, "the daemon at " + socket_path_ + " closed the connection", StartHint());
  return ReadAnswer(*answer);
}

Result<UniqueFd> ApiClient::Connect() const { return ConnectTo(socket_path_, kStopSeconds); }

Result<Json> ApiClient::Get(const std::string& path) const { return Call("GET", path, ""); }

Result<void> ApiClient::Follow(const std::string& path, const std::string& type,
                               const std::function<void(std::string_view)>& take) const {
  const auto socket = ConnectTo(socket_path_, kAnswerSeconds);
  if (!socket) return std::unexpected(socket.error());
  const std::string request =
      "GET " + path + " HTTP/1.0\r\nHost: tessera\r\nConnection: close\r\nAccept: " + type + "\r\n\r\n";
  if (auto sent = SendAll(socket->Get(), request); !sent) return sent;
  std::string head;
  bool in_body = false;
  char piece[16384];
  for (;;) {
    const ssize_t got = recv(socket->Get(), piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Fail(ETIMEDOUT, "the daemon accepted the connection but does not answer");
    if (got <= 0) break;
    if (in_body) {
      take({piece, static_cast<std::size_t>(got)});
      continue;
    }
    head.append(piece, static_cast<std::size_t>(got));
    const std::size_t end = head.find("\r\n\r\n");
    if (end == std::string::npos || head.find(" 200 ") > head.find('\r')) continue;
    in_body = true;
    take(std::string_view(head).substr(end + 4));
  }
  if (in_body) return {};
  if (auto answer = ReadAnswer(head); !answer) return std::unexpected(answer.error());
  return Fail(EPROTO, "this daemon does not support events",
              "use programs and daemon of one version; see 'tessera version'");
}

Result<Json> ApiClient::Post(const std::string& path, const Json& body) const {
  return Call("POST", path, body.dump());
}

Result<Json> ApiClient::Patch(const std::string& path, const Json& body) const {
  return Call("PATCH", path, body.dump());
}

Result<Json> ApiClient::Delete(const std::string& path) const { return Call("DELETE", path, ""); }

}  // namespace tessera::client
