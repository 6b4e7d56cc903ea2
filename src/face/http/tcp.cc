// The API on TCP, for Prometheus and dashboards, which cannot use a Unix socket. The token gives all rights.
#include "face/http/tcp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>

namespace tessera::face {
namespace {

constexpr int kBacklog = 64;
constexpr std::size_t kShortestToken = 16, kLongestToken = 256;

}  // namespace

Result<UniqueFd> ListenTcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string port = host.empty() ? "" : address.substr(colon + 1);
  std::uint16_t number = 0;  // getaddrinfo(3) takes 99999 for a port
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() ||
      getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
    return Fail(EINVAL, fmt::format("invalid address \"{}\"", address),
                "write ADDRESS:PORT, such as 127.0.0.1:9477 or [::1]:9477");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || setsockopt(fd.Get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.Get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.Get(), kBacklog) != 0)
    return FailErrno("cannot listen at " + address, "see api.listen in the configuration");
  return fd;
}

Result<std::string> ReadToken(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return FailErrno("cannot read the token file " + path, "see api.token_file in the configuration");
  struct stat status{};
  if (fstat(file.Get(), &status) != 0) return FailErrno("cannot read the token file " + path);
  if (!S_ISREG(status.st_mode)) return Fail(EINVAL, "the token file " + path + " is not a regular file");
  if (status.st_mode & (S_IRWXG | S_IRWXO))
    return Fail(EPERM, "other users may read the token file " + path, "chmod 600 " + path);
  std::string token(kLongestToken + 2, '\0');
  const ssize_t length = read(file.Get(), token.data(), token.size());
  if (length < 0) return FailErrno("cannot read the token file " + path);
  token.resize(static_cast<std::size_t>(length));
  if (token.ends_with('\n')) token.pop_back();
  const bool visible = std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kShortestToken || token.size() > kLongestToken || !visible)
    return Fail(EINVAL, fmt::format("no valid token in {}", path),
                fmt::format("write one line of {} to {} visible characters: head -c 24 /dev/urandom | base64 > {}",
                            kShortestToken, kLongestToken, path));
  return token;
}

bool IsBearer(const std::string& given, const std::string& token) {
  const std::string wanted = "Bearer " + token;
  unsigned char differs = given.size() != wanted.size();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    differs |= static_cast<unsigned char>(wanted[i] ^ (i < given.size() ? given[i] : '\0'));
  return differs == 0;
}

}  // namespace tessera::face
