#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace tessera::mover {

// A SOCK_SEQPACKET socket in an epoll instance, known there by its descriptor. Sending never blocks: what the peer does
// not take yet waits here. Closing it takes it out of the epoll instance.
class PacketSocket {
 public:
  PacketSocket(int epoll, UniqueFd socket);

  int fd() const { return socket_.Get(); }
  // Sends a packet after those that wait. False if the peer is gone.
  bool Send(std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Sends what waits: call when epoll says that the socket is writable. False if the peer is gone.
  bool Flush();
  void Close();

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
  };
  void Watch(int operation, bool for_room);

  int epoll_;
  UniqueFd socket_;
  std::deque<Packet> waiting_;
};

}  // namespace tessera::mover
