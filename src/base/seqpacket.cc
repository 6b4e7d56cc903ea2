#include "base/seqpacket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

namespace tessera {
namespace {

bool AddressOf(const char* path, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address.sun_path, path);
  return true;
}

}  // namespace

UniqueFd ConnectSeqpacket(const char* path, int send_timeout_ms) {
  sockaddr_un address{};
  if (!AddressOf(path, address)) return {};
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  if (send_timeout_ms > 0) {
    const timeval limit{.tv_sec = send_timeout_ms / 1000, .tv_usec = send_timeout_ms % 1000 * 1000};
    setsockopt(fd.Get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  while (connect(fd.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    const int why = errno;  // close() may overwrite it
    fd.Reset();
    errno = why;
    return {};
  }
  return fd;
}

UniqueFd ListenSeqpacket(const char* path, int backlog) {
  sockaddr_un address{};
  if (!AddressOf(path, address)) return {};
  unlink(path);
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  // On Linux the file takes the mode that the socket has at bind(), without a moment in which it is open to others.
  const bool listens = fd && fchmod(fd.Get(), 0600) == 0 &&
                       bind(fd.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       listen(fd.Get(), backlog) == 0;
  if (listens) return fd;
  const int why = errno;
  fd.Reset();
  errno = why;
  return {};
}

bool SendPacket(int socket, std::span<const std::byte> packet, std::span<const int> fds) {
  if (fds.size() > kMostDescriptors) {
    errno = EINVAL;
    return false;
  }
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

bool SendPacket(int socket, std::span<const std::byte> packet, int fd) {
  return SendPacket(socket, packet, fd >= 0 ? std::span<const int>(&fd, 1) : std::span<const int>());
}

ssize_t ReceivePacket(int socket, std::span<std::byte> buffer, std::span<UniqueFd> fds, std::size_t& received) {
  received = 0;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // The kernel takes as many as there is room for, to the byte.
  const std::size_t most = std::min(fds.size(), kMostDescriptors);
  if (most > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int) * most);
  }
  ssize_t length;
  do {
    length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (length < 0 && errno == EINTR);
  if (length < 0) return -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && received < most; ++i) {
      int number;
      memcpy(&number, CMSG_DATA(header) + i * sizeof number, sizeof number);
      fds[received++].Reset(number);
    }
  }
  if (message.msg_flags & MSG_TRUNC) {
    errno = EMSGSIZE;
    return -1;
  }
  return length;
}

ssize_t ReceivePacket(int socket, std::span<std::byte> buffer, UniqueFd* fd) {
  std::size_t received;
  return ReceivePacket(socket, buffer, fd ? std::span<UniqueFd>(fd, 1) : std::span<UniqueFd>(), received);
}

}  // namespace tessera
