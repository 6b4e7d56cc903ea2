#include "cli/plan/http_get.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <charconv>
#include <memory>
#include <string_view>

#include "base/unique_fd.h"

namespace tessera::cli {
namespace {

constexpr int kPatienceSeconds = 30;
constexpr std::size_t kMostBytes = 256 << 20;

std::string NameOf(const HttpAddress& address) { return address.host + ":" + address.port; }

// Also for connect(2), which takes the time limit of sending.
Result<UniqueFd> ConnectByTcp(const HttpAddress& address) {
  const addrinfo wanted = {.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found); error != 0) {
    return Fail(EHOSTUNREACH, "cannot find " + NameOf(address) + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  int why = ECONNREFUSED;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    UniqueFd fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, each->ai_protocol));
    const timeval limit = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
    setsockopt(fd.Get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd.Get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd && connect(fd.Get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
    why = errno == EINPROGRESS ? ETIMEDOUT : errno;
  }
  return Fail(why, "cannot connect to " + NameOf(address) + ": " + std::strerror(why), "check the address");
}

Result<std::string> Exchange(const UniqueFd& socket, std::string_view request, const std::string& whom) {
  while (!request.empty()) {
    const ssize_t sent = send(socket.Get(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return FailErrno("cannot write to " + whom);
    request.remove_prefix(static_cast<std::size_t>(sent));
  }
  std::string all;
  char piece[65536];
  for (;;) {
    const ssize_t got = recv(socket.Get(), piece, sizeof piece, 0);
    if (got == 0) return all;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      return Fail(ETIMEDOUT, whom + " said nothing for " + std::to_string(kPatienceSeconds) + " seconds");
    }
    if (got < 0) return FailErrno("cannot read from " + whom);
    all.append(piece, static_cast<std::size_t>(got));
    if (all.size() > kMostBytes) return Fail(EMSGSIZE, "the answer of " + whom + " is longer than 256 MiB");
  }
}

}  // namespace

Result<HttpAddress> ParseHttpAddress(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const std::string example = "such as http://localhost:9090";
  if (!url.starts_with(kScheme)) {
    return Fail(EINVAL, "\"" + url + "\" is no address that begins with http://", example + "; TLS is not supported");
  }
  const std::size_t slash = url.find('/', kScheme.size());
  std::string place = url.substr(kScheme.size(), slash == std::string::npos ? slash : slash - kScheme.size());
  HttpAddress address;
  if (slash != std::string::npos) address.path = url.substr(slash);
  while (address.path.ends_with('/')) address.path.pop_back();
  const std::size_t colon = place.rfind(':');
  if (colon != std::string::npos && place.find(']', colon) == std::string::npos) {
    address.port = place.substr(colon + 1);
    place.resize(colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  address.host = place;
  const bool readable = url.find_first_of(" \t\r\n?#") == std::string::npos;
  if (address.host.empty() || address.port.empty() || !readable) {
    return Fail(EINVAL, "\"" + url + "\" names no host, or has more than host, port and path", example);
  }
  return address;
}

Result<HttpAnswer> HttpGet(const HttpAddress& address, const std::string& path) {
  const auto socket = ConnectByTcp(address);
  if (!socket) return std::unexpected(socket.error());
  const auto text = Exchange(*socket,
                             "GET " + address.path + path + " HTTP/1.0\r\nHost: " + NameOf(address) +
                                 "\r\nAccept: application/json\r\nConnection: close\r\n\r\n",
                             NameOf(address));
  if (!text) return std::unexpected(text.error());
  const std::size_t end = text->find("\r\n\r\n");
  HttpAnswer answer;
  if (!text->starts_with("HTTP/1.") || end == std::string::npos || text->size() < 12 ||
      std::from_chars(text->data() + 9, text->data() + 12, answer.status).ec != std::errc()) {
    return Fail(EPROTO, NameOf(address) + " does not answer by HTTP/1", "check the address");
  }
  answer.body = text->substr(end + 4);
  return answer;
}

std::string QueryEscaped(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain) {
      escaped += c;
    } else {
      escaped += '%';
      escaped += kDigits[static_cast<unsigned char>(c) >> 4];
      escaped += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return escaped;
}

}  // namespace tessera::cli
