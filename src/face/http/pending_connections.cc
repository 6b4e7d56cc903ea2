#include "face/http/pending_connections.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>

namespace tessera::face {
namespace {

constexpr std::uint64_t kWakeId = 0;  // guests' begin with 1

enum class Said { kNothing, kPart, kHead };

// What is there of a request; of more than heads have, as if one were whole. Reads nothing.
Said WhatIsThere(const UniqueFd& socket) {
  char head[16 << 10];
  const ssize_t length = recv(socket.Get(), head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
  if (length <= 0) return Said::kNothing;
  const auto size = static_cast<std::size_t>(length);
  const bool whole = size == sizeof head || std::string_view(head, size).find("\r\n\r\n") != std::string_view::npos;
  return whole ? Said::kHead : Said::kPart;
}

}  // namespace

WaitingRoom::WaitingRoom(Take take)
    : take_(std::move(take)), arrivals_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  epoll_ctl(arrivals_.Get(), EPOLL_CTL_ADD, wake_.Get(), &event);
  thread_ = std::thread([this] { Run(); });
}

WaitingRoom::~WaitingRoom() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  eventfd_write(wake_.Get(), 1);
  thread_.join();
}

void WaitingRoom::Add(UniqueFd socket) {
  if (WhatIsThere(socket) == Said::kHead)
    return take_(std::move(socket));  // most have, and need no other thread for it
  const std::lock_guard lock(mutex_);
  if (guests_.size() >= kMost) guests_.erase(guests_.begin());
  const std::uint64_t id = ++last_id_;
  // Edge-triggered, because what is there stays there. What came meanwhile is told at once.
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.u64 = id}};
  if (epoll_ctl(arrivals_.Get(), EPOLL_CTL_ADD, socket.Get(), &event) != 0) return;
  if (guests_.empty()) eventfd_write(wake_.Get(), 1);
  guests_.emplace(id, Guest{.socket = std::move(socket), .until = MonotonicNow() + kLongest});
}

void WaitingRoom::Run() {
  pthread_setname_np(pthread_self(), "http-wait");
  for (;;) {
    epoll_event events[64];
    const int count = epoll_wait(arrivals_.Get(), events, std::size(events), MillisecondsToNext());
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != kWakeId) Look(events[i].data.u64, (events[i].events & ~EPOLLIN) != 0);
    }
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    eventfd_t woken;
    eventfd_read(wake_.Get(), &woken);
    const Nanos now = MonotonicNow();
    while (!guests_.empty() && guests_.begin()->second.until <= now) guests_.erase(guests_.begin());
  }
}

// `nothing_more`: the peer has closed its end, or the whole connection. Part of a request is answered then; who has
// said nothing is no work for those who serve, however many leave at once.
void WaitingRoom::Look(std::uint64_t id, bool nothing_more) {
  UniqueFd socket;
  {
    const std::lock_guard lock(mutex_);
    const auto guest = guests_.find(id);
    if (guest == guests_.end()) return;
    const Said said = WhatIsThere(guest->second.socket);
    if (said != Said::kHead && !nothing_more) return;
    socket = std::move(guest->second.socket);
    guests_.erase(guest);
    if (said == Said::kNothing) return;
    epoll_ctl(arrivals_.Get(), EPOLL_CTL_DEL, socket.Get(), nullptr);
  }
  take_(std::move(socket));
}

int WaitingRoom::MillisecondsToNext() {
  const std::lock_guard lock(mutex_);
  if (guests_.empty()) return -1;
  return static_cast<int>(std::max<Nanos>(guests_.begin()->second.until - MonotonicNow(), 0) / kMillisecond) + 1;
}

}  // namespace tessera::face
