#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Packets to a process that may be slow to read: what its socket has no place for waits here, so the loop waits for
// nobody. On the loop's thread.
class PacketQueue {
 public:
  // `socket`: non-blocking, SOCK_SEQPACKET; it outlives the queue, as the loop does.
  PacketQueue(EventLoop& loop, int socket) : socket_(socket), flush_(loop, [this] { Flush(); }) {}
  PacketQueue(const PacketQueue&) = delete;

  // What becomes of a packet: 0 when it was sent, or the errno for which it cannot be.
  using Done = std::function<void(int)>;
  // Sends it after those that wait; `fd` may be closed after the call. `done` is called here or later; it must not
  // destroy the queue. False: it cannot be sent, and `done` was not called. errno says why: EMFILE if it would have to
  // wait, and the process may have no descriptor more.
  bool Send(std::span<const std::byte> packet, int fd = -1, Done done = {});
  // Since when the peer has taken nothing of what waits; kNever: nothing waits.
  Nanos StuckSince() const { return waiting_.empty() ? kNever : stuck_since_; }
  // What was to be called for those that wait. They are dropped.
  std::vector<Done> TakeDone();

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    UniqueFd fd;
    Done done;
  };
  void Flush();

  const int socket_;
  std::deque<Packet> waiting_;
  Nanos stuck_since_ = 0;
  EventLoop::Timer flush_;
};

}  // namespace tessera::server
