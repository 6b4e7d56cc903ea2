#include "face/http/peer_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera::face {

PeerStream::PeerStream(UniqueFd socket, int stop_fd, Nanos longest)
    : socket_(std::move(socket)), stop_fd_(stop_fd), longest_(longest), deadline_(MonotonicNow() + longest) {}

bool PeerStream::WaitFor(short events) const {
  for (;;) {
    const Nanos left = deadline_ - MonotonicNow();
    if (left <= 0) return false;
    pollfd fds[] = {{socket_.Get(), events, 0}, {stop_fd_, POLLIN, 0}};
    const int ready = poll(fds, 2, static_cast<int>(left / kMillisecond) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return fds[1].revents == 0;
  }
}

bool PeerStream::is_readable() const { return begin_ < end_ || WaitFor(POLLIN); }

bool PeerStream::is_writable() const { return WaitFor(POLLOUT); }

ssize_t PeerStream::read(char* data, size_t size) {
  answers_ = false;  // "100 Continue" was no answer
  if (begin_ == end_) {
    if (bytes_left_ == 0 || !WaitFor(POLLIN)) return -1;
    const ssize_t length = recv(socket_.Get(), buffer_, std::min(sizeof buffer_, bytes_left_), 0);
    if (length <= 0) return length;
    begin_ = 0;
    end_ = static_cast<std::size_t>(length);
    bytes_left_ -= end_;
  }
  const std::size_t taken = std::min(size, end_ - begin_);
  std::memcpy(data, buffer_ + begin_, taken);
  begin_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t PeerStream::write(const char* data, size_t size) {
  if (!std::exchange(answers_, true)) deadline_ = MonotonicNow() + longest_;
  std::size_t sent = 0;
  while (sent < size) {
    if (!WaitFor(POLLOUT)) return -1;
    const ssize_t some = send(socket_.Get(), data + sent, size - sent, MSG_NOSIGNAL);
    if (some < 0 && errno != EAGAIN && errno != EINTR) return -1;
    sent += static_cast<std::size_t>(std::max<ssize_t>(some, 0));
  }
  return static_cast<ssize_t>(size);
}

void PeerStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  int family = AF_UNSPEC;
  ucred peer{};
  socklen_t length = sizeof family;
  if (getsockopt(socket_.Get(), SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family != AF_UNIX) return;
  length = sizeof peer;
  if (getsockopt(socket_.Get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  ip = std::to_string(peer.uid);
  port = peer.pid;
}

void PeerStream::get_local_ip_and_port(std::string&, int&) const {}

}  // namespace tessera::face
