#include "face/http/pending_connections.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

namespace tessera::face {
namespace {

constexpr std::uint64_t kWakeId = 0;  // ids of connections begin with 1

enum class Said { kNothing, kPart, kHead };

// How much of a request has arrived. More bytes than a head may have count as a whole one. Reads nothing.
Said Peek(const UniqueFd& socket) {
  char head[16 << 10];
  const ssize_t length = recv(socket.Get(), head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
  if (length <= 0) return Said::kNothing;
  const auto size = static_cast<std::size_t>(length);
  const bool whole = size == sizeof head || std::string_view(head, size).find("\r\n\r\n") != std::string_view::npos;
  return whole ? Said::kHead : Said::kPart;
}

}  // namespace

PendingConnections::PendingConnections(Take take)
    : take_(std::move(take)), arrivals_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  epoll_ctl(arrivals_.Get(), EPOLL_CTL_ADD, wake_.Get(), &event);
  thread_ = std::thread([this] { Run(); });
}

PendingConnections::~PendingConnections() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.Get(), 1);
  thread_.join();
}

void PendingConnections::Add(UniqueFd socket) {
  if (Peek(socket) == Said::kHead) return take_(std::move(socket));  // the usual case; it needs no other thread
  const MutexLock lock(mutex_);
  if (connections_.size() >= kMost) connections_.erase(connections_.begin());
  const std::uint64_t id = ++last_id_;
  // Edge-triggered, because data stays in the socket until it is served. Data that came meanwhile counts as an edge.
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = id}};
  if (epoll_ctl(arrivals_.Get(), EPOLL_CTL_ADD, socket.Get(), &event) != 0) return;
  if (connections_.empty()) eventfd_write(wake_.Get(), 1);
  connections_.emplace(id, Connection{.socket = std::move(socket), .until = MonotonicNow() + kLongest});
}

void PendingConnections::Run() {
  pthread_setname_np(pthread_self(), "http-wait");
  for (;;) {
    epoll_event events[64];
    const int count = epoll_wait(arrivals_.Get(), events, std::size(events), MillisecondsToNext());
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != kWakeId) Look(events[i].data.u64, (events[i].events & ~EPOLLIN) != 0);
    }
    const MutexLock lock(mutex_);
    if (ending_) return;
    eventfd_t woken;
    eventfd_read(wake_.Get(), &woken);
    const Nanos now = MonotonicNow();
    while (!connections_.empty() && connections_.begin()->second.until <= now) connections_.erase(connections_.begin());
  }
}

// `peer_closed`: the peer has closed its end, or the whole connection. Part of a request is answered then. A connection
// without any data is dropped here, so that many that leave at once are no work for the serving threads.
void PendingConnections::Look(std::uint64_t id, bool peer_closed) {
  UniqueFd socket;
  {
    const MutexLock lock(mutex_);
    const auto connection = connections_.find(id);
    if (connection == connections_.end()) return;
    const Said said = Peek(connection->second.socket);
    if (said != Said::kHead && !peer_closed) return;
    socket = std::move(connection->second.socket);
    connections_.erase(connection);
    if (said == Said::kNothing) return;
    epoll_ctl(arrivals_.Get(), EPOLL_CTL_DEL, socket.Get(), nullptr);
  }
  take_(std::move(socket));
}

int PendingConnections::MillisecondsToNext() {
  const MutexLock lock(mutex_);
  if (connections_.empty()) return -1;
  return static_cast<int>(std::max<Nanos>(connections_.begin()->second.until - MonotonicNow(), 0) / kMillisecond) + 1;
}

}  // namespace tessera::face
