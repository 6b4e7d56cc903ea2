#include "server/loop/packet_queue.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/seqpacket.h"

namespace tessera::server {
namespace {

constexpr Nanos kFlushAgain = 10 * kMillisecond;

}  // namespace

bool PacketQueue::Send(std::span<const std::byte> packet, int fd, Done done) {
  if (waiting_.empty()) {
    if (SendPacket(socket_, packet, fd)) {
      if (done) done(0);
      return true;
    }
    if (errno != EAGAIN) return false;
  }
  UniqueFd own(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1);
  if (fd >= 0 && !own) return false;
  if (waiting_.empty()) stuck_since_ = MonotonicNow();
  waiting_.push_back({.bytes = {packet.begin(), packet.end()}, .fd = std::move(own), .done = std::move(done)});
  flush_.ArmIn(kFlushAgain);
  return true;
}

// Who is gone takes nothing: the rest is dropped, one by one.
void PacketQueue::Flush() {
  while (!waiting_.empty()) {
    const Packet& next = waiting_.front();
    const int error = SendPacket(socket_, next.bytes, next.fd.Get()) ? 0 : errno;
    if (error == EAGAIN) return flush_.ArmIn(kFlushAgain);
    stuck_since_ = MonotonicNow();
    const auto done = std::move(waiting_.front().done);
    waiting_.pop_front();
    if (done) done(error);
  }
}

std::vector<PacketQueue::Done> PacketQueue::TakeDone() {
  std::vector<Done> done;
  for (Packet& packet : waiting_) {
    if (packet.done) done.push_back(std::move(packet.done));
  }
  waiting_.clear();
  return done;
}

}  // namespace tessera::server
