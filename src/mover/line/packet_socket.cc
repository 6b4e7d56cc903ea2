#include "mover/line/packet_socket.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <cerrno>

#include "base/seqpacket.h"

namespace tessera::mover {

PacketSocket::PacketSocket(int epoll, UniqueFd socket) : epoll_(epoll), socket_(std::move(socket)) {
  fcntl(socket_.Get(), F_SETFL, fcntl(socket_.Get(), F_GETFL) | O_NONBLOCK);
  Watch(EPOLL_CTL_ADD, false);
}

void PacketSocket::Watch(int operation, bool for_room) {
  epoll_event event = {.events = for_room ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.fd = socket_.Get()}};
  epoll_ctl(epoll_, operation, socket_.Get(), &event);
}

bool PacketSocket::Send(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (!socket_) return false;
  if (waiting_.empty()) {
    if (SendPacket(socket_.Get(), bytes, fds)) return true;
    if (errno != EAGAIN) return false;
    Watch(EPOLL_CTL_MOD, true);
  }
  Packet packet = {.bytes = {bytes.begin(), bytes.end()}};
  for (const int fd : fds) packet.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  waiting_.push_back(std::move(packet));
  return true;
}

bool PacketSocket::Flush() {
  while (!waiting_.empty()) {
    std::vector<int> fds;
    for (const UniqueFd& fd : waiting_.front().fds) fds.push_back(fd.Get());
    if (!SendPacket(socket_.Get(), waiting_.front().bytes, fds)) return errno == EAGAIN;
    waiting_.pop_front();
  }
  if (socket_) Watch(EPOLL_CTL_MOD, false);
  return true;
}

void PacketSocket::Close() {
  waiting_.clear();
  socket_.Reset();
}

}  // namespace tessera::mover
